"""Arrays of balls: NumPy object arrays of python-flint's `arb`, or `acb` where numbers are complex.

A ball is a midpoint of the requested number of digits, and a radius. Every operation widens the radius by all that it
may have rounded, so the true result lies in the ball. Two formulas are equal up to the size of their balls, and
different if their balls do not overlap: there is no tolerance to choose.

NumPy does the structure (reshape, transpose, broadcast, index) and calls the elements' own operators for + − * /. For
arrays of shape () it returns the bare element, and `whole` makes it an array again. This module has the rest: making
balls, functions of one ball, comparisons, reductions, products of matrices.
"""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import flint
import numpy as np
from flint import acb, arb

DIGITS = 60
"""Decimal digits of the midpoints by default."""
PRODUCTS = 64
"""From this number of multiplications on, a product of matrices is worth the conversion to flint's own matrices."""


class Unknown(Exception):
    """A program has an operation that the evaluator does not know.

    Cause: a primitive, an ATen operation or a call into foreign code without a rule here. Remedy: the message names it;
    nothing is evaluated in floats in its place.
    """


class Undecided(Exception):
    """A ball does not decide a comparison.

    Cause: the numbers are equal, or nearer to each other than their radii. Remedy: more digits; if no number of digits
    decides, it is a tie, and the function is judged on another problem.
    """


@contextlib.contextmanager
def digits(number: int) -> Iterator[None]:
    """The scope in which midpoints have `number` decimal digits."""
    before = flint.ctx.dps
    flint.ctx.dps = number
    try:
        yield
    finally:
        flint.ctx.dps = before


@dataclass
class Floats:
    """What the floats of a program stand for, within `standing`.

    Attributes:
        moved: |float| -> the ball that it stands for.
        seen: |float| of every float that became a ball.
    """

    moved: Mapping[float, Any]
    seen: set[float] = field(default_factory=set)

    def ball(self, number: float) -> Any:
        """The ball of a finite float."""
        size = abs(number)
        self.seen.add(size)
        found = self.moved.get(size)
        if found is None:
            return arb(number)
        return found if number > 0 else -found


_FLOATS: list[Floats] = []
"""The innermost scope of `standing` is the last."""


@contextlib.contextmanager
def standing(moved: Mapping[float, Any]) -> Iterator[Floats]:
    """The scope in which floats stand for other balls than themselves, and in which it is noted which floats occur.

    A program that was compiled before (`on_jax.Program`) is compiled again within it.
    """
    _FLOATS.append(Floats(moved))
    try:
        yield _FLOATS[-1]
    finally:
        _FLOATS.pop()


def standing_now() -> bool:
    """Whether a scope of `standing` is open."""
    return bool(_FLOATS)


def _ball(value: Any) -> Any:
    number = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, complex):
        return acb(_ball(number.real), _ball(number.imag)) if _FLOATS else acb(number)
    if isinstance(number, float):
        if math.isinf(number):  # arb(inf) would be the ball that holds every number
            return arb.pos_inf() if number > 0 else arb.neg_inf()
        return _FLOATS[-1].ball(number) if _FLOATS else arb(number)
    return arb(int(number) if isinstance(number, bool) else number)


_BALLS = np.frompyfunc(_ball, 1, 1)


def exact(array: Any) -> Any:
    """An array of floats, complex numbers, integers or booleans as balls of radius zero; balls stay as they are.

    Args:
        array: anything `numpy.asarray` takes; bfloat16 and narrower floats too.

    Returns:
        An object array of the same shape.
    """
    plain = np.asarray(array)
    if plain.dtype == object:
        return plain
    if not plain.size:
        return np.empty(plain.shape, object)
    if plain.dtype.kind in "bui":
        plain = whole(plain.astype(object))
    elif plain.dtype.kind != "c":
        plain = plain.astype(np.float64)
    return whole(_BALLS(plain))


def whole(value: Any) -> Any:
    """`value` as an array: NumPy's functions return a bare element for shape ()."""
    if isinstance(value, np.ndarray):
        return value
    boxed = np.empty((), object)
    boxed[()] = value
    return boxed


def full(shape: tuple[int, ...], number: Any) -> Any:
    """An array of one number; the elements are one object, which is safe because balls never change."""
    filled = np.empty(shape, object)
    filled[...] = _ball(number)
    return filled


