"""The measurements behind the paper's figures: each one must give another result for a wrong or different program."""

from __future__ import annotations

import functools
from typing import Any

from gradgate.references.performer.paper import costs, depth, rows, training
from gradgate.references.performer.problem import PerformerSpec


def test_the_discrepancy_of_slices_is_rounding_and_a_small_error_in_one_leaf_is_not(jax: Any) -> None:
    from gradgate.references.performer.in_jax.methods import full

    def wrong(problem: Any) -> Any:
        loss, grads = full(problem)
        head = {**grads["head"], "w": grads["head"]["w"] * (1 + 1e-4)}
        return loss, {**grads, "head": head}

    assert 0 < rows.discrepancy_at_64(length=130) < 1e-5
    assert rows.discrepancy_at_64(gradient=wrong, length=130) > 1e-5


def test_a_training_on_text_in_slices_stays_as_close_as_rounding_and_a_gradient_wrong_by_1e_4_does_not(
    jax: Any,
) -> None:
    from gradgate.references.performer.in_jax.methods import full

    def wrong(problem: Any) -> Any:
        # Adam ignores a factor on a whole leaf, so a small part of its neighbour is added to each number.
        loss, grads = full(problem)
        query = grads["layers"]["attention"]["query"]
        mixed = {**grads["layers"]["attention"], "query": query + 1e-4 * jax.numpy.roll(query, 1, axis=-1)}
        return loss, {**grads, "layers": {**grads["layers"], "attention": mixed}}

    right = training.on_text(steps=12)
    assert right["distance"] < 1e-6
    assert max(right["bits"].values()) - min(right["bits"].values()) < 1e-9
    assert training.on_text(steps=12, gradient=wrong)["distance"] > 1e-6


def test_iterations_token_by_token_are_not_as_shallow_as_prefix_sums(jax: Any) -> None:
    assert depth.doubling("full") == 1
    assert depth.doubling("full_iterative", prefix_sum="iterative") > 1.9


def test_a_slice_of_iterations_is_not_as_shallow_as_one_of_prefix_sums(jax: Any) -> None:
    assert depth.doubling("slim", chunk=8, prefix_sum="explicit") == 2
    assert depth.chain("slim", 64, chunk=32, prefix_sum="iterative") > depth.chain(
        "slim", 64, chunk=32, prefix_sum="explicit"
    )


def test_the_gradient_of_a_batch_is_the_sum_over_its_sequences_and_a_wrong_share_is_seen(torch: Any) -> None:
    assert costs.accumulated() < 1e-12
    assert costs.accumulated(wrong=1e-4) > 1e-6


def test_favor_estimates_stray_less_with_more_features() -> None:
    assert costs.favor_error(64) < 0.7 * costs.favor_error(16)
    assert abs(costs.favor_mean() - 1) < 0.01


def test_counts_of_the_paper_depend_on_what_is_counted(jax: Any) -> None:
    assert costs.skipping() == 64 * 16 + 1024
    assert 2.0 < costs.forward_over_formula() < 2.1
    assert 1.9 < costs.backward_over_forward() < 2.1


def test_checkpoints_in_a_slice_keep_a_third_of_what_twelve_layers_keep_without(torch: Any) -> None:
    from gradgate.hw_profiles.torch_memory import peak
    from gradgate.references.backends import leaves
    from gradgate.references.performer.in_torch import methods

    problem = PerformerSpec(dtype="float32", length=32, layers=12, heads=1, head_width=4, expansion=4).build("torch")
    held = leaves([problem.params, problem.data])
    kept, again = (
        peak(functools.partial(method, chunk=32), (problem,), held).activation_bytes
        for method in (methods.slim, methods.slim_checkpointed)
    )
    assert again < kept / 3
