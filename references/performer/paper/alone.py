"""Attention alone, without the rest of a layer: bytes and depth of its gradient over L, d, M and the block's size.

A quantity that is a constant plus a·n^p at n, 2n and 4n has the exponent p = log₂ of the quotient of its two steps.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from gradgate.references.published import at_most, equal, figures_of, more_than, upheld

HERE = "gradgate.references.performer.paper.alone"
FACTORS = (1, 2, 4)


def exponent(quantity: Callable[[int], float], first: int) -> float:
    """The exponent p of a constant plus a·n^p, from the values at n = first, 2·first and 4·first.

    >>> exponent(lambda n: 7 + 3 * n**2, 10)
    2.0
    """
    one, two, four = (quantity(first * factor) for factor in FACTORS)
    return math.log2((four - two) / (two - one))


def steps(quantity: Callable[[int], float], first: int) -> float:
    """What a second doubling of n adds over the first: 2 if linear in n, 1 if linear in log n."""
    one, two, four = (quantity(first * factor) for factor in FACTORS)
    return (four - two) / (two - one)


def program(prefix_sum: str, size: int = 0) -> Callable[..., Any]:
    """(q, k, v) -> the gradient of ½Σ out² by all three, where out is attention's numerator and denominator.

    Args:
        prefix_sum: as for `attention`.
        size: tokens per block; 0: those of `prefix_sum`.
    """
    import jax
    import jax.numpy as jnp

    from gradgate.references.performer.in_jax.attention import attention, blocked

    inside = blocked(prefix_sum, size=size) if size else attention(prefix_sum)

    def loss(q: Any, k: Any, v: Any) -> Any:
        zero = jnp.zeros((*v.shape[1:], q.shape[-1]), q.dtype)
        out, _ = inside.attend(inside.prepare(q, k, v), zero)
        return 0.5 * (out * out).sum()

    return jax.grad(loss, argnums=(0, 1, 2))


def arguments(length: int, width: int) -> tuple[Any, Any, Any]:
    """Shapes of q, k and v of one head with M = d = width; v has the column of ones."""
    import jax

    made = [(length, 1, 1, width), (length, 1, 1, width), (length, 1, 1, width + 1)]
    q, k, v = (jax.ShapeDtypeStruct(shape, "float32") for shape in made)
    return q, k, v


@functools.cache
def temporary(prefix_sum: str, length: int, width: int, size: int = 0, profile: str = "cpu") -> int:
    """Temporary bytes of `program` as compiled.

    Raises:
        LookupError: the profile's compiler gives no bytes; the message says why.
    """
    from gradgate.hw_profiles.compile import measure

    found = measure(program(prefix_sum, size), arguments(length, width), profile)
    if found.temp_bytes is None:
        raise LookupError(f"{profile}: {found.reason}")
    return found.temp_bytes


def over_length(prefix_sum: str, width: int = 16, first: int = 1024) -> float:
    """The exponent of L in the bytes, at M = d = width."""
    return exponent(lambda length: temporary(prefix_sum, length, width), first)


def over_width(prefix_sum: str, length: int = 4096, first: int = 16) -> float:
    """The exponent of M = d in the bytes, where L is much longer."""
    return exponent(lambda width: temporary(prefix_sum, length, width), first)


def over_block(length: int = 1024, width: int = 64, first: int = 64) -> float:
    """The exponent of the block's size 𝒞 in the bytes, where 𝒞dM is most of them."""
    return exponent(lambda size: temporary("block", length, width, size), first)


def over_length_in_blocks(width: int = 16, first: int = 1024) -> float:
    """The exponent of L in the bytes at a fixed block's size."""
    return exponent(lambda length: temporary("block", length, width, 16), first)


def depth(prefix_sum: str, length: int, size: int = 0, forward: bool = False) -> int:
    """The longest chain of operations of the gradient, or of the forward pass alone; see `depth.chain`."""
    import jax

    from gradgate.references.performer.in_jax.attention import attention, blocked
    from gradgate.references.state_space.paper.depth import of_jax

    inside = blocked(prefix_sum, size=size) if size else attention(prefix_sum)
    shapes = arguments(length, 4)
    if not forward:
        return of_jax(program(prefix_sum, size), shapes)

    def run(q: Any, k: Any, v: Any) -> Any:
        return inside.attend(inside.prepare(q, k, v), jax.numpy.zeros((*v.shape[1:], q.shape[-1])))[0]

    return of_jax(run, shapes)


