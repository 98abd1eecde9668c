"""What a kept figure depends on: a count by older rules is not taken for one by today's."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradgate.suites.gate.overlay import Overlay
from gradgate.suites.gate.side import Side
from gradgate.suites.keeping import keys
from gradgate.suites.keeping.keys import MEASURING

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Side:
    monkeypatch.chdir(ROOT)
    return Side({"own": True, "paths": Overlay.make(tmp_path / "import", ROOT, judge=ROOT).paths})


def test_the_key_of_a_figure_has_the_rules_of_counting_in_it(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = next(cell for known in side.methods.values() for cell in known.cells(("cpu",)))
    key = side._figure_key(cell)
    assert side._figure_key(cell) == key
    monkeypatch.setattr(keys, "COUNTING", "as it was before")
    assert side._figure_key(cell) != key


def test_the_key_of_a_figure_has_the_text_of_the_counters_in_it(side: Side) -> None:
    read = side.imports.closure(MEASURING).files
    assert {f"gradgate.hw_profiles.{name}" for name in ("work", "work_rules", "contraction", "torch_work")} <= set(read)
    assert "gradgate.suites.checks.form" not in read
