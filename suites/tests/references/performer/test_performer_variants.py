"""Figures about other layers and about Eq. 2 and 21–23: each must change when what it measures is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from gradgate.references.contract import Backend, UsageError
from gradgate.references.performer.paper import variants
from gradgate.references.performer.problem import PerformerSpec


@pytest.mark.parametrize("fields", [{"residual": "gated"}, {"residual": "reversible"}, {"feature_map": "sum"}], ids=str)
def test_algorithm_1_runs_other_layers_and_a_wrong_gradient_is_seen(fields: dict[str, Any], torch: Any) -> None:
    assert 0 < variants.distance("torch", **fields) < 1e-10
    assert variants.distance("torch", wrong=1e-4, **fields) > 1e-7


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_algorithm_1_runs_relu_and_a_wrong_gradient_is_seen(framework: Backend, jax: Any, torch: Any) -> None:
    assert 0 < variants.with_relu(framework) < 1e-10
    assert variants.with_relu(framework, wrong=1e-4) > 1e-7


def test_shared_weights_get_the_sum_over_layers_and_a_share_counted_twice_is_seen(torch: Any) -> None:
    assert variants.shared("torch") < 1e-10
    assert variants.shared("torch", wrong=1.0) > 0.1


def test_a_layer_that_is_undone_adds_no_bytes_and_one_that_is_kept_does(torch: Any) -> None:
    kept = variants.layer_bytes("torch", "slim")
    assert kept > 4 * 2 * 32  # at least its input, two streams of 32 numbers
    assert variants.layer_bytes("torch", "slim_reversible") < 0.1 * kept


def test_a_zero_query_has_no_quotient_and_others_have() -> None:
    assert variants.divided() == 0
    assert variants.divided(zero=False) == 1


def test_only_a_sum_is_linear_in_its_state() -> None:
    assert variants.bends("Performer") == 0
    assert min(variants.bends("RNN"), variants.bends("Residual")) > 0.1


def test_a_sum_with_several_features_is_refused() -> None:
    with pytest.raises(UsageError, match="a layer that sums has one feature: leave features at 0, not 3"):
        PerformerSpec(feature_map="sum", features=3)
