"""Two results in balls are compared: equal, wrong or undecided."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gradgate.suites.exact import balls
from gradgate.suites.exact.agreement import LIMIT, TRIED, NotFinite, compare, settle

ULP = 2.0**-52


def values(**leaves: Any) -> dict[str, Any]:
    """A result with loss 1 and these leaves."""
    return {"": balls.exact(1.0), **{name: balls.exact(np.asarray(leaf)) for name, leaf in leaves.items()}}


def third(digits: int) -> Any:
    with balls.digits(digits):
        return balls.exact(np.ones(2)) / 3


def test_a_result_equals_itself() -> None:
    found = compare(values(a=[3.0, 4.0], b=[[1e-200]]), values(a=[3.0, 4.0], b=[[1e-200]]))
    assert (found.wrong, found.open, found.error) == ({}, (), 0.0)
    assert found.digits == TRIED[0]


@pytest.mark.parametrize("size", [ULP, 1e-30, 1e-39])
def test_a_leaf_off_by_any_amount_above_the_limit_is_wrong(size: float) -> None:
    with balls.digits(60):
        exact = values(a=[1.0], b=[7.0])
        got = {**exact, "b": exact["b"] * (1 + balls.exact(size))}
        found = compare(got, exact)
    assert list(found.wrong) == ["b"]
    assert found.wrong["b"] == pytest.approx(size)
    assert found.leaf == "b"


def test_a_difference_below_the_limit_is_none() -> None:
    with balls.digits(60):
        exact = values(a=[1.0])
        found = compare({**exact, "a": exact["a"] * (1 + balls.exact(1e-41))}, exact)
    assert not found.wrong
    assert not found.open
    assert found.digits == 41


def test_balls_that_are_too_wide_decide_nothing() -> None:
    with balls.digits(60):
        wide = balls.exact(np.ones(2)) / 3
    rough = {"": balls.exact(1.0), "a": third(20)}
    found = compare(rough, {"": balls.exact(1.0), "a": wide})
    assert (found.open, found.wrong) == (("a",), {})
    assert found.radius == pytest.approx(found.error, rel=1e-3)


def test_more_digits_are_taken_until_every_leaf_is_decided() -> None:
    asked: list[int] = []

    def run(digits: int) -> dict[str, Any]:
        asked.append(digits)
        return {"": balls.exact(1.0), "a": third(digits // 4)}

    assert not settle(run, lambda digits: {"": balls.exact(1.0), "a": third(digits)}).wrong
    assert asked == [60, 120, 240]


def test_a_zero_leaf_is_compared_with_the_whole_gradient() -> None:
    exact = values(zero=[0.0], other=[1e6])
    with balls.digits(60):
        for size, wrong in ((0.9e6 * LIMIT, False), (1.1e6 * LIMIT, True)):
            assert bool(compare({**exact, "zero": balls.exact([size])}, exact).wrong) is wrong


def test_a_small_leaf_keeps_its_own_scale() -> None:
    exact = values(small=[1e-30], other=[1.0])
    with balls.digits(60):
        found = compare({**exact, "small": exact["small"] * (1 + balls.exact(1e-20))}, exact)
    assert list(found.wrong) == ["small"]


def test_a_leaf_that_is_never_finite_is_wrong() -> None:
    found = settle(lambda _: values(a=[np.nan]), lambda _: values(a=[1.0]))
    assert list(found.wrong) == ["a"]
    assert found.shown == "not finite"


def test_a_truth_that_is_never_finite_says_nothing() -> None:
    with pytest.raises(NotFinite):
        settle(lambda _: values(a=[1.0]), lambda _: values(a=[np.nan]))


def test_a_tie_in_every_precision_is_reported() -> None:
    def tied(digits: int) -> dict[str, Any]:
        raise balls.Undecided("whether a number is less than another")

    with pytest.raises(balls.Undecided, match="less than"):
        settle(tied, lambda _: values(a=[1.0]))


def test_the_first_wrong_digits_are_shown() -> None:
    with balls.digits(60):
        exact = values(a=[2.0, 0.5])
        found = compare({**exact, "a": exact["a"] * (1 + balls.exact([0.0, ULP]))}, exact)
    assert found.shown == "[1] is 0.500000000000000111, not 0.500000000000000000"


def test_some_of_the_leaves_may_be_compared_alone() -> None:
    exact = values(a=[1.0], b=[1.0])
    assert not compare({"b": balls.exact([1.0])}, exact).wrong
