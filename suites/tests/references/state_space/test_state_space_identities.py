"""Equations of §2, §3 and App. A.3: each figure is as declared, and shows a term that is left out."""

from __future__ import annotations

from typing import Any

import pytest

from gradgate.references.published import judge
from gradgate.references.registry import load
from gradgate.references.state_space.paper import costs, identities


@pytest.mark.parametrize("row", identities.ROWS, ids=lambda row: row.name)
def test_the_figures_are_as_declared(row: Any, jax: Any) -> None:
    judged = judge(row, load(row.measured)(**row.arguments))
    assert judged is not None
    assert judged.outcome == "upheld"


@pytest.mark.parametrize("layer", [1, 2, 3, 4])
@pytest.mark.parametrize("structure", identities.STRUCTURES)
def test_a_layer_that_is_left_out_of_the_sum_is_seen(structure: str, layer: int) -> None:
    assert identities.residual_sum(structure, left_out=layer) > 0.01


def test_derivatives_without_one_of_their_terms_are_seen(jax: Any) -> None:
    assert identities.residual_derivative(through_inputs=False) > 0.01
    assert abs(identities.total_derivative(through_state=False) - 1) > 0.01
    assert abs(identities.nested(first_state=False) - 1) > 0.01
    assert abs(identities.example(swapped=True) - 1) > 0.01


def test_products_explode_without_a_bound() -> None:
    for structure in identities.STRUCTURES:
        assert identities.selective_norm(structure) <= 1 < identities.selective_norm(structure, bounded=False)


def test_work_of_a_product_of_three_matrices_grows_with_another_power(
    jax: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def linear(length: int) -> Any:
        shapes = jax.ShapeDtypeStruct((length, 64), "float32"), jax.ShapeDtypeStruct((64, 64), "float32")
        return (lambda x, w: x @ w), shapes

    monkeypatch.setattr(costs, "_attention", linear)
    assert costs.attention_work_exponent() == pytest.approx(1.0)
