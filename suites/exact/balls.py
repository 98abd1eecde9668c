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
import functools
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


class Truth:
    """What a comparison of wide balls says: whether it is true, false, or either, within `wide`.

    Whatever needs to know which raises Undecided, so nothing goes on with one of the two by mistake.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, *ways: bool) -> None:
        self.ways = frozenset(ways)

    def __bool__(self) -> bool:
        if len(self.ways) > 1:
            raise Undecided("a comparison, for all inputs")
        return next(iter(self.ways))

    def _with(self, other: Any, function: Callable[[bool, bool], bool]) -> Truth:
        ways = other.ways if isinstance(other, Truth) else {bool(other)}
        return Truth(*(function(one, two) for one in self.ways for two in ways))

    def __and__(self, other: Any) -> Truth:
        return self._with(other, operator.and_)

    def __or__(self, other: Any) -> Truth:
        return self._with(other, operator.or_)

    def __xor__(self, other: Any) -> Truth:
        return self._with(other, operator.xor)

    def __invert__(self) -> Truth:
        return Truth(*(not way for way in self.ways))

    def __eq__(self, other: object) -> bool:
        raise Undecided("a comparison, for all inputs")

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__


_WIDE: list[None] = []
DOUBLED = 150
"""Up to two to the power of this, balls of wide numbers say exactly that none is negative."""


@contextlib.contextmanager
def wide() -> Iterator[None]:
    """The scope in which balls are so wide that comparisons of them may be true and false (`exact.wide`).

    Comparisons then give arrays of `Truth`; extremes, choices, absolute values and signs give balls that hold every
    number that they may be. Whatever else a ball does not decide raises Undecided, as always.
    """
    _WIDE.append(None)
    try:
        yield
    finally:
        _WIDE.pop()


def is_truth(array: Any) -> bool:
    """Whether an array holds comparisons that wide balls do not decide."""
    return (
        isinstance(array, np.ndarray)
        and array.dtype == object
        and bool(array.size)
        and isinstance(array.flat[0], Truth)
    )


def booleans(found: Any) -> Any:
    """What comparisons gave, as an array of booleans, or of `Truth` if one of them was not decided."""
    if not _WIDE or not any(isinstance(one, Truth) for one in whole(found).ravel().tolist()):
        return np.asarray(found, bool)
    return elementwise(lambda one: one if isinstance(one, Truth) else Truth(bool(one)), found)


def choose(mask: Any, one: Any, other: Any) -> Any:
    """`one` where the mask is true, `other` where it is false, and a ball that holds both where it may be either."""
    return elementwise(_chosen, mask, one, other) if is_truth(mask) else np.where(mask, one, other)


def _chosen(mask: Any, one: Any, other: Any) -> Any:
    if not isinstance(mask, Truth) or len(mask.ways) == 1:
        return one if mask else other
    if not (isinstance(one, arb) and isinstance(other, arb)):
        raise Undecided("a choice, for all inputs")
    return one if one is other else one.union(other)


def times(one: Any, other: Any) -> Any:
    """The product; of wide balls, that of a number and itself is not negative."""
    return elementwise(_product, one, other) if _WIDE else one * other


def _product(one: Any, other: Any) -> Any:
    if one is other:
        return _squared(one)
    if isinstance(one, arb) and isinstance(other, arb) and one > 0 and other > 0:
        return (one.lower() * other.lower()).union(one.upper() * other.upper())
    return _positive(one * other, one, other)


def _squared(ball: Any) -> Any:
    if not _WIDE or not isinstance(ball, arb) or ball.is_exact():
        return ball * ball
    ends = ball.lower() ** 2, ball.upper() ** 2
    return _up_to(max(ends)) if ball.contains(0) else ends[0].union(ends[1])


def _rising(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that rises everywhere; of a wide ball, from its values at the ends."""

    def rising(ball: Any) -> Any:
        if not _WIDE or not isinstance(ball, arb) or ball.is_exact() or not ball.is_finite():
            return function(ball)
        least = function(ball.lower())
        return _positive(least.union(function(ball.upper())), least)

    return rising


def between(low: float, high: float) -> Any:
    """A new ball of all numbers from `low` to `high`."""
    return _up_to(arb(high)) if low == 0 else arb(low).union(arb(high))


def is_wide() -> bool:
    """Whether a scope of `wide` is open."""
    return bool(_WIDE)


@functools.cache
def _from_zero(power: int) -> Any:
    """The numbers from 0 to 2 ** power. Arb rounds radii upwards, but that of a doubled ball is exact."""
    if power > 1:
        return _from_zero(power - 1) + _from_zero(power - 1)
    return arb(0, 10**30).sin() + 1  # every sine: −1 … 1, exactly


def _up_to(most: Any) -> Any:
    """A new ball of the numbers from 0 to `most`, or to a power of two above it, so that no number is negative."""
    if not most.is_finite():
        return most
    mantissa, exponent = most.abs_upper().man_exp()
    power = max(1, int(exponent) + (int(mantissa) - 1).bit_length())
    return _from_zero(power) + 0 if power <= DOUBLED else most


