"""Equations of §2.1, §3 and App. A: each figure is as declared, and shows what is wrong or left out."""

from __future__ import annotations

from typing import Any

import pytest

from gradgate.references.derived import is_derived
from gradgate.references.performer.paper import equations
from gradgate.references.published import judge
from gradgate.references.registry import load


@pytest.mark.parametrize("row", [row for row in equations.ROWS if not is_derived(row)], ids=lambda row: row.name)
def test_the_figures_are_as_declared(row: Any, jax: Any) -> None:
    judged = judge(row, load(row.measured)(**row.arguments))
    assert judged is not None
    assert judged.outcome == "upheld"


@pytest.mark.parametrize("kind", ["exponential", "first", "second", "prefix", "model"])
def test_the_next_token_does_change_and_no_earlier_one(kind: str) -> None:
    assert equations.later_tokens(kind) == 0.0 < equations.later_tokens(kind, reach=1)


def test_forms_of_eq_2_with_other_keys_differ_and_so_does_eq_1() -> None:
    assert min(equations.forms(kind, squares=False) for kind in ("second", "prefix")) > 0.01
    assert equations.forms("exponential") > 0.01


def test_slices_in_another_order_give_another_loss_and_reach_each_other(jax: Any) -> None:
    assert equations.sliced_loss(swapped=True) > 0.01
    assert min(equations.unaffected(by, swapped=True) for by in ("θ", "𝓑")) > 0.01


def test_states_that_are_not_held_carry_a_slice_to_the_later_ones(jax: Any) -> None:
    assert equations.only_through() == 0.0
    assert min(equations.only_through(held) for held in range(equations.SPEC.layers)) > 0.01


@pytest.mark.parametrize("left_out", [0, 1, 2])
def test_the_share_of_a_slice_that_is_left_out_is_seen(left_out: int, jax: Any) -> None:
    assert equations.summed(left_out) > 0.01


def test_many_features_are_not_much_less_than_the_model_and_sums_one_by_one_are_deeper(jax: Any) -> None:
    assert equations.formula_ratio(12_000) < 1
    assert equations.chain_in_blocks() > 1
