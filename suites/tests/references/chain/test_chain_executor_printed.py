"""Alg. 3.5 is right if its base case and line 12 are corrected. Stack frames that keep cotangents raise its peak."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from gradgate.references.chain.paper import as_printed, executor_printed


def test_corrected_it_gives_the_gradient_of_plain_backprop_and_as_printed_it_does_not() -> None:
    assert executor_printed.right() == executor_printed.right(handed=True) == 100.0
    assert executor_printed.right(base_printed=True) == 0.0
    assert 0.0 < executor_printed.right(layer_printed=True) < 100.0


def test_frames_that_keep_their_cotangents_raise_the_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    assert executor_printed.kept_by_frames() > 20
    monkeypatch.setattr(executor_printed.Executor, "handed", property(lambda self: True, lambda self, value: None))
    assert executor_printed.kept_by_frames() == pytest.approx(0)


def test_a_policy_is_that_of_the_solver() -> None:
    ones = [1] * 6
    costs = as_printed.Printed(ones, ones, ones, ones)
    assert as_printed.policy(costs, 4)(0, 5, 3) == 4  # everything recomputed: the sweep goes to the end
    assert as_printed.policy(costs, 20)(0, 5, 19) == 1  # nothing recomputed: every value is stored
