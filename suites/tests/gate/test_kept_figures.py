"""A figure that was counted by older rules is not reused, and the process of a side imports what is judged once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gradgate.hw_profiles.cache import Cache
from gradgate.references.errors import UsageError
from gradgate.suites.gate import side as sides
from gradgate.suites.gate.overlay import Overlay
from gradgate.suites.gate.process import SideProcess, Unmeasurable
from gradgate.suites.gate.side import Server, Side
from gradgate.suites.imports import strings_of
from gradgate.suites.keeping import keys
from gradgate.suites.keeping.answers import Answers
from gradgate.suites.keeping.keys import MEASURING, Keys
from gradgate.suites.keeping.present import Present
from gradgate.suites.keeping.store import Store

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


def test_a_side_imports_its_tree_once_however_many_requests_it_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    sent: list[dict[str, Any]] = []

    class Known:
        def __init__(self, request: dict[str, Any]) -> None:
            made.append(request)

        def describe(self) -> dict[str, Any]:
            return {"methods": []}

        def measure(self, rows: list[Any], send: Any) -> None:
            if rows == ["wrong"]:
                raise UsageError("so it is")
            send({"figure": rows})

        def record(self) -> dict[str, Any]:
            return {}

    monkeypatch.setattr(sides, "Side", Known)
    server = Server(sent.append)
    server.serve({})
    server.serve({"describe": False, "measure": [1]})
    assert sent == [{"side": {"methods": []}}, {"answered": True}, {"figure": [1]}, {"answered": True}]
    assert made == [{}]
    server.serve({"describe": False, "measure": ["wrong"]})
    assert sent[4:] == [{"usage": "so it is"}], "an error ends an answer, too"


def test_what_cannot_be_kept_is_said_with_its_reason(side: Side, tmp_path: Path) -> None:
    store = Store(Cache(tmp_path / "cache"))
    answers = Answers(store, Present(ROOT, store), side.keys.imports)
    answers.put("a question", {}, {"one": {"unrepeatable": ["it read the clock"]}}, {})
    assert answers.not_kept("figures") == ["figures that cannot be kept for the next run: it read the clock"]
    answers = Answers(store, Present(ROOT, store), side.keys.imports)
    answers.put("a question", {}, {"one": {}}, {})
    assert answers.not_kept("figures") == []


ANSWERING = """#!/bin/sh
read request
echo '{"figure": 1}'
echo '{"answered": true}'
read request
echo "no memory" >&2
exit 7
"""


@pytest.mark.skipif(os.name == "nt", reason="needs a shell")
def test_a_side_that_dies_is_told_with_its_last_words_after_what_it_has_answered(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(ANSWERING)
    python.chmod(0o755)
    request = {"limit": 5.0, "timeout": 5.0}
    with SideProcess(str(python), Overlay(tmp_path, ()), "the head") as process:
        assert list(process.ask(request)) == [{"figure": 1}]
        with pytest.raises(Unmeasurable, match="the head: its process ended with status 7: no memory"):
            list(process.ask(request))
    absent = SideProcess(str(tmp_path / "absent"), Overlay(tmp_path, ()), "the base")
    with absent, pytest.raises(UsageError, match="the base: cannot run"):
        list(absent.ask(request))
