"""The Performer problem: what it computes, its dropout, its guard, its tasks and its files."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradgate.references import registry
from gradgate.references.backends import leaves, precision, to_numpy, tree_map
from gradgate.references.contract import UsageError
from gradgate.references.performer import tokens
from gradgate.references.performer.features import orthogonal_rows, random_features
from gradgate.references.performer.problem import PerformerSpec
from gradgate.references.registry import load
from gradgate.suites.engine.strategies import edge_specs
from gradgate.suites.exact import truth
from gradgate.suites.judging.tolerance import compare

EDGES = edge_specs(registry.family("performer"), None, seed=3)


def wide(spec: PerformerSpec) -> Any:
    """The NumPy problem in extended precision."""
    return dataclasses.replace(spec, dtype="longdouble").build("numpy")


@pytest.mark.parametrize("spec", EDGES, ids=lambda spec: f"{spec.feature_map}-{spec.norm}-{spec.task}-{spec.length}")
def test_the_loss_is_the_same_in_numpy_and_pytorch(spec: Any, torch: Any) -> None:
    exact, problem = wide(spec), spec.build("torch")
    assert float(problem.loss(problem.params)) == pytest.approx(float(exact.loss(exact.params)), rel=1e-12)


def test_the_loss_is_the_same_in_jax(jax: Any) -> None:
    spec = PerformerSpec(dropout=0.3, feature_map="favor", features=3, batch=2)
    exact = wide(spec)
    with precision("jax", "float64"):
        problem = spec.build("jax")
        assert float(problem.loss(problem.params)) == pytest.approx(float(exact.loss(exact.params)), rel=1e-12)


def test_attention_is_the_weighted_mean_of_the_values_so_far() -> None:
    problem = wide(PerformerSpec(length=4, layers=1, heads=2, head_width=3))
    X = np.random.default_rng(0).standard_normal((4, 1, 6))
    p = problem.layer(problem.params, 0)
    q, k, v = problem.project(p, X)
    T, (_, same) = problem.F(problem.params, 0, X)
    assert np.array_equal(same, q)
    out = problem.contract(problem.prefix_sum(T), q)
    for position in range(4):
        weights = np.einsum("bkm,lbkm->lbk", q[position], k[: position + 1])
        assert np.allclose(out[position, ..., :-1], np.einsum("lbk,lbkd->bkd", weights, v[: position + 1, ..., :-1]))
        assert np.allclose(out[position, ..., -1], weights.sum(0))


@pytest.mark.parametrize("cut", [1, 2, 4])
def test_slices_of_the_maps_are_the_maps_of_the_whole(cut: int) -> None:
    problem = wide(PerformerSpec(length=5, layers=1, dropout=0.5, norm="pre"))
    X = problem.embed(problem.params["embedding"], 0, 5)
    T, gamma = problem.F(problem.params, 0, X)
    U = problem.prefix_sum(T)
    whole = problem.G(problem.params, 0, U, gamma)
    tail = problem.G(problem.params, 0, U[cut:], (X[cut:], gamma[1][cut:]), start=cut)
    assert np.allclose(whole[cut:], tail, rtol=1e-15)
    shares = problem.slice_loss(problem.params, whole[:cut]) + problem.slice_loss(problem.params, whole[cut:], cut)
    assert float(shares) == pytest.approx(float(problem.slice_loss(problem.params, whole)), rel=1e-14)
    assert np.array_equal(problem.embed(problem.params["embedding"], cut, 5 - cut), X[cut:])


def test_dropout_drops_its_share_of_the_numbers_and_keeps_their_mean() -> None:
    from gradgate.references.performer.dropout import scaled_mask

    like = np.zeros((500, 2, 40))
    masks = [scaled_mask(np, like, 0.25, np.int32(7), place, 0) for place in (1, 2)]
    for mask in masks:
        assert set(np.unique(mask)) == {0.0, 1 / 0.75}
        assert mask.mean() == pytest.approx(1.0, abs=0.01)
    assert abs(np.corrcoef(masks[0].ravel(), masks[1].ravel())[0, 1]) < 0.02
    assert abs(np.corrcoef(masks[0][1:].ravel(), masks[0][:-1].ravel())[0, 1]) < 0.02
    assert not np.array_equal(masks[0], scaled_mask(np, like, 0.25, np.int32(8), 1, 0))


@pytest.mark.parametrize("leaf", ["query", "key"])
def test_a_zero_denominator_gives_a_finite_loss_and_gradient(leaf: str, framework: str) -> None:
    spec = PerformerSpec(length=3)
    with precision(framework, "float64"):
        problem = spec.build(framework)
        attention = {**problem.params["layers"]["attention"], leaf: 0 * problem.params["layers"]["attention"][leaf]}
        dead = problem.with_params({**problem.params, "layers": {**problem.params["layers"], "attention": attention}})
        for method, options in (("full", {}), ("slim", {"chunk": 1}), ("slim_kept", {"chunk": 2})):
            function = load(registry.methods("performer", method, framework)[0].implementation)
            loss, grads = function(dead, **options)
            assert np.isfinite(float(loss))
            assert all(np.isfinite(to_numpy(g)).all() for g in leaves(grads))


def test_random_features_are_positive_and_their_products_estimate_the_exponential() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((2, 4)) * 0.5
    projection = orthogonal_rows(rng.standard_normal((40_000, 4)), "numpy", "float64")
    assert abs(projection[0] @ projection[1]) < 1e-6
    features = [random_features(np, v[None], projection)[0] for v in (x, y)]
    assert all((f > 0).all() for f in features)
    assert features[0] @ features[1] == pytest.approx(np.exp(x @ y / 2), rel=0.01)


def test_the_copying_task_repeats_its_word_and_counts_the_second_half_only() -> None:
    problem = PerformerSpec(task="copying", length=8, vocabulary=5, batch=3).build("numpy")
    ids, targets = problem.data["tokens"], problem.data["targets"]
    assert (ids[[0, 4]] == 0).all()
    assert (ids[1:4] == ids[5:]).all()
    assert (ids[1:4] > 0).all()
    assert (targets[:4] == -1).all()
    assert (targets[4:7] == ids[5:]).all()
    assert (targets[7] == -1).all()
    assert (targets >= 0).sum() == 3 * tokens.counted("copying", 8)


def test_a_sequence_of_one_token_without_target_has_loss_and_gradient_zero(torch: Any) -> None:
    problem = PerformerSpec(length=1).build("torch")
    loss, grads = load("gradgate.references.performer.in_torch.methods:slim")(problem, chunk=3)
    assert float(loss) == 0
    assert all(not leaf.any() for leaf in leaves(grads))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"features": 3}, "the square makes head_width features: leave features at 0, not 3"),
        ({"task": "copying", "length": 5}, "length of the copying task must be even and at least 4, not 5"),
        ({"norm": "layer"}, "unknown norm 'layer'; legal: post, pre, sublayer.*"),
        ({"vocabulary": 1}, "vocabulary must be at least 2, not 1"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, not 1.0"),
        ({"heads": 0}, "heads must be at least 1, not 0"),
        ({"sharpness": 0.0}, "sharpness must be positive, not 0.0"),
    ],
)
def test_an_impossible_spec_is_refused_in_words(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        PerformerSpec.from_json(json.dumps(fields))
    assert re.fullmatch(message, str(caught.value)), caught.value


def test_a_missing_file_is_named_with_where_it_comes_from(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"cannot read .*ptb\.char\.valid\.txt \(No such file.*\): expected is the Penn"
    ):
        tokens.penn_treebank(tmp_path, "valid")
    (tmp_path / "enwik8").write_bytes(b"abc")
    with pytest.raises(UsageError, match=r"enwik8 has 3 bytes; enwik8 has 100,000,000"):
        tokens.enwik8(tmp_path)
    with pytest.raises(UsageError, match=r"unknown split 'dev'; legal: test, train, valid"):
        tokens.enwik8(tmp_path, "dev")


def test_penn_treebank_characters_become_bytes(tmp_path: Path) -> None:
    (tmp_path / "ptb.char.train.txt").write_text("a _ b\nc d\n")
    assert bytes(tokens.penn_treebank(tmp_path).astype(np.uint8)) == b"a b\ncd"


def test_the_gradient_is_that_of_the_other_framework(torch: Any, jax: Any) -> None:
    ours, theirs = (truth.reference(EDGES[7], backend, "float64") for backend in ("torch", "jax"))
    assert compare(theirs.grads, ours, "float64", kappa=64).equal


def test_a_problem_survives_new_parameters() -> None:
    problem = PerformerSpec().build("numpy")
    doubled = problem.with_params(tree_map(lambda leaf: 2 * leaf, problem.params))
    assert float(doubled.loss(doubled.params)) != float(problem.loss(problem.params))
