"""Trainings on scikit-learn's digits: how the digits are loaded, and how drift differs from overflow."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest

from gradgate.references.invertible.paper import digits
from gradgate.references.invertible.paper.rows import PUBLISHED
from gradgate.suites.measuring import paper_results


def test_without_scikit_learn_the_digits_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(LookupError, match=r"the digits are scikit-learn's .*: pip install scikit-learn"):
        digits.digits(4)


def test_digits_are_padded_with_channels_of_0(monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.arange(128.0).reshape(2, 64) % 17
    module = types.ModuleType("sklearn.datasets")
    module.load_digits = lambda return_X_y: (images, np.array([3, 7]))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sklearn.datasets", module)
    xs, classes = digits.digits(4)
    assert xs.shape == (2, 8, 8, 4)
    assert xs[1, 2, 3, 0] == np.float32(images[1, 19] / 16)
    assert not xs[..., 1:].any()
    assert classes.tolist() == [3, 7]


def test_a_gradient_that_is_not_finite_has_overflown_and_a_finite_wrong_one_has_drifted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = np.array([[1e-6, 1e-5, 2.0], [1.0, np.nan, np.inf], [np.nan, np.nan, np.nan]])
    trained = {"accuracy": np.full((3, 3), 0.5), "error": error, "final": np.array([0.5, 0.7, 0.9])}
    monkeypatch.setattr(digits, "_trained", lambda *given: trained)
    found = digits.curves("reversible", 1.0, 3 * digits.EVERY, 3)
    assert found["drifted"] == [1, 1, 0]
    assert found["overflowed"] == [0, 2, 3]
    assert found["error"] == [1e-5, 1.0, None]
    assert digits.lost("reversible", 1.0, 3 * digits.EVERY, 3) == 100
    assert digits.final_accuracy("reversible", 1.0, 3 * digits.EVERY, 3) == pytest.approx(70)


def test_two_starts_train_at_once_and_end_in_different_places(jax: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 10, 64).astype(np.int32)
    xs = np.zeros((64, 8, 8, 4), np.float32)
    xs[np.arange(64), classes % 8, :, 0] = 1.0
    monkeypatch.setattr(digits, "digits", lambda channels: (xs, classes))
    trained = digits._trained("moonwalk_mixed", 0.3, digits.EVERY + 1, 2)
    digits._trained.cache_clear()
    assert trained["accuracy"].shape == (2, 2)
    assert trained["accuracy"][1].mean() > trained["accuracy"][0].mean()
    assert (trained["error"] < 1e-3).all()
    assert trained["error"][0, 0] != trained["error"][0, 1]


def test_the_reason_about_35_epochs_quotes_what_is_recorded() -> None:
    place = "§6.6, 35 epochs of the digits"
    kept = paper_results.read(paper_results.results_path("invertible"))["results"]
    (curves,) = (row["ours"] for row in kept if row["place"] == place)
    (told,) = (row.reason for row in PUBLISHED if row.place == f"{place}, in words" and row.reason)
    late = [error for step, error in zip(curves["step"], curves["error"], strict=True) if step >= 842]
    lost = [*zip(curves["step"], map(max, curves["drifted"], curves["overflowed"]), strict=True)]
    assert max(starts for _, starts in lost) == 1
    assert f"one start of ten is lost at step {next(step for step, starts in lost if starts)}" in told
    assert f"grew from {curves['error'][0]:.0e} to {max(late):.0e}".replace("e-0", "e-") in told
