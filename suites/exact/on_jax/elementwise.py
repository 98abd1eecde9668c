"""Functions of corresponding elements: one value of each input, one value out."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from flint import acb, arb

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_jax.block import identities
from gradgate.suites.exact.on_jax.rules import Run, inexact, kind, rule

identities(
    "copy",
    "name",
    "sharding_constraint",
    "stop_gradient",
    "optimization_barrier",
    "reduce_precision",
    "device_put",
    "reshard",
    "pvary",
    "random_clone",
)

# Values at the edge of where a function is finite ---------------------------------------------------------------------

INF, MINUS_INF, NAN = arb.pos_inf(), arb.neg_inf(), arb.nan()
_EDGES: dict[str, dict[float, Any]] = {
    "log": {0.0: MINUS_INF},
    "log2": {0.0: MINUS_INF},
    "log1p": {-1.0: MINUS_INF},
    "rsqrt": {0.0: INF},
    "atanh": {1.0: INF, -1.0: MINUS_INF},
    "erf_inv": {1.0: INF, -1.0: MINUS_INF},
    "erf": {math.inf: arb(1), -math.inf: arb(-1)},
    "erfc": {math.inf: arb(0), -math.inf: arb(2)},
    "logistic": {math.inf: arb(1), -math.inf: arb(0)},
    "lgamma": {math.inf: INF, -math.inf: INF},
    "one_minus_square": {math.inf: MINUS_INF, -math.inf: MINUS_INF},
    "square": {-math.inf: INF},
    "exp2": {-math.inf: arb(0)},
    "sinh": {-math.inf: MINUS_INF},
    "cosh": {-math.inf: INF},
    "asinh": {-math.inf: MINUS_INF},
    "cbrt": {0.0: arb(0), math.inf: INF, -math.inf: MINUS_INF},
    "floor": {math.inf: INF, -math.inf: MINUS_INF},
    "ceil": {math.inf: INF, -math.inf: MINUS_INF},
    "round": {math.inf: INF, -math.inf: MINUS_INF},
    "digamma": {math.inf: INF},
}
"""Function -> input -> the result that floats give, where arb gives none."""


def bounded(name: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`function`, with the infinities that floats have at its edges.

    A result that is not finite is right only for a ball that is a point; a wider ball that reaches the edge is
    undecided.
    """
    edges = _EDGES.get(name, {})

    def run(ball: Any) -> Any:
        if not ball.is_finite():
            return _beyond(edges, function, ball)
        result = function(ball)
        if result.is_finite():
            return result
        if ball.is_exact():
            return edges.get(float(ball), _pole(name, ball, result))
        if ball.is_nan() or not _at_edge(name, ball):
            return result
        raise balls.Undecided(f"{name} of a number whose ball reaches the edge of where it is finite")

    return run


def _beyond(edges: dict[float, Any], function: Callable[[Any], Any], ball: Any) -> Any:
    """The function of an infinity or of not a number."""
    if isinstance(ball, acb):
        return function(ball)
    if not (ball > 0 or ball < 0):
        if ball.is_nan():
            return NAN
        raise balls.Undecided("which infinity a number is")
    end = math.inf if ball > 0 else -math.inf
    return edges[end] if end in edges else function(INF if end > 0 else MINUS_INF)


def _pole(name: str, ball: Any, result: Any) -> Any:
    """Γ is infinite at 0, −1, −2, …: there lgamma is, too."""
    return INF if name == "lgamma" and ball.is_integer() else result


_DOMAINS: dict[str, tuple[float, float]] = {
    "log": (0, math.inf),
    "sqrt": (0, math.inf),
    "rsqrt": (0, math.inf),
    "log1p": (-1, math.inf),
    "asin": (-1, 1),
    "log2": (0, math.inf),
    "acos": (-1, 1),
    "atanh": (-1, 1),
    "erf_inv": (-1, 1),
    "acosh": (1, math.inf),
}


def _at_edge(name: str, ball: Any) -> bool:
    """Whether part of the ball lies where the function is finite; if none does, it is not a number anywhere."""
    low, high = _DOMAINS.get(name, (-math.inf, math.inf))
    return not (ball < low or ball > high)


