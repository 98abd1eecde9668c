"""Double words: a number with twice the digits, as the unevaluated sum of two floats (Dekker, 1971).

Each step of an optimiser that is taken back multiplies rounding errors by 1/μ. In double words the errors are u² at
first, with u the unit roundoff, so log2(1/u) bits can be lost before a float loses its first bit.

A word is ``(high, low)``, two arrays of one shape and dtype with ``high = fl(high + low)``. In exact arithmetic every
``low`` is 0, and high follows the plain formula.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradgate.references.backends import leaves, namespace, tree_map
from gradgate.references.contract import Tree

Word = tuple[Any, Any]
"""high and low."""
Words = tuple[Tree, Tree]
"""A tree of words: the tree of the highs and that of the lows."""
SPLITS = {"float64": 2.0**27 + 1, "float32": 2.0**12 + 1}
"""Dtype -> Veltkamp's constant, which cuts a float into two halves of its digits."""


def fixed(backend: str, x: Tree) -> Tree:
    """`x`, rounded. In JAX this is a barrier: no compiler then fuses a product with a sum that uses it.

    A fused multiply-add rounds once, but the error terms below, and a step that is taken back, assume two roundings.
    """
    if backend != "jax":
        return x
    import jax

    return jax.lax.optimization_barrier(x)


def read(problem: Any, grad: Tree) -> Tree:
    """What a problem's optimiser reads of a gradient, rounded in the same way forward and back."""
    found = problem.read(grad)
    return grad if found is grad else fixed(problem.backend, found)


def widened(backend: str, tree: Tree) -> Tree:
    """`tree` with bfloat16 leaves cast to float32, which can hold the error terms of products."""
    xp = namespace(backend)
    return tree_map(lambda leaf: xp.astype(leaf, xp.float32) if dtype_of(leaf) == "bfloat16" else leaf, tree)


def narrowed(backend: str, tree: Tree, known: Tree) -> Tree:
    """`tree` with each leaf cast to the dtype of the same leaf of `known`."""
    xp, dtype = namespace(backend), leaves(known)[0].dtype
    return tree_map(lambda leaf: xp.astype(leaf, dtype), tree)


def start(backend: str, tree: Tree) -> Words:
    """`tree`, widened, as words."""
    high = widened(backend, tree)
    return high, tree_map(namespace(backend).zeros_like, high)


def mapped(function: Callable[..., Sequence[Any]], number: int, *trees: Tree) -> tuple[Tree, ...]:
    """Apply `function`, which returns `number` results, leaf by leaf; returns `number` trees."""
    found: list[Sequence[Any]] = []
    tree_map(lambda *parts: found.append(function(*parts)), *trees)

    def part(place: int) -> Tree:
        each = iter(found)
        return tree_map(lambda _: next(each)[place], trees[0])

    return tuple(part(place) for place in range(number))


def sum_of(a: Any, b: Any) -> Word:
    """Sum of two floats a and b, without an error (Knuth)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def product_of(backend: str, a: Any, b: Any) -> Word:
    """a·b of two floats without an error (Dekker), unless it over- or underflows."""
    p = fixed(backend, a * b)
    (a1, a2), (b1, b2) = halves(backend, a), halves(backend, b)
    return p, ((a1 * b1 - p) + a1 * b2 + a2 * b1) + a2 * b2


def plus(word: Word, x: Any) -> Word:
    """Sum of a word and a float x."""
    s, t = sum_of(word[0], x)
    return _normal(s, t + word[1])


def plus_word(word: Word, other: Word) -> Word:
    """Sum of two words, with an error of about 2u² times the larger."""
    s, t = sum_of(word[0], other[0])
    return _normal(s, t + (word[1] + other[1]))


def minus(word: Word) -> Word:
    """−word."""
    return -word[0], -word[1]


def times(backend: str, word: Word, x: Any) -> Word:
    """word·x, x a float."""
    p, e = product_of(backend, word[0], x)
    return _normal(p, e + word[1] * x)


def over(backend: str, word: Word, x: Any) -> Word:
    """word/x, x a float: the quotient, plus the quotient of the remainder."""
    q = fixed(backend, word[0] / x)
    p, e = product_of(backend, q, x)
    return _normal(q, (((word[0] - p) - e) + word[1]) / x)


def over_rest(backend: str, word: Word, share: Any) -> Word:
    """word/(1 − share), share a float below 1; 1 − share has an error where it is rounded, so it is a word here."""
    one = fixed(backend, namespace(backend).ones_like(share))  # XLA takes (1 − share) − 1 to be −share
    x, low = sum_of(one, -share)
    q = fixed(backend, word[0] / x)
    p, e = product_of(backend, q, x)
    return _normal(q, ((((word[0] - p) - e) + word[1]) - q * low) / x)


def _normal(high: Any, low: Any) -> Word:
    """The same sum as a word; |low| must be at most |high|."""
    s = high + low
    return s, low - (s - high)


def halves(backend: str, x: Any) -> Word:
    """The float x as a sum of two floats of half the digits each (Veltkamp)."""
    c = fixed(backend, x * SPLITS[dtype_of(x)])
    high = c - (c - x)
    return high, x - high


def dtype_of(leaf: Any) -> str:
    """The name of a dtype, such as ``float32``."""
    return str(leaf.dtype).removeprefix("torch.")
