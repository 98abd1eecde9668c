"""The arguments of `selective_scan`: checks of their shapes for both frameworks, and the arithmetic around the scan.

There are two forms of h_t = a_t h_{t−1} + b_t x_t, y_t = c_t·h_t; the shape of x decides which one is meant. With batch
B, length T, C channels, N state numbers, H heads of P channels and G groups of heads:

| | x | a | b, c | state | with delta: delta | then a |
|---|---|---|---|---|---|---|
| diagonal, as in Mamba 1 | (B, T, C) | (B, T, C, N) | (B, T, N) | (B, C, N) | (B, T, C) | (C, N) |
| scalar, as in Mamba 2 | (B, T, H, P) | (B, T, H) | (B, T, G, N) | (B, H, P, N) | (B, T, H) | (H,) |
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gradgate.references.errors import UsageError

LEGAL = {
    3: "for x (batch, length, channels): a (batch, length, channels, state), or with delta (batch, length, channels) "
    "a (channels, state); b and c (batch, length, state); state (batch, channels, state)",
    4: "for x (batch, length, heads, width): a (batch, length, heads), or with delta (batch, length, heads) a (heads,);"
    " b and c (batch, length, groups, state), groups dividing heads; state (batch, heads, width, state)",
}
"""The shapes of each form, by the number of axes of x."""
Shape = tuple[int, ...]


@dataclass(frozen=True)
class How:
    """How a call is computed: plain values, by which JAX caches compiled programs.

    Attributes:
        chunk: tokens of a chunk, at least 1.
        associative: whether a chunk's states are a parallel prefix.
        repeat: the number of heads in a group; 0: there are no heads.
    """

    chunk: int
    associative: bool
    repeat: int


def how(
    shapes: dict[str, Shape | None],
    dtypes: dict[str, str],
    chunk: int | None,
    associative: bool,
) -> How:
    """How a call is computed.

    Args:
        shapes: the shapes of a, b, c, x, state and delta; None: not given.
        dtypes: the dtypes of those that are given.
        chunk, associative: as given by the user.

    Raises:
        UsageError: something does not fit; the message says what is legal.
    """
    x = shapes["x"] or ()
    if len(x) not in LEGAL:
        raise UsageError(f"x has the shape {x}; legal shapes are {LEGAL[3]}; and {LEGAL[4]}")
    wanted = expected(x, shapes["b"] or (), shapes["delta"] is not None)
    wrong = [name for name, shape in shapes.items() if shape is not None and shape != wanted.get(name, shape)]
    groups = (shapes["b"] or (0,) * 4)[2] if len(x) == 4 and len(shapes["b"] or ()) == 4 else 0
    if wrong or (len(x) == 4 and (groups < 1 or x[2] % groups)):
        told = ", ".join(f"{name} {shape}" for name, shape in shapes.items() if shape is not None)
        raise UsageError(
            f"the shapes do not fit{f' ({wrong[0]} first)' if wrong else ''}: {told}; legal {LEGAL[len(x)]}"
        )
    _check_dtypes(dtypes)
    if not isinstance(associative, bool):
        raise UsageError(f"associative is True or False, not {associative!r}")
    size = max(1, round(math.sqrt(x[1]))) if chunk is None else min(_check_chunk(chunk), max(1, x[1]))
    return How(size, associative, x[2] // groups if len(x) == 4 else 0)


def expected(x: Shape, b: Shape, delta: bool) -> dict[str, Shape]:
    """Name -> the legal shape, given the shapes of x and b."""
    state = b[-1] if b else 0
    if len(x) == 3:
        B, T, C = x
        own: dict[str, Shape] = {"a": (C, state) if delta else (B, T, C, state), "b": (B, T, state)}
    else:
        B, T, H = x[:3]
        groups = b[2] if len(b) == 4 else 1
        own = {"a": (H,) if delta else (B, T, H), "b": (B, T, groups, state)}
    return {**own, "c": own["b"], "state": (B, *x[2:], state), "delta": x[:3]}


def _check_dtypes(dtypes: dict[str, str]) -> None:
    wrong = {name: kind for name, kind in dtypes.items() if not kind.startswith(("float", "bfloat"))}
    if wrong:
        raise UsageError(f"{', '.join(f'{n} is {k}' for n, k in wrong.items())}; legal: floating numbers")
    tokens = {dtypes[name] for name in ("b", "c", "x")}
    if len(tokens) > 1:
        told = ", ".join(f"{name} {dtypes[name]}" for name in ("b", "c", "x"))
        raise UsageError(f"b, c and x have one dtype, not {told}; a, delta and state may be wider, as float32 is")


def _check_chunk(chunk: Any) -> int:
    try:
        size = 0 if isinstance(chunk, bool) else operator.index(chunk)
    except TypeError:
        size = 0
    if size < 1:
        raise UsageError(f"chunk is a whole number of tokens, at least 1, or None for about √length; not {chunk!r}")
    return size


def starts_of(lengths: Sequence[int], length: int) -> list[bool]:
    """For every token, whether a packed sequence begins there; False for the first token.

    Args:
        lengths: tokens of each sequence, in order.
        length: tokens of all sequences together.

    Raises:
        UsageError: `lengths` are not whole numbers of at least 1 that add up to `length`.
    """
    try:
        sizes = [operator.index(size) for size in lengths]
    except TypeError:
        raise UsageError(
            f"lengths are whole numbers, such as (5, 3), not {lengths!r}; where they are traced or differ between rows "
            "of the batch, pass segments=, the number of the sequence that each token belongs to"
        ) from None
    if any(size < 1 for size in sizes) or sum(sizes) != length:
        raise UsageError(
            f"lengths {tuple(sizes)} add up to {sum(sizes)}; legal: numbers of at least 1 that add up to {length}, the "
            "length of x; pad the last one or cut x"
        )
    first = [False] * length
    for place in range(1, len(sizes)):
        first[sum(sizes[:place])] = True
    return first


def check_segments(segments: Shape, kind: str, x: Shape) -> None:
    """Check the shape and dtype of `segments`.

    Raises:
        UsageError: they are not integers of shape (length,) or (batch, length).
    """
    if segments not in (x[1:2], x[:2]) or "int" not in kind:
        raise UsageError(f"segments are {kind} {segments}; legal: integers (length,) or (batch, length), here {x[:2]}")


def prepared(
    xp: Any, given: How, tokens: dict[str, Any], shared: Any, first: Any, repeated: Any, scaled: Any = None
) -> tuple[Any, Any]:
    """The operands of the recurrence for a chunk: decays, and what each token adds to the state.

    Args:
        xp: Array API.
        given: how the call is computed.
        tokens: b, x and either a or delta of c tokens, the time first, in at least float32.
        shared: a, if there is a delta; else None.
        first: (c, B), whether a sequence begins at the token; None: no sequence does.
        repeated: (array, times) -> the array with each entry of its last axis but one repeated.
        scaled: (delta, a) -> delta·a, (c, B, channels, N) or (c, B, heads); None: by broadcasting.

    Returns:
        Decays (c, B, …), with an axis of 1 if one decay is for several states; and b x, (c, B, …, N).
    """
    x, b = tokens["x"], tokens["b"]
    b = repeated(b, given.repeat) if given.repeat else b
    decay: Any
    if shared is None:
        decay = tokens["a"]
    else:
        delta = tokens["delta"]
        if scaled is not None:
            decay = xp.exp(scaled(delta, shared))
        else:
            decay = xp.exp(delta * shared if given.repeat else delta[..., None] * shared)
        x = x * (delta[..., None] if given.repeat else delta)
    if given.repeat:
        decay = decay[..., None, None]
    if first is not None:
        begins = xp.reshape(first, (*first.shape, *(1,) * (decay.ndim - 2)))
        decay = xp.where(begins, xp.zeros_like(decay), decay)
    return decay, xp.matmul(x[..., None], b[..., None, :])  # its transposes are products of matrices, too


def read(xp: Any, given: How, h: Any, c: Any, repeated: Any) -> Any:
    """y_t = c_t·h_t of states h (c, B, …, N)."""
    c = repeated(c, given.repeat) if given.repeat else c
    return xp.matmul(h, c[..., None])[..., 0]
