"""What the figures of the paper are measured by: each measurement has a twin that it tells from it."""

from __future__ import annotations

from typing import Any

from gradgate.references.performer.paper import depth, rows


def test_the_discrepancy_of_slices_is_rounding_and_a_small_error_in_one_leaf_is_not(jax: Any) -> None:
    from gradgate.references.performer.in_jax.methods import full

    def wrong(problem: Any) -> Any:
        loss, grads = full(problem)
        head = {**grads["head"], "w": grads["head"]["w"] * (1 + 1e-4)}
        return loss, {**grads, "head": head}

    assert 0 < rows.discrepancy_at_64(length=130) < 1e-5
    assert rows.discrepancy_at_64(gradient=wrong, length=130) > 1e-5


def test_iterations_token_by_token_are_not_as_shallow_as_prefix_sums(jax: Any) -> None:
    assert depth.doubling("full") == 1
    assert depth.doubling("full_iterative", prefix_sum="iterative") > 1.9


def test_a_slice_of_iterations_is_not_as_shallow_as_one_of_prefix_sums(jax: Any) -> None:
    assert depth.doubling("slim", chunk=8, prefix_sum="explicit") == 2
    assert depth.chain("slim", 64, chunk=32, prefix_sum="iterative") > depth.chain(
        "slim", 64, chunk=32, prefix_sum="explicit"
    )
