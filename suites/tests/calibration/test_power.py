"""Planted errors: the smallest that verify's rules detect, and the alarms that calibration counts."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import pytest

from gradgate.references import registry
from gradgate.references.backends import tree_map
from gradgate.suites.calibration import alarms, power
from gradgate.suites.commands import calibrate
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.subject import Subject

FLOORS = {"float64": (1e-11, 20), "float32": (3e-5, 20), "bfloat16": (0.2, 100)}
"""The largest planted error that may pass, and the number of problems.

In bfloat16 an error is refuted by many problems together, so more of them are needed.
"""


@functools.cache
def smallest_of(dtype: str) -> dict[str, power.Smallest]:
    """Kind of leaf -> what is refuted in a method of chain."""
    return power.smallest(Subject.load(registry.methods("chain", "revolve", "torch")[0]), dtype, Run(FLOORS[dtype][1]))


@pytest.mark.parametrize("dtype", FLOORS)
def test_an_error_in_any_leaf_is_seen(dtype: str) -> None:
    assert "layers[].w" in smallest_of(dtype)
    assert max(one.delta for one in smallest_of(dtype).values()) <= FLOORS[dtype][0]
    assert min(one.delta for one in smallest_of(dtype).values()) > power.PLANTED[dtype][0]


def test_in_bfloat16_what_is_refuted_is_not_far_above_the_bound_that_is_derived() -> None:
    for one in smallest_of("bfloat16").values():
        assert one.bound is not None
        assert 0.5 * one.bound < one.delta < 2 * one.bound, one
        assert one.to_list() == [f"{one.delta:g}", one.leaf, f"{one.bound:.2g}"]
    assert all(one.bound is None for one in smallest_of("float32").values())


def test_a_method_that_allows_itself_more_is_seen_less() -> None:
    subject = Subject.load(registry.methods("chain", "revolve", "torch")[0])
    lax = Subject.load(dataclasses.replace(subject.declared, kappa=4096.0))
    strict, loose = (power.smallest(one, "float32", Run(20)) for one in (subject, lax))
    assert all(loose[kind].delta > 10 * strict[kind].delta for kind in strict)


def test_right_methods_raise_no_alarm_and_a_broken_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = alarms.measure("chain", "torch", seed=3, start=0, count=12)
    assert sound["alarms"] == []
    assert sound["problems"] == 12
    assert set(sound["ratios"]) == set(alarms.DTYPES)

    def loaded(family: str, method: str, framework: str) -> Subject:
        subject = Subject.load(registry.methods(family, method, framework)[0])
        if method == "revolve":
            plain = subject.function
            subject.function = lambda problem, **options: _scaled(plain(problem, **options))
        return subject

    monkeypatch.setattr(alarms, "_subject", loaded)
    broken = alarms.measure("chain", "torch", seed=3, start=0, count=12)
    assert {alarm["method"] for alarm in broken["alarms"]} == {"chain:revolve:torch"}


def _scaled(answer: Any) -> Any:
    loss, grads = answer
    return loss, tree_map(lambda leaf: leaf * (1 + 1e-3), grads)


def test_the_figures_of_a_family_hold_both() -> None:
    pieces = {
        "alarms:torch:0": alarms.measure("chain", "torch", seed=3, start=0, count=4),
        "power:torch:revolve": {"float32": {"layers[].w": ["2e-06", "layers[0].w"]}},
    }
    found = calibrate.figure(pieces)
    assert (found["problems"], found["false_alarms"]) == (4, 0)
    assert found["judgements"] == sum(found["methods"].values()) == 4 * len(alarms.methods("chain", "torch"))
    assert found["sixty_digits"] == 4
    assert found["float32"]["smallest_seen"] == {"revolve:torch": {"layers[].w": ["2e-06", "layers[0].w"]}}
    assert found["float64"]["smallest_seen"] == {}


def test_a_method_that_claims_no_exact_gradient_is_left_out() -> None:
    estimators = {m.name for m in registry.methods("invertible", None, "torch")}
    assert "projected_forward" in estimators
    assert "projected_forward" not in {m.name for m in alarms.methods("invertible", "torch")}


def test_the_bound_of_a_kind_of_leaf_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    seen = {"bfloat16": {"layers[].w": ["0.04", "layers[3].w", "0.02"], "layers[].b": ["0.01", "layers[0].b"]}}
    calibrate._print("chain", calibrate.figure({"power:torch:revolve": seen}))
    told = "refuted from 0.04 on (layers[3].w needs the most; bound on a common factor: 0.02)"
    assert told in capsys.readouterr().out
