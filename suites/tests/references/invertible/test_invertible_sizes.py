"""Statements about n, d, bytes, seconds and directions: each measurement tells a right case from a wrong one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from gradgate.references.backends import leaves, to_numpy
from gradgate.references.invertible.paper import digits, directions, parts, rows, sizes, timings
from gradgate.references.invertible.problem import InvertibleSpec
from gradgate.references.published import judge


def _error(ours: Any, exact: Any) -> float:
    pairs = zip(leaves(ours), leaves(exact), strict=True)
    return max(float(np.abs(to_numpy(a) - to_numpy(b)).max()) for a, b in pairs)


def _built(jax: Any, **fields: Any) -> Any:
    return InvertibleSpec(layers=2, channels=2, batch=2, classes=2, **fields).build("jax")


def test_forward_mode_by_suffixes_and_unrolled_forward_give_the_gradient(jax: Any) -> None:
    with jax.enable_x64(True):
        problem = _built(jax)
        exact = rows._method("backprop")(problem)[1]
        for method in (sizes.by_suffixes, timings.unrolled):
            assert _error(method(problem)[1], exact) < 1e-12
        wrong = problem.with_params(
            {**problem.params, "head": {**problem.params["head"], "w": 0 * problem.params["head"]["w"]}}
        )
        assert _error(sizes.by_suffixes(wrong)[1], exact) > 1e-3


def test_work_over_n_rises_for_moonwalk_and_stays_for_mixed(jax: Any) -> None:
    assert sizes.small_over_large("moonwalk", 2, 8) < 0.6
    assert sizes.small_over_large("moonwalk_mixed", 2, 8) == pytest.approx(1, abs=0.05)


def test_one_jvp_per_column_grows_with_d_and_n_jvps_per_layer_do_not(jax: Any) -> None:
    assert sizes.work_with_wide("forward", 4, 8) > 1.5
    assert sizes.work_with_wide("by_suffixes", 4, 8) == pytest.approx(1, abs=0.15)


def test_the_worst_case_needs_couplings_that_are_wide_inside() -> None:
    pytest.importorskip("torch")
    assert sizes.worst_case(256, 6, 64) == pytest.approx(1, abs=0.15)
    assert sizes.worst_case(2, 6, 64) < 0.9


def test_the_error_of_a_projection_is_the_sine_of_the_angle_and_not_the_angle(jax: Any) -> None:
    assert directions.error_over_sine(0.5, 1) == pytest.approx(1, abs=1e-9)
    assert directions.error_over_sine(1.4, 1) * math.sin(1.4) / 1.4 < 0.8


@pytest.mark.parametrize(("power", "expected"), [(1, 4), (2, 16), (0.5, 2)])
def test_bytes_that_grow_otherwise_than_with_the_layers_are_seen(
    power: float, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "_temporaries", lambda program, layers, profile: 1000 + layers**power)
    assert parts.phase_one_reverse() == pytest.approx(expected)


@pytest.mark.parametrize("scale", ["line", "power"])
def test_a_network_between_the_printed_ones_has_the_ratio_of_300_days_and_a_deeper_one_has_a_larger(scale: str) -> None:
    assert sizes.layers_of_ratio(1839 / 67, scale) == pytest.approx(6 / 30)
    assert sizes.layers_of_ratio(80_000 / 700, scale) == pytest.approx(60 / 30)
    assert 20 / 30 < sizes.layers_of_ratio(300 / 5, scale) < 1
    found = [row for row in rows.PUBLISHED if row.place == "§6.4, days of Forward" and f" {scale} " in str(row.x)]
    told = [judge(row, sizes.layers_of_ratio(ratio, scale)) for row in found for ratio in (60.0, 90.0)]
    assert [one.outcome for one in told if one] == ["upheld", "not as declared"]


def test_columns_through_layers_of_n_squared_do_not_grow_with_d(jax: Any) -> None:
    assert sizes.columns_growth(22, 82) == pytest.approx(1.127, abs=0.1)
    assert sizes.columns_growth(1, 4) > 1.5, "below n the factor is d"


def test_printed_seconds_grow_like_the_work_of_n_jvps(jax: Any) -> None:
    assert sizes.seconds_by_growth("moonwalk") == pytest.approx(700, rel=0.1)
    assert sizes.seconds_by_growth("forward") > 80_000 > 1839 * sizes.seconds_by_growth("moonwalk") / 67


def test_a_batch_that_batch_norm_joins_takes_a_jvp_per_sample(jax: Any) -> None:
    joined, apart = (sizes.least_seconds("moonwalk", 6, norm) for norm in ("batch", "none"))
    assert joined > 67 > apart
    assert joined / apart == pytest.approx(512, rel=0.2)


def test_how_far_apart_two_trainings_end(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = {"backprop": [[3.0, 4.0]], "same": [[3.0, 4.0]], "other": [[3.0, -1.0]]}
    start = np.zeros((1, 2))
    monkeypatch.setattr(digits, "_trained", lambda name, *given: {"start": start, "end": np.array(ends[name])})
    assert (digits.apart("same"), digits.apart("other")) == (0.0, 1.0)
