"""Comparisons, extremes and choices: the balls must decide them."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_jax.rules import Run, kind, rule

LARGER, SMALLER = np.frompyfunc(balls._larger, 2, 1), np.frompyfunc(balls._smaller, 2, 1)
COMPARED = {name: np.frompyfunc(function, 2, 1) for name, function in balls._COMPARISONS.items()}
_PLAIN = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}


def same(one: Any, other: Any) -> bool:
    """Whether two complex numbers are equal, part by part."""
    return all(balls._COMPARISONS["eq"](a, b) for a, b in ((one.real, other.real), (one.imag, other.imag)))


SAME = np.frompyfunc(same, 2, 1)


@rule(*COMPARED)
def comparison(equation: Any) -> Run:
    """A comparison, which the balls must decide."""
    name, held = equation.primitive.name, kind(equation.invars[0])
    if held == "k":
        return _PLAIN[name]
    if held == "c":
        return lambda one, other: np.asarray(SAME(one, other), bool) == (name == "eq")
    if held != "f":
        return _PLAIN[name]
    compare = COMPARED[name]
    return lambda one, other: balls.booleans(compare(one, other))


def total_order(one: Any, other: Any) -> int:
    """−1, 0 or 1 in the order that has NaN last."""
    if one.is_nan() or other.is_nan():
        return int(one.is_nan()) - int(other.is_nan())
    return balls._decided(one, other, "less than")


TOTAL = np.frompyfunc(total_order, 2, 1)


@rule("eq_to", "le_to", "lt_to")
def total_comparison(equation: Any) -> Run:
    """A comparison in the total order, which has NaN last."""
    test = {"eq_to": np.equal, "le_to": np.less_equal, "lt_to": np.less}[equation.primitive.name]
    if kind(equation.invars[0]) != "f":
        return test
    return lambda one, other: np.asarray(test(np.asarray(TOTAL(one, other), int), 0), bool)


@rule("max", "min")
def extreme(equation: Any) -> Run:
    """The larger or the smaller of two."""
    largest = equation.primitive.name == "max"
    held = kind(equation.invars[0])
    if held == "c":
        raise balls.Unknown("max of complex numbers")
    if held == "f":
        return LARGER if largest else SMALLER
    return np.maximum if largest else np.minimum


@rule("clamp")
def clamp(equation: Any) -> Run:
    """x, limited to its two bounds."""
    larger, smaller = (LARGER, SMALLER) if kind(equation.invars[1]) == "f" else (np.maximum, np.minimum)
    return lambda low, x, high: smaller(larger(x, low), high)


@rule("select_n")
def select(equation: Any) -> Run:
    """The case that an integer or a boolean selects out of several, element by element."""
    if len(equation.invars) == 2:
        return lambda which, only: only
    if len(equation.invars) == 3:
        floating, scalar = kind(equation.invars[1]) == "f", not equation.invars[0].aval.shape

        def choose_number(which: Any, no: Any, yes: Any) -> Any:
            if floating:
                balls.selected(which)
            if balls.is_truth(which):
                return balls.choose(which, yes, no)
            return (yes if which else no) if scalar else np.where(which, yes, no)

        return choose_number

    def choose(which: Any, *cases: Any) -> Any:
        stacked = np.stack(cases)
        if not which.ndim:
            return stacked[int(which)]
        return np.take_along_axis(stacked, which.astype(np.int64)[None], 0)[0]

    return choose


def _finite(ball: Any) -> bool:
    if ball.is_finite():
        return True
    if ball.is_nan() or ball > 0 or ball < 0:
        return False
    raise balls.Undecided("whether a number is finite")


_FINITE = np.frompyfunc(_finite, 1, 1)


@rule("is_finite")
def finite(equation: Any) -> Run:
    """Whether each number is finite."""
    return lambda x: np.asarray(_FINITE(x), bool)
