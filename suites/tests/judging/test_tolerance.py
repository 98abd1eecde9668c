"""The rule of equality on constructed cases, and on planted errors in every shape of the vocabulary."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradgate.references import oracle, registry
from gradgate.references.backends import UNIT_ROUNDOFF
from gradgate.references.oracle import Reference
from gradgate.suites.engine.strategies import edge_specs
from gradgate.suites.exact import truth
from gradgate.suites.judging.tolerance import (
    FLUSHED,
    GROWTH,
    KAPPA,
    Comparison,
    compare,
    compare_value,
    own_truth,
)

DTYPES = ["float64", "float32", "bfloat16"]


def reference(noise: float = 0.0, loss: float = 1.0, **grads: Any) -> Reference:
    leaves = {name: np.asarray(leaf, float) for name, leaf in grads.items()}
    return Reference(loss, leaves, dict.fromkeys(["", *leaves], noise))


def in_roundoffs(noise: float, dtype: str) -> float:
    return noise * UNIT_ROUNDOFF[dtype]


def judge(got: Any, exact: Any, dtype: str = "float64", noise: float = 0.0, kappa: float = KAPPA) -> Comparison:
    """Compare a leaf of norm `exact` with the error `got`, and a right leaf of norm 1; `noise` is in roundoffs."""
    ref = reference(in_roundoffs(noise, dtype), a=[exact, 0.0], b=[1.0])
    return compare({"a": np.array([exact, got]), "b": np.array([1.0])}, ref, dtype, kappa)


def test_the_oracle_itself_is_equal_with_no_error() -> None:
    ref = reference(a=[3.0, 4.0], b=[[1e-200]], c=[1e100])
    found = compare(ref.grads, ref, "float64", KAPPA)
    assert (found.equal, found.error, found.ratio, found.wrong) == (True, 0.0, 0.0, {})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("noise", [0.0, 1.0, 8.0, 1e3])
@pytest.mark.parametrize("size", [2.0, 0.1, 1e3])
def test_the_bound_is_kappa_roundoffs_of_the_noise_or_of_the_floor(dtype: str, noise: float, size: float) -> None:
    bound = KAPPA * UNIT_ROUNDOFF[dtype] * max(noise, GROWTH * size)
    assert judge(0.999 * bound, size, dtype, noise).equal
    found = judge(1.001 * bound, size, dtype, noise)
    assert (found.equal, found.leaf) == (False, "a")
    assert found.error == pytest.approx(1.001 * bound / size)
    assert found.ratio == pytest.approx(1.001 * KAPPA)
    assert found.wrong == {"a": found.error}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_number_below_the_smallest_normal_one_may_be_zero_and_no_other(dtype: str) -> None:
    least = FLUSHED[dtype]
    assert least == float(np.finfo("float32").tiny)
    for size, may in ((0.99, True), (2.0, False)):
        ref = reference(a=np.full(3, size * least), loss=size * least)
        assert compare({"a": np.zeros(3)}, ref, dtype).equal == may
        assert compare_value(0.0, ref, dtype).equal == may
    assert not compare({"a": np.full(3, np.nan)}, reference(a=np.full(3, 0.1 * least)), dtype).equal


def test_float32_is_allowed_what_float64_is_not() -> None:
    assert judge(1e-6, 1.0, "float32").equal
    assert not judge(1e-6, 1.0, "float64").equal


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_zero_leaf_is_compared_with_the_scale_of_the_whole_gradient(dtype: str) -> None:
    u = UNIT_ROUNDOFF[dtype]
    ref = reference(zero=[0.0, 0.0], other=[30.0, 40.0])
    for share, equal in ((0.99, True), (1.01, False)):
        got = {"zero": np.array([0.0, share * KAPPA * GROWTH * u * 50.0]), "other": ref.grads["other"]}
        found = compare(got, ref, dtype, KAPPA)
        assert found.equal is equal
        assert found.leaf == "zero"
        assert found.error == pytest.approx(share * KAPPA * GROWTH * u)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_methods_own_gradient_of_a_zero_leaf_is_no_scale(dtype: str) -> None:
    u = UNIT_ROUNDOFF[dtype]
    true = reference(x=[3.0, 4.0], y=[0.0])
    run = {name: np.asarray(leaf) for name, leaf in {"x": [3.0, 4.0], "y": [8 * u]}.items()}
    again = {**run, "y": np.asarray([-8 * u])}
    assert not compare(again, dataclasses.replace(true, grads=run), dtype).equal
    assert compare(again, own_truth(true, run, dtype), dtype).equal
    assert not compare({**run, "y": np.asarray([1e3 * u])}, own_truth(true, run, dtype), dtype).equal
    wrong = {**run, "x": np.asarray([3.0, 4.0 + 1e3 * u])}
    assert not compare(wrong, own_truth(true, run, dtype), dtype).equal


def test_a_leaf_that_is_small_but_not_zero_keeps_its_own_scale() -> None:
    ref = reference(small=[1e-12], other=[1.0])
    assert not compare({"small": np.array([1.01e-12]), "other": np.array([1.0])}, ref, "float64", KAPPA).equal


def test_a_gradient_that_is_zero_everywhere_is_compared_with_one() -> None:
    ref = reference(a=[0.0, 0.0], b=[0.0])
    assert compare(ref.grads, ref, "float64", KAPPA).equal
    bound = KAPPA * GROWTH * UNIT_ROUNDOFF["float64"]
    assert compare({**ref.grads, "b": np.array([0.99 * bound])}, ref, "float64", KAPPA).equal
    assert not compare({**ref.grads, "b": np.array([1.01 * bound])}, ref, "float64", KAPPA).equal


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("exact", [1.0, 0.0])
def test_what_is_not_finite_is_never_equal_to_a_finite_oracle(value: float, exact: float) -> None:
    found = judge(value, exact, noise=1e30)
    assert (found.equal, found.leaf, found.ratio) == (False, "a", math.inf)
    assert list(found.wrong) == ["a"]


def test_nan_in_one_leaf_does_not_hide_a_wrong_one() -> None:
    ref = reference(a=[1.0], b=[1.0], c=[1.0])
    got = {"a": np.array([math.nan]), "b": np.array([2.0]), "c": np.array([1.0])}
    assert set(compare(got, ref, "float64", KAPPA).wrong) == {"a", "b"}


def test_where_plain_backprop_overflows_nothing_is_said_but_nan_is_still_refuted() -> None:
    ref = reference(math.inf, a=[1.0])
    for value in (1.0, -3.0, 1e30):
        found = compare({"a": np.array([value])}, ref, "float32", KAPPA)
        assert (found.equal, found.ratio) == (True, 0.0)
    assert not compare({"a": np.array([math.nan])}, ref, "float32", KAPPA).equal


def test_every_wrong_leaf_is_listed_and_the_worst_is_named() -> None:
    ref = reference(a=[1.0], b=[1.0], c=[1.0])
    found = compare({"a": np.array([1.1]), "b": np.array([1.5]), "c": np.array([1.0])}, ref, "float64", KAPPA)
    assert found.leaf == "b"
    assert found.wrong == pytest.approx({"a": 0.1, "b": 0.5})


def test_some_of_the_leaves_may_be_judged_alone() -> None:
    ref = reference(a=[1.0], b=[1.0])
    assert compare({"b": np.array([1.0])}, ref, "float64", KAPPA).equal


@pytest.mark.parametrize("factor", [2.0, -0.375, 3.3125, 1e-3])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_an_upstream_factor_scales_the_oracle_and_its_noise(factor: float, dtype: str) -> None:
    ref = reference(in_roundoffs(100.0, dtype), a=[1.0, 2.0], zero=[0.0])
    scaled = {name: factor * leaf for name, leaf in ref.grads.items()}
    assert compare(scaled, ref, dtype, KAPPA, factor).ratio == 0.0
    assert not compare(ref.grads, ref, dtype, KAPPA, factor).equal
    plain = compare({"a": np.array([1.0, 2.0 + 1e-9]), "zero": np.zeros(1)}, ref, dtype, KAPPA)
    same = compare({"a": factor * np.array([1.0, 2.0 + 1e-9]), "zero": np.zeros(1)}, ref, dtype, KAPPA, factor)
    assert same.ratio == pytest.approx(plain.ratio, rel=1e-6)


@settings(derandomize=True, database=None, deadline=None, max_examples=200)
@given(
    st.floats(1e-20, 1e3),
    st.floats(0, 1e6),
    st.sampled_from(DTYPES),
    st.floats(1, 1e4),
    st.floats(1, 100),
)
def test_a_larger_kappa_never_refutes_what_a_smaller_accepts(
    error: float, noise: float, dtype: str, kappa: float, more: float
) -> None:
    small, large = (judge(error, 1.0, dtype, noise, k) for k in (kappa, kappa * more))
    assert large.equal or not small.equal
    assert small.error == large.error
    assert small.ratio >= large.ratio


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_a_method_may_lose_knowingly_is_added_and_does_not_multiply_the_floor(dtype: str) -> None:
    u, kappa = UNIT_ROUNDOFF[dtype], 1024.0
    ref = dataclasses.replace(reference(a=[1.0]), lost={"": 0.0, "a": 3 * u})
    bound = KAPPA * GROWTH * u + (kappa - KAPPA) * 3 * u
    for share, equal in ((0.99, True), (1.01, False)):
        assert compare({"a": np.array([1.0 + share * bound])}, ref, dtype, kappa).equal is equal
    assert not compare({"a": np.array([1.0 + 2 * KAPPA * GROWTH * u])}, reference(a=[1.0]), dtype, kappa).equal


def test_the_truth_has_more_digits_than_float64() -> None:
    ref = dataclasses.replace(reference(a=[1.0]), rest={"a": np.array([2.0**-54])})
    found = compare({"a": np.array([1.0])}, ref, "float64")
    assert found.error == 2.0**-54


@settings(derandomize=True, database=None, deadline=None, max_examples=200)
@given(st.floats(1e-20, 1e3), st.floats(0, 1e6), st.floats(1, 100))
def test_more_noise_never_refutes_what_less_accepts(error: float, noise: float, more: float) -> None:
    assert judge(error, 1.0, noise=noise * more).equal or not judge(error, 1.0, noise=noise).equal


@pytest.mark.parametrize("loss", [3.0, -3.0, 0.0])
def test_the_loss_is_judged_by_the_same_rule(loss: float) -> None:
    ref = reference(in_roundoffs(2.0, "float64"), loss, a=[1.0])
    bound = KAPPA * UNIT_ROUNDOFF["float64"] * max(2.0, GROWTH * (abs(loss) or 1.0))
    assert compare_value(loss, ref, "float64").ratio == 0.0
    assert compare_value(loss + 0.9 * bound, ref, "float64").equal
    assert not compare_value(loss + 1.2 * bound, ref, "float64").equal
    assert not compare_value(math.nan, ref, "float64").equal
    assert not compare_value(math.inf, ref, "float64").equal


def test_a_loss_from_rebuilt_states_may_be_off_by_their_rounding_and_no_more() -> None:
    noise, lost = in_roundoffs(2.0, "float64"), in_roundoffs(200.0, "float64")
    ref = dataclasses.replace(reference(noise, 3.0, a=[1.0]), lost={"": lost})
    bound = KAPPA * max(noise, GROWTH * 3.0 * UNIT_ROUNDOFF["float64"]) + KAPPA * lost
    assert compare_value(3.0 + 0.9 * bound, ref, "float64", 2 * KAPPA).equal
    assert not compare_value(3.0 + 1.2 * bound, ref, "float64", 2 * KAPPA).equal
    assert not compare_value(3.0 + 0.9 * bound, ref, "float64").equal


SHAPES = edge_specs(registry.family("state_space"), None, seed=0)
IDS = [f"shape{i}" for i in range(len(SHAPES))]


def alive(ref: Reference) -> list[str]:
    whole = math.sqrt(sum(float(np.sum(g * g)) for g in ref.grads.values()))
    return [name for name, leaf in ref.grads.items() if np.linalg.norm(leaf) > 1e-12 * whole]


def planted(ref: Reference, leaf: str, size: float) -> dict[str, Any]:
    return {**ref.grads, leaf: ref.grads[leaf] * (1 + size)}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("spec", SHAPES, ids=IDS)
def test_plain_backprop_is_equal_on_every_shape(spec: Any, dtype: str, torch: Any) -> None:
    problem = dataclasses.replace(spec, dtype=dtype).build("torch")
    found = compare(oracle.split(problem, oracle.gradient(problem)[1]), truth.reference(spec, "torch", dtype), dtype)
    assert found.equal, (spec, dtype, found)


@pytest.mark.parametrize("spec", SHAPES, ids=IDS)
def test_a_planted_error_of_1e_10_in_any_leaf_is_refuted_in_float64_on_every_shape(spec: Any, torch: Any) -> None:
    ref = truth.reference(spec, "torch", "float64")
    assert alive(ref), spec
    for leaf in alive(ref):
        found = compare(planted(ref, leaf, 1e-10), ref, "float64")
        assert list(found.wrong) == [leaf], (spec, leaf, found)


@pytest.mark.parametrize("spec", SHAPES, ids=IDS)
def test_a_planted_error_of_1e_5_is_refuted_in_float32_wherever_backprop_itself_has_the_digits(
    spec: Any, torch: Any
) -> None:
    ref = truth.reference(spec, "torch", "float32")
    for leaf in alive(ref):
        relative = ref.noise[leaf] / float(np.linalg.norm(ref.grads[leaf]))
        size = max(1e-5, 1.01 * KAPPA * relative)  # 1e-5, or more if κ times the noise of backprop is larger
        found = compare(planted(ref, leaf, size), ref, "float32")
        assert list(found.wrong) == [leaf], (spec, leaf, found)
        assert size < 0.02, f"float32 backprop has lost nearly every digit of {leaf}: {spec}"
