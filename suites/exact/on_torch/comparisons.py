"""Comparisons and predicates, which balls decide, and logical operations on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from flint import acb, arb

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_torch.rules import mixed, number, numbers

ZERO, ONE = arb(0), arb(1)


def _comparison(name: str) -> None:
    @numbers(name)
    def rule(a: Any, b: Any) -> Any:
        if balls.is_complex(balls.whole(a)) or balls.is_complex(balls.whole(number(b))):
            return _complex_equality(name, a, b)
        return balls.compare(name, number(a), number(b))


def _complex_equality(name: str, a: Any, b: Any) -> Any:
    """Eq or ne of complex arrays, from their parts."""
    one, other = balls.as_complex(balls.whole(a)), balls.as_complex(balls.whole(number(b)))
    parts = [
        balls.compare("eq", balls.elementwise(part, one), balls.elementwise(part, other))
        for part in (lambda z: z.real, lambda z: z.imag)
    ]
    return parts[0] & parts[1] if name == "eq" else ~(parts[0] & parts[1])


for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    _comparison(_name)


def _truth(array: Any) -> Any:
    return balls.compare("ne", array, ZERO)


@numbers("logical_not")
def logical_not(a: Any) -> Any:
    """Whether a is zero."""
    return ~_truth(a)


@numbers("logical_and")
def logical_and(a: Any, b: Any) -> Any:
    """Whether both are not zero."""
    return _truth(a) & _truth(b)


@numbers("logical_or")
def logical_or(a: Any, b: Any) -> Any:
    """Whether either is not zero."""
    return _truth(a) | _truth(b)


@numbers("logical_xor")
def logical_xor(a: Any, b: Any) -> Any:
    """Whether one is zero and one is not."""
    return _truth(a) ^ _truth(b)


def _predicate(name: str, function: Callable[[Any], bool]) -> None:
    numbers(name)(lambda a: np.asarray(balls.elementwise(function, a), bool))


def _is_nan(ball: Any) -> bool:
    return (ball.real.is_nan() or ball.imag.is_nan()) if isinstance(ball, acb) else ball.is_nan()


def _is_infinite(ball: Any) -> bool:
    return not ball.is_finite() and not _is_nan(ball)


_predicate("isnan", _is_nan)
_predicate("isinf", _is_infinite)
_predicate("isposinf", lambda ball: _is_infinite(ball) and ball > 0)
_predicate("isneginf", lambda ball: _is_infinite(ball) and ball < 0)
_predicate("signbit", lambda ball: balls.sign(ball) < 0)


@mixed("equal")
def equal(a: Any, b: Any) -> Any:
    """Whether two arrays are of one shape and equal, as one boolean."""
    return a.shape == b.shape and bool(np.all(balls.compare("eq", balls.exact(a), balls.exact(b))))


@numbers("heaviside")
def heaviside(a: Any, values: Any) -> Any:
    """0 below zero, 1 above, `values` at zero."""
    return balls.elementwise(lambda x, v: v if x.is_zero() else ONE if balls.sign(x) > 0 else ZERO, a, values)