def _positive(result: Any, *given: Any) -> Any:
    """The result of balls without negative numbers, which has none, either; its radius may say so by rounding."""
    if not isinstance(result, arb) or result >= 0 or not all(one >= 0 for one in given):
        return result
    return _up_to(result.upper()) if result.is_finite() else result


def adding() -> np.ufunc:
    """The function of NumPy that adds two balls, to reduce an array by."""
    return np.frompyfunc(_sum, 2, 1, identity=0) if _WIDE else np.add


def plus(one: Any, other: Any) -> Any:
    """The sum; of wide balls without negative numbers, one without negative numbers."""
    return whole(adding()(one, other)) if _WIDE else one + other


def _sum(one: Any, other: Any) -> Any:
    return _positive(one + other, one, other)


def _possible(one: Any, other: Any) -> set[int]:
    """The sides that a comparison of wide balls may have, each of which is listed as a comparison."""
    if one is other and not one.is_nan():
        found = {0}
    elif one.is_nan() or other.is_nan():
        found = {-1, 0, 1, 2}
    else:
        found = set() if one >= other else {-1}
        found |= set() if one <= other else {1}
        found |= {0} if one.overlaps(other) else set()
    if _COMPARED:
        _COMPARED[-1].extend((one, other, side) for side in found)
    return found


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


def ball(value: Any) -> Any:
    """The ball of one number, of Python or of NumPy."""
    number = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, complex):
        return acb(ball(number.real), ball(number.imag)) if _FLOATS else acb(number)
    if isinstance(number, float):
        if math.isinf(number):  # arb(inf) would be the ball that holds every number
            return arb.pos_inf() if number > 0 else arb.neg_inf()
        return _FLOATS[-1].ball(number) if _FLOATS else arb(number)
    return arb(int(number) if isinstance(number, bool) else number)


_BALLS = np.frompyfunc(ball, 1, 1)


def exact(array: Any) -> Any:
    """An array of floats, complex numbers, integers or booleans as balls of radius zero; balls stay as they are.

    Args:
        array: anything `numpy.asarray` takes; bfloat16 and narrower floats too.

    Returns:
        An object array of the same shape.
    """
    plain = np.asarray(array)
    if plain.dtype.kind == "O":
        return elementwise(lambda one: _chosen(one, arb(1), arb(0)), plain) if _WIDE and is_truth(plain) else plain
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
    filled[...] = ball(number)
    return filled


def is_balls(value: Any) -> bool:
    """Whether a value is an array of balls rather than of integers or booleans."""
    return isinstance(value, np.ndarray) and value.dtype.kind == "O"


_of_elements = functools.lru_cache(maxsize=256)(np.frompyfunc)
"""NumPy's function of arrays for a function of elements: to make one takes longer than to call it."""


def elementwise(function: Callable[..., Any], *arrays: Any) -> Any:
    """`function` of corresponding elements, broadcast, as an array."""
    return whole(_of_elements(function, len(arrays), 1)(*arrays))


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


def signs(ball: Any) -> Any:
    """`sign`; of a wide ball, a ball that holds every sign that its numbers have."""
    if not _WIDE or ball.is_nan():
        return sign(ball)
    found = _possible(ball, ZERO)
    return arb(min(found)).union(arb(max(found)))


def absolute(ball: Any) -> Any:
    """|x|; of a complex ball its modulus, a real one."""
    if _WIDE and isinstance(ball, arb):
        return _up_to(ball.abs_upper()) if len(_possible(ball, ZERO)) == 3 else abs(ball)
    if _COMPARED and isinstance(ball, arb):
        _noted(ball, ZERO)
    return abs(ball)


exponential, tanh = _rising(operator.methodcaller("exp")), _rising(operator.methodcaller("tanh"))
logistic = _rising(lambda ball: 1 / (1 + (-ball).exp()))


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
            noted_whole(ball)
            return result
        raise Undecided(f"{name} of a number whose ball contains a whole number")

    return step


UNARY: dict[str, Callable[[Any], Any]] = {
    **{
        name: operator.methodcaller(name)
        for name in (
            "expm1",
            "log1p",
            "sqrt",
            "rsqrt",
            "sin",
            "cos",
            "tan",
            "sinh",
            "cosh",
            "asin",
            "acos",
            "atan",
            "asinh",
            "acosh",
            "atanh",
            "erf",
            "erfc",
            "digamma",
        )
    },
    "exp": exponential,
    "tanh": tanh,
    "log": lambda ball: arb.neg_inf() if ball.is_zero() else ball.log(),
    "lgamma": lambda ball: abs(ball.gamma()).log(),
    "erf_inv": operator.methodcaller("erfinv"),
    "neg": operator.neg,
    "abs": absolute,
    "sign": signs,
    "logistic": logistic,
    "cbrt": cbrt,
    "exp2": exp2,
    "square": _squared,
    "floor": _exact_only("floor"),
    "ceil": _exact_only("ceil"),
    "round": rounded,
}
"""Name -> function of one ball. The names are JAX's where JAX has one."""