def _lgamma(ball: Any) -> Any:
    return ball.lgamma() if ball > 0 else abs(ball.gamma()).log()


_OWN: dict[str, Callable[[Any], Any]] = {
    "lgamma": _lgamma,
    "exp": balls.exponential,
    "tanh": balls.tanh,
    "log2": lambda x: balls.UNARY["log"](x) / arb(2).log(),
    "one_minus_square": lambda x: (1 + x) * (1 - x),
    "bessel_i0e": lambda x: (-abs(x)).exp() * x.bessel_i(arb(0)),
    "bessel_i1e": lambda x: (-abs(x)).exp() * x.bessel_i(arb(1)),
}
FUNCTIONS = {**balls.UNARY, **_OWN}
UNARY = {name: np.frompyfunc(bounded(name, function), 1, 1) for name, function in FUNCTIONS.items()}
"""Name -> function of an array of real balls."""


def definite(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, which must be finite at finite balls, unless these are points.

    At a point, such as a pole, a result that is not finite is returned. Near a pole, the ball does not decide.
    """

    def run(*given: Any) -> Any:
        result = function(*given)
        if result.is_finite() or not all(ball.is_finite() for ball in given) or all(map(_is_point, given)):
            return result
        raise balls.Undecided(f"{name} of a number whose ball contains one where it is not finite")

    return run


def _is_point(ball: Any) -> bool:
    return bool(ball.real.is_exact() and ball.imag.is_exact())


def _complex_sign(z: Any) -> Any:
    return acb(0) if z.is_zero() else z / abs(z)


_COMPLEX: dict[str, Callable[[Any], Any]] = {
    **FUNCTIONS,
    "log": lambda z: z.log(),
    "log1p": lambda z: (1 + z).log(),
    "expm1": lambda z: z.exp() - 1,
    "exp2": lambda z: (z * arb(2).log()).exp(),
    "log2": lambda z: z.log() / arb(2).log(),
    "sign": _complex_sign,
}
COMPLEX = {name: np.frompyfunc(definite(name, function), 1, 1) for name, function in _COMPLEX.items()}
"""Name -> function of an array of complex balls."""
_INTEGERS: dict[str, Callable[..., Any]] = {
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "square": np.square,
}


@rule(*UNARY)
def unary(equation: Any) -> Run:
    """A function of one number."""
    name, held = equation.primitive.name, kind(equation.invars[0])
    if name == "neg" and held != "b":
        return np.negative
    if held not in "fc":
        if name not in _INTEGERS:
            raise balls.Unknown(f"{name} of integers")
        return _INTEGERS[name]
    if name == "round" and int(equation.params.get("rounding_method", 1)) == 0:
        return _AWAY
    return COMPLEX[name] if held == "c" else UNARY[name]


def _away(ball: Any) -> Any:
    """The nearest whole number, halves away from zero."""
    if not ball.is_finite():
        return ball
    low = (abs(ball) + balls.HALF).floor()
    if not low.is_exact():
        raise balls.Undecided("which whole number is nearest")
    return -low if ball < 0 else low


_AWAY = np.frompyfunc(_away, 1, 1)

# Arithmetic -----------------------------------------------------------------------------------------------------------


@rule("add", "add_any", "sub", "mul")
def arithmetic(equation: Any) -> Run:
    """Sum, difference or product; of integers with wraparound."""
    function: Run = {"add": np.add, "add_any": np.add, "sub": np.subtract, "mul": np.multiply}[equation.primitive.name]
    if inexact(equation.outvars[0]):
        return balls.times if function is np.multiply else balls.plus if function is np.add else function
    dtype = equation.outvars[0].aval.dtype
    return lambda one, other: function(one, other, dtype=dtype)


def _quotient(one: Any, other: Any) -> Any:
    result = one / other
    if result.is_finite():
        return result
    if isinstance(result, acb):
        if acb(one).is_finite() and acb(other).is_finite() and not other.is_zero():
            raise balls.Undecided("whether a divisor is zero")
        return result
    if other.is_zero():  # floats give ±∞ here; zero counts as positive
        balls.divided(other)
        if one.is_zero() or one.is_nan():
            return NAN
        return INF if balls.sign(one) > 0 else MINUS_INF
    if other.is_finite() and one.is_finite() and not (other > 0 or other < 0):
        raise balls.Undecided("whether a divisor is zero")
    return result


QUOTIENT = np.frompyfunc(_quotient, 2, 1)


def _whole_quotient(one: Any, other: Any) -> Any:
    """The quotient, truncated towards zero; for division by zero −1, as in XLA."""
    safe = np.where(other == 0, 1, other)
    floor = one // safe
    quotient = floor + ((floor * safe != one) & ((one < 0) != (safe < 0)))
    return np.where(other == 0, np.array(-1).astype(one.dtype), quotient.astype(one.dtype))


def _remainder(one: Any, other: Any) -> Any:
    """The remainder of a truncated quotient, with the sign of `one`; for division by zero `one` itself."""
    safe = np.where(other == 0, 1, other).astype(one.dtype)
    return np.where(other == 0, one, np.fmod(one, safe))


def _real_remainder(one: Any, other: Any) -> Any:
    if other.is_zero() or not one.is_finite():
        return NAN
    if not other.is_finite():
        return one if other > 0 or other < 0 else NAN
    return one - other * truncated(one / other)


def truncated(ball: Any) -> Any:
    """The nearest whole number towards zero."""
    if ball.is_exact() or not ball.contains_integer():
        return ball.floor() if ball >= 0 or ball > 0 else ball.ceil()
    if abs(ball) < 1:  # about zero both sides give zero
        return arb(0)
    raise balls.Undecided("on which side of a whole number a quotient is")


REMAINDER = np.frompyfunc(_real_remainder, 2, 1)


@rule("div")
def quotient(equation: Any) -> Run:
    """Quotient; of integers truncated."""
    return QUOTIENT if inexact(equation.invars[0]) else _whole_quotient


@rule("rem")
def remainder(equation: Any) -> Run:
    """Remainder, with the sign of the dividend."""
    return REMAINDER if inexact(equation.invars[0]) else _remainder


def _raised(base: Any, exponent: Any) -> Any:
    """`base` ** exponent, with the infinities of floats."""
    if isinstance(base, acb) or isinstance(exponent, acb):
        return acb(base) ** exponent
    if exponent.is_zero():
        return arb(1)
    if base.is_zero():
        return NAN if exponent.is_nan() else arb(0) if balls.sign(exponent) > 0 else INF
    if base.is_finite() and exponent.is_finite():
        return NAN if base < 0 and not exponent.is_integer() else _POSITIVE_POWER(base, exponent)
    if base.is_finite():
        return base**exponent
    if base > 0:
        return INF if balls.sign(exponent) > 0 else arb(0)
    if base < 0 and exponent.is_exact() and exponent.is_integer():
        return whole_power(base, int(exponent.unique_fmpz()))
    return NAN


def whole_power(base: Any, exponent: int) -> Any:
    """`base` ** exponent, with the infinities of floats."""
    if isinstance(base, arb) and (not base.is_finite() or (exponent < 0 and base.is_zero())):
        if base.is_nan() or exponent == 0:
            return base if exponent else arb(1)
        if base.is_zero():
            return INF
        odd = base < 0 and exponent % 2
        return arb(0) if exponent < 0 else MINUS_INF if odd else INF
    result = balls.whole_power(base, exponent)
    if exponent < 0 and not result.is_finite() and isinstance(base, arb):
        raise balls.Undecided("whether a divisor is zero")
    return result


_POSITIVE_POWER = definite("a power", balls.power)
POWER = np.frompyfunc(_raised, 2, 1)


@rule("pow")
def power(equation: Any) -> Run:
    """`base` ** exponent; the exponent may have an integer dtype."""
    if not inexact(equation.invars[0]):
        raise balls.Unknown("pow of integers")
    if inexact(equation.invars[1]):
        return POWER
    return lambda base, exponent: POWER(base, balls.exact(exponent))


@rule("integer_pow")
def integer_power(equation: Any) -> Run:
    """`base` ** y for a fixed whole y."""
    exponent = equation.params["y"]
    if inexact(equation.invars[0]):
        return np.frompyfunc(lambda base: whole_power(base, exponent), 1, 1)
    return lambda base: base ** np.asarray(exponent, base.dtype)
