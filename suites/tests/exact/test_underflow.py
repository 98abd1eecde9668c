"""What small results lose: all of it is explained, and nothing else is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gradgate import Pair, normal
from gradgate.references.backends import namespace, precision, to_backend
from gradgate.suites.exact import balls, underflow

AT = np.array([-60.0, -1.0])


def problem_of(framework: str, dtype: str) -> Any:
    """A problem whose input is `AT`."""
    pair = Pair(
        lambda x: x, lambda x: x, framework=framework, name="small", inputs={"x": normal("N")}, dims={"N": (2,)}
    )
    problem = pair.spec(dtype=dtype).build(pair.where)
    with precision(pair.where, dtype):
        return problem.with_params({"x": to_backend(pair.where, AT, dtype)})


def program(framework: str, function: Any) -> Any:
    """A function of the input as a program of a problem and a vector."""
    xp = namespace(framework)  # type: ignore[arg-type]
    return lambda problem, vector: {"y": function(xp, problem.params["x"])}


def falls(xp: Any, x: Any) -> Any:
    """eˣ, by way of e²ˣ: at −60 that is below 2⁻¹²⁶."""
    return xp.exp(2 * x) * xp.exp(-x)


def test_a_small_result_explains_all_numbers_from_zero_to_what_it_makes(framework: str) -> None:
    exact = {"y": np.exp(AT)}
    lost = underflow.losses(program(framework, falls), problem_of(framework, "float32"), {})
    assert lost.formula["y"] == pytest.approx(exact["y"], rel=1e-15)
    assert lost.unexplained({"y": np.array([0.0, exact["y"][1]])}, exact)["y"] == pytest.approx(exact["y"], rel=1e-6)
    half = {"y": exact["y"] * [0.5, 1]}
    assert lost.unexplained(half, exact)["y"] == pytest.approx(exact["y"], rel=1e-6)


@pytest.mark.parametrize("got", [[-1.0, 1.0], [2.0, 1.0], [0.0, 0.0], [0.0, 1 + 1e-5], [np.nan, 1.0], [np.inf, 1.0]])
def test_nothing_else_is_explained(framework: str, got: list[float]) -> None:
    exact = {"y": np.exp(AT)}
    lost = underflow.losses(program(framework, falls), problem_of(framework, "float32"), {})
    left = lost.unexplained({"y": exact["y"] * got}, exact)["y"]
    assert not np.allclose(left, exact["y"], rtol=5e-6, atol=0)


def test_float64_loses_nothing_there(framework: str) -> None:
    lost = underflow.losses(program(framework, falls), problem_of(framework, "float64"), {})
    sizes = np.abs(lost.lowest["y"]), np.abs(lost.highest["y"])
    assert (np.maximum(*sizes) < 1e-50 * np.exp(AT)).all()


def test_nothing_is_explained_where_something_is_divided_by_a_small_result(framework: str) -> None:
    run = program(framework, lambda xp, x: xp.exp(x) / xp.exp(2 * x))
    with pytest.raises(balls.Undecided, match="zero"):
        underflow.losses(run, problem_of(framework, "float32"), {})
