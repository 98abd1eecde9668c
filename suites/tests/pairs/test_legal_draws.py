"""Draws that say which numbers are legal: what is drawn and tried is legal, and a fault at legal numbers is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import gradgate
from gradgate import Draw, Pair, between, distinct, positive, simplex, spd
from gradgate.references.errors import UsageError
from gradgate.suites.pairs import unseen
from gradgate.suites.tests.engine import behind_decisions
from gradgate.suites.tests.engine.behind_decisions import Rule
from gradgate.suites.tests.pairs.verdicts import judged

Legal = Callable[[Any], bool]
DRAWS: dict[str, tuple[Draw, Legal]] = {
    "positive": (positive("N N"), lambda x: bool((x > 0).all())),
    "between": (between("N N", -1, 2), lambda x: bool(((x >= -1) & (x <= 2)).all())),
    "simplex": (simplex("N N"), lambda x: bool((x >= 0).all() and np.allclose(x.sum(-1), 1))),
    "spd": (spd("N N"), lambda x: bool((x == x.T).all() and np.linalg.eigvalsh(x).min() > 0)),
    "distinct": (distinct("N N"), lambda x: len(np.unique(x)) == x.size),
}
"""Kind -> a draw, and whether numbers are legal."""
NUMBERS = arrays.arrays(np.float64, (3, 3), elements=st.floats(-1e8, 1e8, allow_subnormal=False))


@pytest.mark.parametrize("kind", DRAWS)
def test_what_is_drawn_is_legal_and_stays_as_it_is(kind: str) -> None:
    draw, legal = DRAWS[kind]
    for size in (1, 2, 5):
        drawn = draw.drawn({"N": size}, np.random.default_rng(size))
        assert drawn.shape == (size, size)
        assert legal(drawn), drawn
        assert np.allclose(draw.legal(drawn, {"N": size}), drawn, rtol=1e-12)


@pytest.mark.parametrize("kind", DRAWS)
@settings(max_examples=50, deadline=None)
@given(numbers=NUMBERS)
def test_the_legal_numbers_next_to_any_are_legal(kind: str, numbers: Any) -> None:
    draw, legal = DRAWS[kind]
    assert legal(draw.legal(numbers, {"N": 3})), numbers


@pytest.mark.parametrize("kind", DRAWS)
def test_a_change_of_a_pairs_inputs_gives_legal_numbers(kind: str) -> None:
    draw, legal = DRAWS[kind]
    pair = Pair("a:f", "a:g", inputs={"x": draw}, dims={"N": (3,)}, framework="torch")
    assert unseen.free(pair) == ("x",)
    for name in unseen.usual(pair):
        assert legal(pair.given(pair.spec(N=3, regime=name))["x"]), name


@pytest.mark.parametrize(
    ("draw", "words"),
    [(simplex(""), "has at least one dim"), (spd("N M"), "are square"), (spd("N"), "are square")],
)
def test_a_shape_that_the_kind_cannot_have_is_refused(draw: Draw, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Pair("a:f", "a:g", inputs={"x": draw}, dims={"N": (3,), "M": (2,)}, framework="torch")


FAULTS: dict[str, tuple[Draw, Rule]] = {
    "tiny positive numbers": (
        positive("N"),
        Rule(lambda xp, x: xp.log(x), lambda xp, x: 1 / x, lambda xp, x: x < 1e-3),
    ),
    "the upper border": (
        between("N", 0, 1),
        Rule(lambda xp, x: x * x, lambda xp, x: 2 * x, lambda xp, x: x >= 1),
    ),
    "certain events": (
        simplex("N"),
        Rule(lambda xp, x: x**3, lambda xp, x: 3 * x * x, lambda xp, x: x > 0.9999),
    ),
    "large distinct numbers": (
        distinct("N"),
        Rule(lambda xp, x: x * x, lambda xp, x: 2 * x, lambda xp, x: x > 500),
    ),
}
"""Where a gradient is wrong -> how the input is drawn, and the function."""


def judged_on(framework: str, fault: str, k: float) -> Any:
    pytest.importorskip(framework)
    draw, rule = FAULTS[fault]
    made = {"jax": behind_decisions.in_jax, "torch": behind_decisions.in_torch}[framework]
    pair = Pair(
        made(rule, k),
        behind_decisions.reference(framework, rule.forward),
        inputs={"x": draw},
        dims={"N": (5, 4)},
        framework=framework,
        name="legal",
    )
    return judged(pair, ("gradient_exact",))["gradient_exact"]


@pytest.mark.parametrize("framework", ["jax", "torch"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_legal_numbers_that_no_draw_has_is_found(framework: str, fault: str) -> None:
    found = judged_on(framework, fault, 1.1)
    assert found.verdict == "refuted", found.reason
    assert found.spec["regime"].startswith("unseen: ")
    right = judged_on(framework, fault, 1.0)
    assert right.verdict == "upheld", right.reason


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_what_is_not_legal_is_not_tried(framework: str) -> None:
    """The gradient is wrong below zero, where a positive input never is."""
    pytest.importorskip(framework)
    rule = Rule(lambda xp, x: xp.log(abs(x)), lambda xp, x: 1 / x, lambda xp, x: x < 0)
    made = {"jax": behind_decisions.in_jax, "torch": behind_decisions.in_torch}[framework]

    def at(draw: Draw) -> str:
        pair = Pair(
            made(rule, 1.1),
            behind_decisions.reference(framework, rule.forward),
            inputs={"x": draw},
            dims={"N": (5, 4)},
            framework=framework,
            name="signed",
        )
        return judged(pair, ("gradient_exact",))["gradient_exact"].verdict

    assert at(positive("N")) == "upheld"
    assert at(gradgate.normal("N")) == "refuted"
