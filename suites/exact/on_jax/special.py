"""Special functions of several real numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from flint import acb, arb

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_jax.elementwise import NAN, definite
from gradgate.suites.exact.on_jax.rules import Run, rule


def _angle(y: Any, x: Any) -> Any:
    if isinstance(y, acb) or isinstance(x, acb):
        raise balls.Unknown("atan2 of complex numbers")
    if y.is_zero():
        return NAN if x.is_nan() else arb.pi() if x < 0 else arb(0) if x.is_zero() or x > 0 else _undecided_angle()
    if x < 0 and not (y > 0 or y < 0):
        _undecided_angle()
    return arb.atan2(y, x)


def _undecided_angle() -> Any:
    raise balls.Undecided("on which side of the cut an angle is")


def _zeta(s: Any, a: Any) -> Any:
    return s.zeta(a)


def _polygamma(order: Any, x: Any) -> Any:
    """ψ⁽ⁿ⁾(x); order 0 is digamma, higher orders are zeta functions: (−1)ⁿ⁺¹ n! ζ(n+1, x)."""
    if order.is_zero():
        return x.digamma()
    if not (order.is_exact() and order.is_integer()):
        return NAN
    number = int(order.unique_fmpz())
    if x > 0:
        return (-1) ** (number + 1) * arb(math.factorial(number)) * arb(number + 1).zeta(x)
    return acb(x).polygamma(acb(number)).real


def _igamma(a: Any, x: Any) -> Any:
    return arb(0) if x.is_zero() else x.gamma_lower(a, regularized=1)


def _igammac(a: Any, x: Any) -> Any:
    return arb(1) if x.is_zero() else x.gamma_upper(a, regularized=1)


def _beta(a: Any, b: Any, x: Any) -> Any:
    return arb(0) if x.is_zero() else arb(1) if (x - 1).is_zero() else x.beta_lower(a, b, regularized=1)


BINARY = {
    name: np.frompyfunc(definite(name, function), 2, 1)
    for name, function in {
        "atan2": _angle,
        "zeta": _zeta,
        "polygamma": _polygamma,
        "igamma": _igamma,
        "igammac": _igammac,
    }.items()
}
"""Name -> function of two arrays of real balls."""
BETA = np.frompyfunc(definite("regularized_incomplete_beta", _beta), 3, 1)


@rule(*BINARY)
def binary(equation: Any) -> Run:
    """A function of two real numbers."""
    return BINARY[equation.primitive.name]


@rule("regularized_incomplete_beta")
def beta(equation: Any) -> Run:
    """The share of the beta integral up to x."""
    return BETA