def depth_over_length(prefix_sum: str, size: int = 0, forward: bool = False) -> float:
    """`steps` of the longest chain over L."""
    return steps(lambda length: depth(prefix_sum, length, size, forward), 256)


def block_steps(size: int, forward: bool = False) -> int:
    """What one more block of `size` tokens adds to the longest chain."""
    return depth("block", 5 * size, size, forward) - depth("block", 4 * size, size, forward)


def depth_over_block(forward: bool = False) -> float:
    """`block_steps` over log 𝒞, at 𝒞 = 256 over that at 𝒞 = 16."""
    large, small = (block_steps(size, forward) / math.log(size) for size in (256, 16))
    return large / small


_row = figures_of(HERE)


CLOSE = "a power is meant; constants drop out, and what grows more slowly moves the exponent by less than this"
LINEAR, LEVELS = 2.0, 1.0
ROWS = (
    _row(
        "§2.1",
        "attention one by one",
        "bytes, exponent of L",
        "1",
        "over_length",
        {"prefix_sum": "iterative"},
        1.0,
        upheld(equal(0.1, CLOSE)),
    ),
    _row(
        "§2.1",
        "attention one by one",
        "bytes, exponent of d = M",
        "1",
        "over_width",
        {"prefix_sum": "iterative"},
        1.0,
        upheld(at_most(f"O(L(d+M)+dM) with L = 4096: {CLOSE}", 0.1)),
    ),
    _row(
        "§2.1",
        "attention by explicit sums",
        "bytes, exponent of L",
        "1",
        "over_length",
        {"prefix_sum": "explicit"},
        1.0,
        upheld(equal(0.1, CLOSE)),
    ),
    _row(
        "§2.1",
        "attention by explicit sums",
        "bytes, exponent of d = M",
        "1",
        "over_width",
        {"prefix_sum": "explicit"},
        2.0,
        upheld(equal(0.1, f"O(LdM): {CLOSE}")),
    ),
    _row(
        "§2.1",
        "attention by explicit sums",
        "depth, second doubling of L over the first",
        "1",
        "depth_over_length",
        {"prefix_sum": "explicit"},
        LEVELS,
        upheld(equal(0.01, "a count: each doubling adds a level of each sum")),
    ),
    *(
        _row("App. B", f"attention in blocks, {what}", x, "1", name, told, printed, upheld(agreement))
        for what, forward in (("forward", True), ("with its gradient", False))
        for x, name, printed, agreement, told in (
            (
                "depth, second doubling of L over the first",
                "depth_over_length",
                LINEAR,
                equal(0.01, "O(L/𝒞) blocks, one after another"),
                {"prefix_sum": "block", "size": 16, "forward": forward},
            ),
            (
                "depth of one more block over log 𝒞, 𝒞 = 256 over 𝒞 = 16",
                "depth_over_block",
                1.0,
                at_most("O(log 𝒞) within a block, whose sums wait for no earlier block: log 256 over log 16 at most"),
                {"forward": forward},
            ),
        )
    ),
    _row(
        "App. B",
        "attention in blocks, with its gradient",
        "bytes, exponent of 𝒞",
        "1",
        "over_block",
        {},
        1.0,
        upheld(equal(0.15, f"𝒞dM: {CLOSE}")),
    ),
    _row(
        "App. B",
        "attention in blocks, with its gradient",
        "bytes, exponent of L",
        "1",
        "over_length_in_blocks",
        {},
        1.0,
        upheld(equal(0.1, f"L(d+M): {CLOSE}")),
    ),
    _row(
        "§4.1",
        "attention, term of the bytes that is in dM",
        "blocks of 64 over one by one",
        "1",
        "block_over_one",
        {},
        1.0,
        upheld(more_than('"bigger constant in a small O(dM) term"')),
    ),
)


def block_over_one(width: int = 64) -> float:
    """Temporary bytes of attention in blocks of 64 over those one by one, where L is 64 and dM is most of them."""
    return temporary("block", 64, width, 64) / temporary("iterative", 64, width)
