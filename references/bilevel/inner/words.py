"""Words: a number with n times the digits, as the unevaluated sum of n floats (Dekker, 1971; Priest, 1991).

Each step of an optimiser that is taken back multiplies rounding errors by 1/μ. In words of n parts the errors are uⁿ at
first, with u the unit roundoff, so (n − 1)·log2(1/u) bits can be lost before a float loses its first bit.

A word is a tuple of n arrays of one shape and dtype, the largest first, where each is the sum of itself and those after
it, rounded. In exact arithmetic all but the first are 0, and the first follows the plain formula.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradgate.references.backends import leaves, namespace, tree_map
from gradgate.references.contract import Tree

Word = tuple[Any, ...]
"""The parts, the largest first."""
Words = tuple[Tree, ...]
"""A tree of words: the trees of its parts."""
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


def start(backend: str, tree: Tree, parts: int) -> Words:
    """`tree`, widened, as words of that many parts."""
    high = widened(backend, tree)
    return (high, *(tree_map(namespace(backend).zeros_like, high) for _ in range(parts - 1)))


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
    """a·b of two floats without an error, as a word of two parts (Dekker), unless it over- or underflows."""
    p = fixed(backend, a * b)
    (a1, a2), (b1, b2) = halves(backend, a), halves(backend, b)
    return p, ((a1 * b1 - p) + a1 * b2 + a2 * b1) + a2 * b2


def plus(word: Word, *others: Word) -> Word:
    """Sum of words; the first has at least as many parts as each other. The error is a few uⁿ times the largest."""
    return _gathered([[one[k] for one in (word, *others) if k < len(one)] for k in range(len(word))])


def minus(word: Word) -> Word:
    """−word."""
    return tuple(-part for part in word)


def times(backend: str, word: Word, x: Any) -> Word:
    """word·x, x a float."""
    *first, last = word
    products = [*(product_of(backend, part, x) for part in first), (last * x,)]
    rows = [[product[0]] for product in products]
    for row, product in zip(rows[1:], products, strict=False):
        row.append(product[1])
    return _gathered(rows)


def over(backend: str, word: Word, divisor: Word) -> Word:
    """word/divisor, a divisor of one or two parts: long division, one quotient for each part of the word."""
    x, *low = divisor
    q = fixed(backend, word[0] / x)
    if len(word) == 1:
        return (q,)
    p, e = product_of(backend, q, x)
    less = [product_of(backend, q, -y) if len(word) > 2 else (q * -y,) for y in low]
    return _normal(q, *over(backend, plus(word[1:], ((word[0] - p) - e,), *less), divisor))


def over_rest(backend: str, word: Word, share: Any) -> Word:
    """word/(1 − share), share a float below 1; 1 − share has an error where it is rounded, so it is a word here."""
    one = fixed(backend, namespace(backend).ones_like(share))  # XLA takes (1 − share) − 1 to be −share
    return over(backend, word, sum_of(one, -share))


def _gathered(rows: Sequence[Sequence[Any]]) -> Word:
    """The sum of all floats in the rows, where those of row k are of the size uᵏ; a word of as many parts as rows."""
    sums: list[Any] = []
    errors: list[Any] = []
    for row in rows[:-1]:
        (total, *terms), found = row, []
        for term in (*terms, *errors):
            total, error = sum_of(total, term)
            found.append(error)
        sums.append(total)
        errors = found
    return _normal(*sums, sum((*rows[-1][1:], *errors), rows[-1][0]))


def _normal(*parts: Any) -> Word:
    """The same sum as a word; no part may be larger than the one before it."""
    found = list(parts)
    for k in reversed(range(len(found) - 1)):
        s = found[k] + found[k + 1]
        found[k], found[k + 1] = s, found[k + 1] - (s - found[k])
    return (found[0], *(_normal(*found[1:]) if len(found) > 2 else found[1:]))


def halves(backend: str, x: Any) -> Word:
    """The float x as a sum of two floats of half the digits each (Veltkamp)."""
    c = fixed(backend, x * SPLITS[dtype_of(x)])
    high = c - (c - x)
    return high, x - high


def dtype_of(leaf: Any) -> str:
    """The name of a dtype, such as ``float32``."""
    return str(leaf.dtype).removeprefix("torch.")
