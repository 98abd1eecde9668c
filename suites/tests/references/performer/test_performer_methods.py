"""The Performer's methods, beyond their claims: which leaves the errata spoil, and what subtraction loses."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from gradgate.references import oracle
from gradgate.references.contract import IllegalOption, UsageError
from gradgate.references.performer.problem import PerformerSpec
from gradgate.references.performer.slicing import block_size
from gradgate.suites.exact import truth
from gradgate.suites.judging.tolerance import compare
from gradgate.suites.tests.references import gradients

run = functools.partial(gradients.run, "performer")
worst = functools.partial(gradients.worst, "performer")


def wrong(method: str, spec: Any, **options: Any) -> set[str]:
    """The leaves that differ from backprop in PyTorch. Their names are given without the layer number."""
    _, grads = run("torch", method, spec, **options)
    found = compare(grads, truth.reference(spec, "torch", "float64"), "float64", kappa=4096).wrong
    return {leaf.partition(".")[2] or leaf for leaf in found}


@pytest.mark.parametrize("prefix_sum", ["explicit", "iterative", "block", "matrix"])
@pytest.mark.parametrize("chunk", [1, 3, 4, 12, 13, 100])
def test_slim_is_exact_for_every_chunk_and_prefix_sum(chunk: int, prefix_sum: str, torch: Any) -> None:
    spec = PerformerSpec(length=13, layers=2, seed=1, dropout=0.2)
    assert worst("torch", "slim", spec, chunk=chunk, prefix_sum=prefix_sum) < 1000


@pytest.mark.parametrize(("chunk", "prefix_sum"), [(4, "block"), (13, "explicit"), (5, "matrix")])
def test_slim_is_exact_in_jax_too(chunk: int, prefix_sum: str, jax: Any) -> None:
    spec = PerformerSpec(length=13, layers=2, seed=1, dropout=0.2)
    assert worst("jax", "slim", spec, chunk=chunk, prefix_sum=prefix_sum) < 1000


def test_both_frameworks_give_one_gradient_under_dropout(jax: Any, torch: Any) -> None:
    spec = PerformerSpec(length=6, dropout=0.5, seed=2)
    (ours, mine), (theirs, other) = (run(f, "slim_kept", spec, chunk=4) for f in ("jax", "torch"))
    assert ours == pytest.approx(theirs, rel=1e-13)
    assert mine.keys() == other.keys()
    assert all(mine[name] == pytest.approx(other[name], rel=1e-9, abs=1e-12) for name in mine)


@pytest.mark.parametrize(
    ("term", "leaf"), [("key", "attention.key"), ("query", "attention.query"), ("suffix", "attention.value")]
)
def test_each_printed_term_spoils_its_own_projection_in_the_last_layer(term: str, leaf: str, torch: Any) -> None:
    spec = PerformerSpec(length=5, layers=1, heads=2, head_width=3, task="window", seed=4)
    right = {"attention.query", "attention.key", "attention.value"} - {leaf}
    found = wrong("block_printed", spec, term=term)
    assert leaf in found
    assert not (right - {"attention.key" if term == "suffix" else ""}) & found
    assert not {"feed_forward.w1", "feed_forward.w2", "norms.gain1", "w", "b"} & found


def test_one_by_one_as_printed_spoils_the_keys_alone_in_the_last_layer(torch: Any) -> None:
    spec = PerformerSpec(length=5, layers=1, heads=2, head_width=3, task="window", seed=4)
    found = wrong("one_by_one_printed", spec)
    assert "attention.key" in found
    assert not {"attention.query", "attention.value", "feed_forward.w1", "norms.gain1", "w", "b"} & found
    assert not wrong("full_iterative", spec, prefix_sum="iterative")


def test_the_printed_block_backward_has_the_right_loss(framework: str) -> None:
    spec = PerformerSpec(length=5, seed=4)
    assert run(framework, "block_printed", spec)[0] == pytest.approx(run(framework, "full", spec)[0], rel=1e-14)


def test_sharp_random_features_lose_their_digits_to_subtraction_and_not_to_kept_states(torch: Any) -> None:
    spec = PerformerSpec(length=24, feature_map="favor", features=4, sharpness=3.0, seed=5)
    assert worst("torch", "slim", spec, chunk=1) > 1e6
    assert worst("torch", "slim_kept", spec, chunk=1, every=1) < 16
    assert worst("torch", "slim_kept", spec, chunk=6, every=1, prefix_sum="iterative") < 16


def test_bfloat16_states_lose_nothing_over_a_long_sequence(torch: Any) -> None:
    spec = PerformerSpec(length=300, layers=1, heads=1, dtype="bfloat16", seed=6)
    reference = oracle.measure(oracle.in_widest(spec, "torch", "bfloat16"), "bfloat16")
    _, grads = run("torch", "slim", spec, chunk=7)
    assert compare(grads, reference, "bfloat16").equal


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("slim", {"chunk": 0}, "chunk must be an integer of at least 1, not 0"),
        (
            "slim",
            {"chunk": 2, "prefix_sum": "parallel"},
            "prefix_sum must be explicit, iterative, matrix or block, not 'parallel'",
        ),
        ("slim_kept", {"chunk": 2, "every": 0}, "every must be an integer of at least 1, not 0"),
        ("block_printed", {"term": "value"}, "term must be all, key, query or suffix, not 'value'"),
    ],
)
def test_an_illegal_option_is_refused_with_the_legal_values(
    method: str, options: dict[str, Any], message: str, framework: str
) -> None:
    with pytest.raises(IllegalOption) as caught:
        run(framework, method, PerformerSpec(), **options)
    assert str(caught.value) == message


@pytest.mark.parametrize(("tokens", "size"), [(1, 1), (2, 2), (5, 3), (64, 8), (4096, 64), (10**6, 64)])
def test_blocks_are_as_long_as_the_root_of_the_slice_up_to_the_papers_64(tokens: int, size: int) -> None:
    assert block_size("block", tokens) == size
    assert block_size("iterative", tokens) == 1
    assert block_size("matrix", tokens) == min(tokens, 64)


def test_a_training_in_slices_stays_as_close_as_rounding_and_a_wrong_gradient_does_not(jax: Any) -> None:
    from gradgate.references.performer.in_jax.methods import full, slim
    from gradgate.references.performer.paper import training

    spec = PerformerSpec(length=6, layers=1, task="copying", vocabulary=4, seed=7)

    def sliced(problem: Any) -> Any:
        return slim(problem, chunk=2)

    def wrong(problem: Any) -> Any:
        # Adam divides a gradient by its size, so a leaf that is wrong by a factor would change nothing.
        loss, grads = full(problem)
        return loss, {**grads, "embedding": grads["embedding"] + 1e-8 * problem.params["embedding"]}

    plain = training.train(spec, full, 12)
    allowed = training.KAPPA * training.distance(training.train(spec, full, 12, moved=True), plain)
    assert 0 < training.distance(training.train(spec, sliced, 12), plain) <= allowed
    assert training.distance(training.train(spec, full, 12, then=sliced), plain) <= allowed
    assert training.distance(training.train(spec, wrong, 12), plain) > allowed
    assert plain.losses[-1] != plain.losses[0]


@pytest.mark.parametrize("fields", [{"dropout": 0.4}, {"norm": "pre", "feature_map": "favor", "features": 3}])
def test_reversible_layers_give_the_gradient_of_backprop_without_their_inputs(
    fields: dict[str, Any], torch: Any
) -> None:
    spec = PerformerSpec(length=11, layers=3, residual="reversible", seed=3, **fields)
    assert worst("torch", "slim_reversible", spec, chunk=4) < 1000
    assert worst("torch", "slim", spec, chunk=4) < 1000
    plain = PerformerSpec(length=11, layers=3, seed=3, **fields)
    assert run("torch", "slim", spec, chunk=4)[0] != run("torch", "slim", plain, chunk=4)[0]


def test_layers_that_cannot_be_undone_are_refused_with_what_to_do(framework: str) -> None:
    with pytest.raises(UsageError) as caught:
        run(framework, "slim_reversible", PerformerSpec(), chunk=2)
    assert str(caught.value) == (
        "slim_reversible undoes reversible layers, and the problem has residual='plain': build it with "
        "residual='reversible', or call slim_checkpointed"
    )
    with pytest.raises(UsageError, match="layer norm after the addition cannot be undone"):
        PerformerSpec(residual="reversible", norm="post")