def is_balls(value: Any) -> bool:
    """Whether a value is an array of balls rather than of integers or booleans."""
    return isinstance(value, np.ndarray) and value.dtype == object


def elementwise(function: Callable[..., Any], *arrays: Any) -> Any:
    """`function` of corresponding elements, broadcast, as an array."""
    return whole(np.frompyfunc(function, len(arrays), 1)(*arrays))


def is_complex(array: Any) -> bool:
    """Whether the elements are complex; an empty array counts as real."""
    return bool(array.size) and isinstance(array.flat[0], acb)


def as_complex(array: Any) -> Any:
    """The same numbers as complex balls."""
    return elementwise(acb, array)


def floats(array: Any) -> Any:
    """Midpoints as float64, or complex128: for showing and for choosing, never for judging."""
    if is_complex(array):
        return np.asarray(elementwise(complex, array), np.complex128)
    return np.asarray(elementwise(nearest_float, array), np.float64)


def nearest_float(ball: Any) -> float:
    """The midpoint as a float, infinite where it is too large for one."""
    try:
        return float(ball)
    except (ValueError, OverflowError):
        middle = ball.mid()
        return math.inf if middle > 0 else -math.inf if middle < 0 else math.nan


ZERO, HALF = arb(0), arb(0.5)


def sign(ball: Any) -> Any:
    """−1, 0 or 1.

    Raises:
        Undecided: the ball contains zero and other numbers.
    """
    if ball.is_nan():
        return ball
    side = 0 if ball.is_zero() else 1 if ball > 0 else -1 if ball < 0 else 2
    if side == 2:
        raise Undecided("the sign of a number whose ball contains zero")
    if _COMPARED:
        _COMPARED[-1].append((ball, ZERO, side))
    return arb(side)


def absolute(ball: Any) -> Any:
    """|x|; of a complex ball its modulus, a real one."""
    if _COMPARED and isinstance(ball, arb):
        _noted(ball, ZERO)
    return abs(ball)


def logistic(ball: Any) -> Any:
    """1 / (1 + e⁻ˣ)."""
    return 1 / (1 + (-ball).exp())


def cbrt(ball: Any) -> Any:
    """The real cube root, also of negative numbers."""
    return -((-ball).root(3)) if ball < 0 else ball.root(3)


def exp2(ball: Any) -> Any:
    """2ˣ."""
    return arb(2) ** ball


def rounded(ball: Any) -> Any:
    """The nearest whole number, halves to even.

    Raises:
        Undecided: the ball contains a half and other numbers.
    """
    low = (ball + HALF).floor()
    if not low.is_exact():
        raise Undecided("which whole number is nearest")
    if _COMPARED:
        _noted(ball, ball.floor() + HALF)
    if (ball + HALF - low).is_zero() and _integer(low) % 2:
        return low - 1
    return low


def _exact_only(name: str) -> Callable[[Any], Any]:
    def step(ball: Any) -> Any:
        result = getattr(ball, name)()
        if result.is_exact():
            if _COMPARED:
                _noted(ball, (ball + HALF).floor())
            return result
        raise Undecided(f"{name} of a number whose ball contains a whole number")

    return step


UNARY: dict[str, Callable[[Any], Any]] = {
    **{name: operator.methodcaller(name) for name in (
        "exp", "expm1", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos",
        "atan", "asinh", "acosh", "atanh", "erf", "erfc", "digamma",
    )},
    "log": lambda ball: arb.neg_inf() if ball.is_zero() else ball.log(),
    "lgamma": lambda ball: abs(ball.gamma()).log(),
    "erf_inv": operator.methodcaller("erfinv"),
    "neg": operator.neg,
    "abs": absolute,
    "sign": sign,
    "logistic": logistic,
    "cbrt": cbrt,
    "exp2": exp2,
    "square": lambda ball: ball * ball,
    "floor": _exact_only("floor"),
    "ceil": _exact_only("ceil"),
    "round": rounded,
}  # fmt: skip
"""Name -> function of one ball. The names are JAX's where JAX has one."""


def unary(name: str, array: Any) -> Any:
    """The function of that name in `UNARY`, elementwise."""
    return elementwise(UNARY[name], array)


def _integer(ball: Any) -> int:
    """An exact ball that is a whole number, as an integer."""
    return int(ball.unique_fmpz())