def unary(name: str, array: Any) -> Any:
    """The function of that name in `UNARY`, elementwise."""
    return elementwise(UNARY[name], array)


def _integer(ball: Any) -> int:
    """An exact ball that is a whole number, as an integer."""
    return int(ball.unique_fmpz())


def whole_power(base: Any, exponent: int) -> Any:
    """Base ** exponent for a whole exponent; even powers of wide balls are not negative."""
    if _WIDE and exponent < 0:
        return 1 / whole_power(base, -exponent)
    if _WIDE and exponent > 1:
        even = _squared(whole_power(base, exponent // 2))
        return _product(base, even) if exponent % 2 else even
    return base**exponent


def power(base: Any, exponent: Any) -> Any:
    """Base ** exponent of one ball each; a whole exponent is exact for negative bases, too."""
    if isinstance(exponent, arb) and exponent.is_exact() and exponent.is_integer():
        number = _integer(exponent)
        if abs(number) < 2**20:
            if number > 0 and not _WIDE and isinstance(base, arb) and base.mid().is_zero() and not base.is_zero():
                return arb(0, base.abs_upper() ** number)  # Arb's power of a ball around 0 is NaN
            return whole_power(base, number)
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


def compares_nothing() -> bool:
    """Whether comparisons are listed, and there is none to tell of: then nobody asks for the line of an operation."""
    return bool(_COMPARED) and not _COMPARED[-1]


def _noted(one: Any, other: Any) -> None:
    """List a comparison that an operation does not need to decide, such as |x| that of x with 0, if the balls do."""
    with contextlib.suppress(Undecided):
        _COMPARED[-1].append((one, other, _side(one, other, "")))


def noted_whole(ball: Any) -> None:
    """List the comparison of a number with the whole number beside it, which rounding and a cast to integers make."""
    if _COMPARED:
        _noted(ball, (ball + HALF).floor())


def noted(one: float, other: float) -> None:
    """List a comparison that Python made of two floats."""
    if _COMPARED:
        _noted(arb(one), arb(other))


def divided(divisor: Any) -> None:
    """List a division by exactly zero."""
    if _COMPARED:
        _COMPARED[-1].append((divisor, ZERO, 0))


def selected(mask: Any) -> None:
    """List a choice by booleans: that some are true as 1, that some are false as −1, without numbers."""
    if _COMPARED and not _WIDE:
        truth = np.asarray(mask, bool)
        _COMPARED[-1].extend((None, None, side) for side, taken in ((1, truth.any()), (-1, not truth.all())) if taken)


def _compared(one: Any, other: Any, what: str) -> int:
    """`_decided` for a comparison that a program makes, and not an operation in its own search."""
    if _COMPARED and one is other:
        _COMPARED[-1].append((one, other, _side(one, other, what)))
    return _decided(one, other, what)


def _decided(one: Any, other: Any, what: str) -> int:
    """−1, 0 or 1 as one is below, equal to or above other; 2 if either is not a number."""
    if _WIDE:
        found = _possible(one, other)
        if len(found) > 1:
            raise Undecided(f"whether a number is {what} another, for all inputs")
        return found.pop()
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


def _comparison(what: str, *sides: int) -> Callable[[Any, Any], Any]:
    """A comparison by the sides on which it is true; a `Truth` within `wide` if it is not decided."""

    def holds(one: Any, other: Any) -> Any:
        if not _WIDE:
            return _compared(one, other, what) in sides
        found = {side in sides for side in _possible(one, other)}
        return found.pop() if len(found) == 1 else Truth(*found)

    return holds


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "lt": _comparison("less than", -1),
    "le": _comparison("at most", -1, 0),
    "gt": _comparison("greater than", 1),
    "ge": _comparison("at least", 0, 1),
    "eq": _comparison("equal to", 0),
    "ne": _comparison("unequal to", -1, 1, 2),
}


def compare(name: str, one: Any, other: Any) -> Any:
    """lt, le, gt, ge, eq or ne of two real arrays, broadcast, as booleans.

    An element compared with itself, the same object, is equal to itself however wide its ball is: so a maximum can be
    found again among the numbers it was taken from.

    Raises:
        Undecided: the balls overlap and are not both points.
    """
    return booleans(elementwise(_COMPARISONS[name], one, other))


def _extreme_of(one: Any, other: Any, largest: bool) -> Any:
    """The larger or smaller of two wide balls."""
    found = _possible(one, other)
    if found <= {0, 1} or found <= {0, -1}:
        return one if (1 in found) == largest or found == {0} else other
    pick = max if largest else min
    return pick(one.lower(), other.lower()).union(pick(one.upper(), other.upper())) if 2 not in found else arb.nan()


def _larger(one: Any, other: Any) -> Any:
    if _WIDE:
        return _extreme_of(one, other, True)
    place = _decided(one, other, "greater than")
    return (other if other.is_nan() else one) if place == 2 else other if place == -1 else one


def _smaller(one: Any, other: Any) -> Any:
    if _WIDE:
        return _extreme_of(one, other, False)
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
    return whole(adding().reduce(array, axis=axes, initial=arb(0))) if axes else array


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
