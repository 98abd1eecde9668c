"""Where a pair's function is right: digits lost over the scale of each input, and the states without any."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gradgate
from gradgate import normal
from gradgate.references import registry
from gradgate.suites.judging.subject import Subject
from gradgate.suites.pairs import domain
from gradgate.suites.pairs.domain import OVERFLOWS, RANGE, WRONG, ZERO, Point
from gradgate.suites.report import domain_plot
from gradgate.suites.schemas import documents

POWERS = (-2, 0, 3, 6)
DOMAIN = ("-m", "gradgate.suites.cli", "domain")


def of_pair(pair: gradgate.Pair, powers: Any = POWERS) -> dict[tuple[str, int, str, str], Point]:
    """(leaf, power, dtype, role) -> point."""
    method = pair.lowered
    try:
        family = registry.family(method.family)
        spec: Any = registry.spec_class(family.name).from_json(json.dumps(dict(family.shapes[-1])))
        found = domain.points(Subject(method, pair), spec, {}, powers)
        return {(point.leaf, point.power, point.dtype, point.role): point for point in found}
    finally:
        registry.forget(method.family)


def softplus(framework: str, careful: bool) -> Callable[[Any], Any]:
    """log(1 + eˣ), with a backward pass that divides eˣ by 1 + eˣ; or the library's."""
    if framework == "torch":
        import torch

        class Naive(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return torch.nn.functional.softplus(x)

            @staticmethod
            def backward(ctx: Any, grad: Any) -> Any:
                (x,) = ctx.saved_tensors
                return grad * x.exp() / (1 + x.exp())

        return (lambda x: -torch.nn.functional.logsigmoid(-x)) if careful else Naive.apply
    import jax
    import jax.numpy as jnp

    if careful:
        return lambda x: -jax.nn.log_sigmoid(-x)
    naive = jax.custom_vjp(jax.nn.softplus)
    naive.defvjp(lambda x: (jax.nn.softplus(x), x), lambda x, g: (g * jnp.exp(x) / (1 + jnp.exp(x)),))
    return lambda x: naive(x)


def pair(framework: str, careful: bool) -> gradgate.Pair:
    """The pair of a softplus and the library's."""
    plain: Any
    if framework == "torch":
        plain = pytest.importorskip("torch").nn.functional.softplus
    else:
        plain = pytest.importorskip("jax").nn.softplus
    return gradgate.Pair(
        softplus(framework, careful),
        reference=plain,
        inputs={"x": normal("T")},
        dims={"T": (4,)},
        dtypes=("float32", "float64"),
        framework=framework,
        name=f"softplus_{careful}",
    )


def test_a_naive_formula_overflows_where_the_reference_is_right(framework: str) -> None:
    found = of_pair(pair(framework, careful=False))
    assert found["x", 3, "float32", "function"].state == OVERFLOWS
    assert found["x", 6, "float64", "function"].state == OVERFLOWS
    for power in (-2, 0):
        lost = found["x", power, "float32", "function"].lost
        assert lost is not None
        assert lost < 1
    reference = [point for point in found.values() if point.role == "reference"]
    assert all(point.lost is not None and point.lost < 1 for point in reference)


def test_a_careful_formula_keeps_its_digits_everywhere(framework: str) -> None:
    found = of_pair(pair(framework, careful=True))
    assert all(point.lost is not None and point.lost < 1.5 for point in found.values())


def test_what_no_float_can_hold_is_nobodys_fault(torch: Any) -> None:
    made = gradgate.Pair(
        lambda x: (x**3) ** 3,
        reference=lambda x: x**9,
        inputs={"x": normal("T")},
        dims={"T": (3,)},
        dtypes=("float32",),
        framework="torch",
        name="power",
    )
    found = of_pair(made, (0, 6))
    assert {found["x", 6, "float32", role].state for role in domain.ROLES} == {RANGE}


def test_a_gradient_that_vanishes_and_one_without_a_right_digit_are_told_apart(torch: Any) -> None:
    class Faulty(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            (x,) = ctx.saved_tensors
            return torch.where(x.abs() > 1e4, 0.0, torch.where(x.abs() > 1e2, -grad, 2 * grad))

    made = gradgate.Pair(
        Faulty.apply,
        reference=lambda x: x * 2,
        inputs={"x": normal("T")},
        dims={"T": (1,)},
        dtypes=("float32",),
        framework="torch",
        name="faulty",
    )
    found = of_pair(made, (0, 3, 8))
    states = [found["x", power, "float32", "function"].state for power in (0, 3, 8)]
    assert states == ["", WRONG, ZERO]


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ((0.1, 0.2, 5.0, 0.3), "1e+00 … 1e+01, 1e+03"),
        ((None, None, None, None), "nowhere"),
        ((0.0, 0.0, 0.0, 1.0), "1e+00 … 1e+03"),
    ],
)
def test_the_scales_are_said_in_words(lost: tuple[float | None, ...], said: str) -> None:
    given = [Point("x", n, "float32", "function", one, "" if one is not None else ZERO) for n, one in enumerate(lost)]
    assert domain.spans(given) == said


