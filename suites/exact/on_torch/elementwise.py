"""Elementwise operations: arithmetic, functions of one number, comparisons, activations."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from flint import acb, arb

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_torch.rules import number, numbers

ZERO, ONE, HALF = arb(0), arb(1), arb(0.5)
_BIT = arb(0.375, 0.375)  # holds 0 … log 2


# Arithmetic -----------------------------------------------------------------------------------------------------------


@numbers("add")
def add(a: Any, b: Any, alpha: Any = 1) -> Any:
    """A + alpha·b."""
    return balls.plus(number(a), number(b) if alpha == 1 else number(b) * number(alpha))


@numbers("sub")
def sub(a: Any, b: Any, alpha: Any = 1) -> Any:
    """A − alpha·b."""
    return number(a) - (number(b) if alpha == 1 else number(b) * number(alpha))


@numbers("rsub")
def rsub(a: Any, b: Any, alpha: Any = 1) -> Any:
    """B − alpha·a."""
    return number(b) - (a if alpha == 1 else a * number(alpha))


@numbers("mul")
def mul(a: Any, b: Any) -> Any:
    """A·b."""
    return balls.times(number(a), number(b))


def _over(a: Any, b: Any) -> Any:
    if b.is_zero():
        balls.divided(b)
    if b.is_zero() and isinstance(a, arb) and isinstance(b, arb) and not a.is_zero():
        return arb.pos_inf() if a > 0 else arb.neg_inf() if a < 0 else arb.nan()
    return a / b


_is_zero = operator.methodcaller("is_zero")


def quotient(a: Any, b: Any) -> Any:
    """A/b, infinite where floats are, with zeros of positive sign."""
    one, other = number(a), number(b)
    if balls.elementwise(_is_zero, other).any():
        return balls.elementwise(_over, one, other)
    return balls.whole(one / other)


@numbers("div")
def div(a: Any, b: Any, rounding_mode: str | None = None) -> Any:
    """A/b, rounded to a whole number if `rounding_mode` says so."""
    result = quotient(a, b)
    if rounding_mode is None:
        return result
    return balls.unary("floor", result) if rounding_mode == "floor" else balls.elementwise(truncated, result)


def truncated(ball: Any) -> Any:
    """The nearest whole number towards zero; Undecided if a whole number other than zero lies within the ball."""
    if ball.is_exact() or ball > 0 or ball < 0:
        return balls.UNARY["floor"](ball) if ball >= 0 else balls.UNARY["ceil"](ball)
    if abs(ball) < 1:
        return ZERO
    raise balls.Undecided("the whole number towards zero")


@numbers("floor_divide")
def floor_divide(a: Any, b: Any) -> Any:
    """⌊a/b⌋."""
    return balls.unary("floor", quotient(a, b))


@numbers("remainder")
def remainder(a: Any, b: Any) -> Any:
    """A − b·⌊a/b⌋, with the sign of b."""
    return number(a) - number(b) * balls.unary("floor", quotient(a, b))


@numbers("fmod")
def fmod(a: Any, b: Any) -> Any:
    """A − b·(a/b towards zero), with the sign of a."""
    return number(a) - number(b) * balls.elementwise(truncated, quotient(a, b))


def _power(base: Any, exponent: Any) -> Any:
    if exponent.is_zero():
        return ONE
    if base.is_zero() and isinstance(exponent, arb) and exponent < 0:
        return arb.pos_inf()
    if isinstance(base, arb) and isinstance(exponent, arb) and exponent.is_exact():
        if exponent == HALF:
            return base.sqrt()
        if exponent == -HALF:
            return base.rsqrt()
    return balls.power(base, exponent)


@numbers("pow")
def power(base: Any, exponent: Any) -> Any:
    """Base to the exponent, arrays or numbers."""
    return balls.elementwise(_power, number(base), number(exponent))


@numbers("lerp")
def lerp(start: Any, end: Any, weight: Any) -> Any:
    """Start + weight·(end − start)."""
    return start + number(weight) * (end - start)


@numbers("addcmul")
def addcmul(a: Any, b: Any, c: Any, value: Any = 1) -> Any:
    """A + value·b·c."""
    return a + (b * c if value == 1 else number(value) * b * c)


@numbers("addcdiv")
def addcdiv(a: Any, b: Any, c: Any, value: Any = 1) -> Any:
    """A + value·b/c."""
    return a + (quotient(b, c) if value == 1 else quotient(number(value) * b, c))


numbers("maximum")(balls.maximum)
numbers("minimum")(balls.minimum)


@numbers("fmax")
def fmax(a: Any, b: Any) -> Any:
    """The larger; of a number and NaN the number."""
    return balls.maximum(*_numbers_first(a, b))


@numbers("fmin")
def fmin(a: Any, b: Any) -> Any:
    """The smaller; of a number and NaN the number."""
    return balls.minimum(*_numbers_first(a, b))


def _numbers_first(a: Any, b: Any) -> tuple[Any, Any]:
    """Both arrays; where one has NaN, it gets the other's element."""
    one = balls.elementwise(lambda x, y: y if x.is_nan() else x, a, b)
    return one, balls.elementwise(lambda x, y: x if y.is_nan() else y, one, b)


@numbers("clamp", "hardtanh")
def clamp(a: Any, min: Any = None, max: Any = None) -> Any:
    """The number nearest to a within the bounds."""
    low = a if min is None else balls.maximum(a, number(min))
    return low if max is None else balls.minimum(low, number(max))


@numbers("clamp_min")
def clamp_min(a: Any, bound: Any) -> Any:
    """The larger of a and the bound."""
    return balls.maximum(a, number(bound))


