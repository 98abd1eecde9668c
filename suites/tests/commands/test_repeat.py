"""Claims judged again under other seeds: what is repeated, what is reported, and that a stopped run continues."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradgate.references import registry
from gradgate.references.laws import CHECKS as LAWS

ONE = ("--family", "state_space", "--framework", "torch", "--examples", 1, "--jobs", 1)


def _state(path: Path) -> tuple[dict[str, list[int]], list[tuple[str, int]]]:
    found = json.loads(path.read_text())
    return found["judged"], [(row["claim"], row["seed"]) for row in found["flakes"]]


def test_a_verdict_other_than_declared_is_named_with_its_seed_and_kept(
    gradgate: Callable[..., Any], tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "kept.json"
    # The only problem here has length 1, and at length 1 the misprinted count is right.
    first = gradgate("repeat", 2, "--method", "adjoint_truncated", *ONE, "--json", path)
    judged, flakes = _state(path)
    [method] = registry.methods("state_space", "adjoint_truncated", "torch")
    assert set(judged) == {f"{method.key}:{c.name}" for c in method.claims if c.check not in LAWS}
    assert all(sorted(seeds) == [1, 2] for seeds in judged.values())
    assert flakes == [("vjp_count_printed", 1), ("vjp_count_printed", 2)]
    assert first.status == 1
    named = "• state_space:adjoint_truncated:torch:vjp_count_printed under seed 2"
    assert f"{named}: failure: upheld, declared false" in first.out
    assert "under 2 seeds: 1 with another verdict" in first.out

    again = gradgate("repeat", 2, "--method", "adjoint_truncated", *ONE, "--json", path)
    assert again.status == 1
    assert "verdicts reused" in again.err, "what is unchanged is not judged again"
    assert _state(path)[1] == flakes
    three = gradgate("repeat", 3, "--method", "adjoint_truncated", *ONE, "--minutes", "0.0001", "--json", path)
    assert "verdicts are missing; the next run goes on" in three.out
    assert three.status == 1
    assert {3} == {seed for seeds in _state(path)[0].values() for seed in seeds} - {1, 2}


def test_the_first_seed_can_be_named(gradgate: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "kept.json"
    assert gradgate("repeat", 2, "--first", 7, "--method", "backprop", *ONE, "--json", path).status == 0
    assert all(sorted(seeds) == [7, 8] for seeds in _state(path)[0].values())
    assert gradgate("repeat", 2, "--first", 0, "--method", "backprop", *ONE).status == 3


def test_a_file_of_another_kind_is_refused(gradgate: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "mine.json"
    path.write_text("[]")
    ran = gradgate("repeat", 1, "--method", "backprop", *ONE, "--json", path)
    assert ran.status == 3
    assert path.read_text() == "[]"
    assert gradgate("repeat", 0, "--family", "state_space").status == 3