def power(base: Any, exponent: Any) -> Any:
    """Base ** exponent of one ball each; a whole exponent is exact for negative bases, too."""
    if isinstance(exponent, arb) and exponent.is_exact() and exponent.is_integer():
        number = _integer(exponent)
        if abs(number) < 2**20:
            if number > 0 and isinstance(base, arb) and base.mid().is_zero() and not base.is_zero():
                return arb(0, base.abs_upper() ** number)  # Arb's power of a ball around 0 is NaN
            return base**number
    if isinstance(base, arb) and base.is_zero() and exponent > 0:
        return arb(0)
    return base**exponent


_COMPARED: list[list[tuple[Any, Any, int]]] = []
"""The innermost scope of `comparing` is the last."""


@contextlib.contextmanager
def comparing() -> Iterator[list[tuple[Any, Any, int]]]:
    """The scope that lists every comparison of two balls: the two, and −1, 0, 1 or 2 as `_decided` has it."""
    _COMPARED.append([])
    try:
        yield _COMPARED[-1]
    finally:
        _COMPARED.pop()


def compared() -> bool:
    """Whether comparisons are listed that nobody has taken from the list yet."""
    return bool(_COMPARED and _COMPARED[-1])


def _noted(one: Any, other: Any) -> None:
    """List a comparison that an operation does not need to decide, such as |x| that of x with 0, if the balls do."""
    with contextlib.suppress(Undecided):
        _COMPARED[-1].append((one, other, _side(one, other, "")))


def divided(divisor: Any) -> None:
    """List a division by exactly zero."""
    if _COMPARED:
        _COMPARED[-1].append((divisor, ZERO, 0))


def selected(mask: Any) -> None:
    """List a choice by booleans: that some are true as 1, that some are false as −1, without numbers."""
    if _COMPARED:
        truth = np.asarray(mask, bool)
        _COMPARED[-1].extend((None, None, side) for side, taken in ((1, truth.any()), (-1, not truth.all())) if taken)


def _compared(one: Any, other: Any, what: str) -> int:
    """`_decided` for a comparison that a program makes, and not an operation in its own search."""
    if _COMPARED and one is other:
        _COMPARED[-1].append((one, other, _side(one, other, what)))
    return _decided(one, other, what)


def _decided(one: Any, other: Any, what: str) -> int:
    """−1, 0 or 1 as one is below, equal to or above other; 2 if either is not a number."""
    side = _side(one, other, what)
    if _COMPARED and one is not other:  # a search that meets its own best number again decides nothing
        _COMPARED[-1].append((one, other, side))
    return side


def _side(one: Any, other: Any, what: str) -> int:
    if one is other:
        return 2 if one.is_nan() else 0
    if one < other:
        return -1
    if one > other:
        return 1
    if one.is_nan() or other.is_nan():
        return 2
    if one.is_exact() and other.is_exact():
        return 0
    raise Undecided(f"whether a number is {what} another")


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "lt": lambda a, b: _compared(a, b, "less than") == -1,
    "le": lambda a, b: _compared(a, b, "at most") in (-1, 0),
    "gt": lambda a, b: _compared(a, b, "greater than") == 1,
    "ge": lambda a, b: _compared(a, b, "at least") in (0, 1),
    "eq": lambda a, b: _compared(a, b, "equal to") == 0,
    "ne": lambda a, b: _compared(a, b, "unequal to") != 0,
}


def compare(name: str, one: Any, other: Any) -> Any:
    """lt, le, gt, ge, eq or ne of two real arrays, broadcast, as booleans.

    An element compared with itself, the same object, is equal to itself however wide its ball is: so a maximum can be
    found again among the numbers it was taken from.

    Raises:
        Undecided: the balls overlap and are not both points.
    """
    return np.asarray(elementwise(_COMPARISONS[name], one, other), bool)


def _larger(one: Any, other: Any) -> Any:
    place = _decided(one, other, "greater than")
    return (other if other.is_nan() else one) if place == 2 else other if place == -1 else one


def _smaller(one: Any, other: Any) -> Any:
    place = _decided(one, other, "less than")
    return (other if other.is_nan() else one) if place == 2 else other if place == 1 else one


def maximum(one: Any, other: Any) -> Any:
    """The larger of corresponding elements, one of the two objects themselves; NaN if either is.

    Raises:
        Undecided: as for `compare`.
    """
    return elementwise(_larger, one, other)


def minimum(one: Any, other: Any) -> Any:
    """The smaller of corresponding elements, as `maximum`."""
    return elementwise(_smaller, one, other)