@numbers("clamp_max")
def clamp_max(a: Any, bound: Any) -> Any:
    """The smaller of a and the bound."""
    return balls.minimum(a, number(bound))


# Functions of one number ----------------------------------------------------------------------------------------------


def _log1p_complex_safe(ball: Any) -> Any:
    return arb.neg_inf() if (ball + 1).is_zero() else ball.log1p()


def _sgn(ball: Any) -> Any:
    if isinstance(ball, acb):
        return acb(0) if ball.is_zero() else ball / abs(ball)
    return balls.signs(ball)


def _reciprocal(ball: Any) -> Any:
    return _over(ONE, ball) if isinstance(ball, arb) else 1 / ball


def _rsqrt(ball: Any) -> Any:
    return arb.pos_inf() if ball.is_zero() else ball.rsqrt()


def _log(ball: Any) -> Any:
    return arb.neg_inf() if ball.is_zero() else ball.log()


def _conjugate(ball: Any) -> Any:
    return ball.conjugate() if isinstance(ball, acb) else ball


UNARY: dict[str, Callable[[Any], Any]] = {
    **{
        name: balls.UNARY[name]
        for name in (
            "exp",
            "expm1",
            "exp2",
            "sqrt",
            "sin",
            "cos",
            "tan",
            "asin",
            "acos",
            "atan",
            "sinh",
            "cosh",
            "tanh",
            "asinh",
            "acosh",
            "atanh",
            "erf",
            "erfc",
            "lgamma",
            "digamma",
            "abs",
            "sign",
            "floor",
            "ceil",
        )
    },
    "log": _log,
    "log1p": _log1p_complex_safe,
    "log2": lambda ball: _log(ball) / arb(2).log(),
    "log10": lambda ball: _log(ball) / arb(10).log(),
    "erfinv": balls.UNARY["erf_inv"],
    "rsqrt": _rsqrt,
    "reciprocal": _reciprocal,
    "sgn": _sgn,
    "sigmoid": balls.logistic,
    "trunc": truncated,
    "frac": lambda ball: ball - truncated(ball),
    "_conj_physical": _conjugate,
    "sinc": lambda ball: ball.sinc_pi(),
    "angle": lambda ball: ball.arg() if isinstance(ball, acb) else arb(0) if ball >= 0 else arb.pi(),
    "deg2rad": lambda ball: ball * arb.pi() / 180,
    "rad2deg": lambda ball: ball * 180 / arb.pi(),
}
"""Name of the operation -> function of one ball."""

for _name, _function in UNARY.items():
    numbers(_name)(functools.partial(balls.elementwise, _function))


@numbers("neg")
def neg(a: Any) -> Any:
    """−a."""
    return -a


@numbers("round")
def rounded(a: Any, decimals: int = 0) -> Any:
    """The nearest whole number, or multiple of a power of ten."""
    unit = arb(10) ** decimals
    return balls.unary("round", a * unit) / unit if decimals else balls.unary("round", a)


@numbers("atan2")
def atan2(a: Any, b: Any) -> Any:
    """The angle of the point (b, a)."""
    return balls.elementwise(arb.atan2, a, b)


@numbers("hypot")
def hypot(a: Any, b: Any) -> Any:
    """√(a² + b²)."""
    return balls.unary("sqrt", a * a + b * b)


@numbers("copysign")
def copysign(a: Any, b: Any) -> Any:
    """|a| with the sign of b."""
    return balls.elementwise(lambda x, y: abs(x) if balls.sign(y) >= 0 else -abs(x), number(a), number(b))


@numbers("polygamma")
def polygamma(order: int, a: Any) -> Any:
    """The derivative of digamma of an order."""
    return balls.elementwise(lambda x: acb(x).polygamma(acb(order)).real, a)


@numbers("xlogy")
def xlogy(a: Any, b: Any) -> Any:
    """A·log b, 0 where a is 0."""
    return balls.elementwise(lambda x, y: ZERO if x.is_zero() else x * _log(y), number(a), number(b))


@numbers("logaddexp")
def logaddexp(a: Any, b: Any) -> Any:
    """Log(eᵃ + eᵇ); balls never overflow."""
    return balls.elementwise(log_add, a, b)


def log_add(x: Any, y: Any) -> Any:
    """Log(eˣ + eʸ) of two balls, however far below zero."""
    high, low = (x, y) if x.mid() > y.mid() else (y, x)
    if not high.is_finite():
        return high
    if (
        low - high
    ).rad() > 1 and not low - high < -1:  # of numbers like the lowest float, which PyTorch takes for minus infinity
        return high.union(low) + _BIT
    return high + (1 + (low - high).exp()).log()


@numbers("logaddexp2")
def logaddexp2(a: Any, b: Any) -> Any:
    """Log₂(2ᵃ + 2ᵇ)."""
    return balls.elementwise(lambda x, y: (balls.exp2(x) + balls.exp2(y)).log() / arb(2).log(), a, b)


@numbers("nan_to_num")
def nan_to_num(a: Any, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Any:
    """NaN and infinities replaced by numbers."""
    largest = float(np.finfo(np.float64).max)
    high, low = number(largest if posinf is None else posinf), number(-largest if neginf is None else neginf)

    def one(ball: Any) -> Any:
        if ball.is_nan():
            return number(nan or 0.0)
        return ball if ball.is_finite() else high if ball > 0 else low

    return balls.elementwise(one, a)


@numbers("complex")
def complex_of(a: Any, b: Any) -> Any:
    """A + i·b."""
    return balls.elementwise(acb, a, b)


@numbers("polar")
def polar(radius: Any, angle: Any) -> Any:
    """Radius·e^(i·angle)."""
    return balls.elementwise(lambda r, t: acb(r * t.cos(), r * t.sin()), radius, angle)
