"""What a kept figure depends on: a count by older rules is not reused after the rules of counting change."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gradgate.suites.gate.overlay import Overlay
from gradgate.suites.gate.side import Side
from gradgate.suites.imports import strings_of
from gradgate.suites.keeping import keys
from gradgate.suites.keeping.keys import MEASURING, Keys

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Side:
    monkeypatch.chdir(ROOT)
    return Side({"own": True, "paths": Overlay.make(tmp_path / "import", ROOT, judge=ROOT).paths})


def test_the_key_of_a_figure_has_the_rules_of_counting_in_it(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = next(cell for known in side.methods.values() for cell in known.cells(("cpu",)))
    places = strings_of(cell.declared)
    key = side.keys.figure(places, cell.to_dict())
    assert Keys(ROOT).figure(places, cell.to_dict()) == key
    monkeypatch.setattr(keys, "COUNTING", "as it was before")
    assert Keys(ROOT).figure(places, cell.to_dict()) != key


def test_the_key_of_a_figure_has_the_text_of_the_counters_in_it(side: Side) -> None:
    read = side.keys.closure(MEASURING, [])
    assert {f"gradgate.hw_profiles.{name}" for name in ("work", "work_rules", "contraction", "torch_work")} <= set(read)
    assert "gradgate.suites.checks.form" not in read


def test_a_side_whose_parent_ends_before_it_asks_ends_too() -> None:
    side = subprocess.run(
        [sys.executable, "-m", "gradgate.suites.gate.side"], stdin=subprocess.DEVNULL, capture_output=True, timeout=60
    )
    assert (side.returncode, side.stdout) == (0, b"")