def total(array: Any, axes: tuple[int, ...]) -> Any:
    """Sum over axes."""
    return whole(np.add.reduce(array, axis=axes, initial=arb(0))) if axes else array


def product(array: Any, axes: tuple[int, ...]) -> Any:
    """Product over axes."""
    return whole(np.multiply.reduce(array, axis=axes, initial=arb(1))) if axes else array


def extreme(array: Any, axes: tuple[int, ...], largest: bool) -> Any:
    """Maximum or minimum over axes; infinite over none.

    Raises:
        Undecided: as for `compare`.
    """
    pick = np.frompyfunc(_larger if largest else _smaller, 2, 1)
    start = arb.neg_inf() if largest else arb.pos_inf()
    for axis in sorted((a % array.ndim for a in axes), reverse=True):
        if array.shape[axis]:
            array = whole(pick.reduce(array, axis=axis))
        else:
            array = full(array.shape[:axis] + array.shape[axis + 1 :], start)
    return array


def running(function: Callable[[Any, Any], Any], array: Any, axis: int, backwards: bool = False) -> Any:
    """The running sum, product or extreme along an axis, by a `function` of two balls."""
    turned = np.flip(array, axis) if backwards else array
    result = np.frompyfunc(function, 2, 1).accumulate(turned, axis=axis, dtype=object) if turned.size else turned
    return np.flip(result, axis) if backwards else result


def matmul(one: Any, other: Any) -> Any:
    """Product of (…, m, k) and (…, k, n) arrays of the same leading shape."""
    lead, (rows, inner), columns = one.shape[:-2], one.shape[-2:], other.shape[-1]
    shape = (*lead, rows, columns)
    if not inner or not math.prod(shape):
        return full(shape, 0)
    if rows * inner * columns < PRODUCTS or is_complex(one) or is_complex(other):
        return np.matmul(one, other)
    result = np.empty((math.prod(lead), rows, columns), object)
    pairs = zip(one.reshape(-1, rows, inner), other.reshape(-1, inner, columns), strict=True)
    for place, (left, right) in enumerate(pairs):
        entries = (_matrix(left) * _matrix(right)).entries()
        result[place].ravel()[:] = entries
    return result.reshape(shape)


def _matrix(array: Any, kind: Any = flint.arb_mat) -> Any:
    return kind(*array.shape, array.ravel().tolist())


def from_matrix(matrix: Any) -> Any:
    """A flint matrix as an array."""
    result = np.empty(matrix.nrows() * matrix.ncols(), object)
    result[:] = matrix.entries()
    return result.reshape(matrix.nrows(), matrix.ncols())


def contract(one: Any, other: Any, contracted: tuple[Any, Any], batched: tuple[Any, Any]) -> Any:
    """The general product: sum over contracted axes, batched axes in front, then those left of one and of other.

    Args:
        contracted: axes of `one`, and the corresponding axes of `other`, that are summed over.
        batched: axes of each that run together.
    """
    (sum_one, sum_other), (lead_one, lead_other) = contracted, batched
    free_one = [axis for axis in range(one.ndim) if axis not in (*sum_one, *lead_one)]
    free_other = [axis for axis in range(other.ndim) if axis not in (*sum_other, *lead_other)]
    lead = tuple(one.shape[axis] for axis in lead_one)
    inner = math.prod(one.shape[axis] for axis in sum_one)
    rows, columns = tuple(one.shape[a] for a in free_one), tuple(other.shape[a] for a in free_other)
    left = one.transpose([*lead_one, *free_one, *sum_one]).reshape(*lead, math.prod(rows), inner)
    right = other.transpose([*lead_other, *sum_other, *free_other]).reshape(*lead, inner, math.prod(columns))
    return matmul(left, right).reshape(*lead, *rows, *columns)


def solve(matrix: Any, right: Any) -> Any:
    """X with matrix · X = right, for (n, n) and (n, k) arrays, with a rigorous bound.

    Raises:
        Undecided: the balls of the matrix contain a singular one.
    """
    if not matrix.shape[0] or not right.shape[1]:
        return right
    kind = flint.acb_mat if is_complex(matrix) or is_complex(right) else flint.arb_mat
    try:
        return from_matrix(_matrix(matrix, kind).solve(_matrix(right, kind)))
    except ZeroDivisionError:
        raise Undecided("whether a matrix is singular") from None