def test_the_picture_has_a_line_for_each_run_and_a_cross_for_each_failure() -> None:
    given = [
        Point("x", power, "float32", role, None if power == 1 else 0.5, OVERFLOWS if power == 1 else "")
        for power in (-1, 0, 1, 2)
        for role in domain.ROLES
    ]
    drawn = domain_plot.picture("a<b", given)
    assert drawn.count("<path") == 2
    assert drawn.count("#c4622d") == 1 + 2 * 2 + 2  # the legend, two runs of each line, the crosses
    assert "a&lt;b" in drawn


PAIRS = """
import torch
import gradgate
from gradgate import normal, uniform

half = gradgate.Pair(
    lambda a, b: a * b / 2, reference=lambda a, b: 0.5 * (a * b), inputs={"a": normal("T"), "b": normal("T")},
    dims={"T": (1, 100)}, dtypes=("float32",), framework="torch", name="half",
)
bounded = gradgate.Pair(
    lambda x: x / 2, reference=lambda x: 0.5 * x, inputs={"x": uniform("T", low=0.0, high=1.0)}, dims={"T": (1,)},
    dtypes=("float32",), framework="torch", name="bounded",
)
alone = gradgate.Pair(
    lambda x: x / 2, reference=None, inputs={"x": normal("T")}, dims={"T": (1,)}, dtypes=("float32",),
    framework="torch", name="alone",
)
"""


def test_the_command_shows_a_table_for_each_input_and_writes(torch: Any, process: Any, tmp_path: Path) -> None:
    (tmp_path / "pairs.py").write_text(PAIRS)
    ran = process(*DOMAIN, "pairs.py:half", "--json", "out.json", "--svg", "out.svg", cwd=tmp_path)
    assert ran.status == 0, ran.err
    assert "at most one digit lost at 1e-08 … 1e+08" in ran.out
    document = documents.read(tmp_path / "out.json", "domain")
    assert {point["leaf"] for point in document["points"]} == {"a", "b", ""}
    assert document["spec"]["T"] == 1  # a hundred numbers are too many
    assert (tmp_path / "out.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pairs.py:bounded"], "only inputs that are drawn as normal() about 0 are scaled"),
        (["pairs.py:half", "--spec", '{"T": "many"}'], "T"),
        (["pairs.py:half", "--spec", "{"], "--spec is a JSON object"),
        (["pairs.py:none"], "none"),
        (["pairs.py"], "pairs.py declares 3 pairs; name one, such as pairs.py:half"),
        (["pairs.py:alone"], "names no reference="),
    ],
)
def test_wrong_use_is_one_line(torch: Any, process: Any, tmp_path: Path, arguments: list[str], said: str) -> None:
    (tmp_path / "pairs.py").write_text(PAIRS)
    ran = process(*DOMAIN, *arguments, cwd=tmp_path)
    assert (ran.status, ran.err.count("\n")) == (3, 1), ran.err
    assert said in ran.err
