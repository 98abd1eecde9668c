"""The exact values that floats are compared with."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from gradgate.references import oracle, registry
from gradgate.references.backends import UNIT_ROUNDOFF
from gradgate.suites.engine.strategies import covering
from gradgate.suites.exact import truth

FAMILIES = sorted(registry.families())


def largest(family: str) -> Any:
    return registry.spec_class(family)(**covering(registry.family(family))[-1], seed=3)


@pytest.mark.parametrize("family", FAMILIES)
def test_jax_and_pytorch_have_the_same_truth_to_twice_the_digits_of_float64(family: str, jax: Any, torch: Any) -> None:
    ours, theirs = (truth.of_spec(largest(family), backend, "", "loss", ()) for backend in ("jax", "torch"))
    assert ours is not None
    assert theirs is not None
    size = np.linalg.norm(ours.high)
    assert np.linalg.norm((ours.high - theirs.high) + (ours.low - theirs.low)) <= 1e-28 * size


@pytest.mark.parametrize("family", FAMILIES)
def test_float64_backprop_strays_from_the_truth_by_its_rounding(family: str, framework: str) -> None:
    spec = largest(family)
    ref = truth.reference(spec, framework, "float64")
    problem = oracle.in_widest(spec, framework, "float64")
    strayed = [np.linalg.norm(g - ref.grads[k]) for k, g in oracle.split(problem, oracle.gradient(problem)[1]).items()]
    whole = float(np.linalg.norm([np.linalg.norm(leaf) for leaf in ref.grads.values()]))
    assert 0 < max(strayed) < 1e8 * UNIT_ROUNDOFF["float64"] * whole
    assert max(float(np.abs(rest).max(initial=0.0)) for rest in ref.rest.values()) <= UNIT_ROUNDOFF["float64"] * whole


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_the_truth_of_both_frameworks_is_evaluated_once(
    family: str, dtype: str, jax: Any, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = largest(family)
    shared = truth.reference(spec, "torch", dtype)
    monkeypatch.setattr(truth, "_held_together", lambda _: False)
    own = truth.reference(spec, "torch", dtype)
    assert shared.noise == own.noise
    for name, leaf in own.grads.items():
        apart = (shared.grads[name] - leaf) + (shared.rest[name] - own.rest[name])
        assert np.linalg.norm(apart) <= 1e-28 * float(np.linalg.norm([np.linalg.norm(g) for g in own.grads.values()]))


def test_only_classes_whose_oracles_are_compared_share_their_truth() -> None:
    assert all(truth._held_together(truth._place(registry.spec_class(family))) for family in FAMILIES)
    assert not truth._held_together(truth._place(type("Own", (registry.spec_class("chain"),), {})))


def test_the_low_part_is_what_float64_cannot_hold(framework: str) -> None:
    found = truth.of_spec(largest("chain"), framework, "", "loss", ())
    assert found is not None
    assert (np.abs(found.low) <= UNIT_ROUNDOFF["float64"] * np.abs(found.high)).all()
    assert found.low.any()


def test_the_truth_of_bfloat16_is_that_of_its_rounded_numbers(framework: str) -> None:
    spec = largest("state_space")
    plain, rounded = (truth.of_spec(spec, framework, narrow, "loss", ()) for narrow in ("", "bfloat16"))
    assert plain is not None
    assert rounded is not None
    assert not np.allclose(plain.high, rounded.high, rtol=1e-6)


def test_a_vector_gives_the_hessian_times_it(torch: Any) -> None:
    spec = dataclasses.replace(largest("chain"), layers=2)
    problem = spec.build("torch")
    vector = oracle.random_direction(problem, 1)
    found = truth.of_problem(problem, "loss", {}, vector)
    assert found is not None
    value, product = oracle.gradient(problem, vector=vector)
    flat = np.concatenate([np.ravel(float(value)), *(leaf.ravel() for leaf in oracle.split(problem, product).values())])
    assert np.allclose(found.high, flat, rtol=1e-10)
