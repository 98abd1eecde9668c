"""Every known regression is a row with figures or a reason, and the rule tells a rise from none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gradgate.references.contract import UsageError
from gradgate.suites import guide
from gradgate.suites.releases import known

ROW = '[[regression]]\nname = "one"\nthread = "a/b#1"\nreported = "twice the bytes"\n'


def declared(tmp_path: Path, text: str, figures: dict[str, object] | None = None) -> Path:
    (tmp_path / known.ROWS).write_text(text)
    (tmp_path / known.MEASURED).write_text(json.dumps(figures or {}))
    return tmp_path


def test_every_row_has_figures_or_says_why_not() -> None:
    figures = known.measured()
    for row in known.rows():
        if row.way == "none":
            continue
        found = figures.get(row.key)
        assert found, f"{row.key} was not measured: nox -s releases -- known {row.name}"
        caught = found["verdict"] == "RISE"
        assert caught or row.cause, f"{row.key} is {found['verdict']}, and cause does not say why"
        assert not (caught and found["after"] <= found["before"])


def test_at_least_six_threads_are_tried_and_one_is_caught() -> None:
    figures = known.measured()
    tried = {row.thread for row in known.rows() if row.key in figures}
    assert len(tried) >= 6
    assert any(found["verdict"] == "RISE" for found in figures.values())


def test_every_program_exists() -> None:
    text = {name: (known.FOLDER / f"{name}.py").read_text() for name in ("programs", "gated")}
    for row in known.rows():
        if row.way == "probe":
            assert f"def {row.name}(" in text["programs"]
        if row.way == "gate":
            assert f"\n{row.name} = gradgate.Pair(" in text["gated"]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [(10, 11, "RISE"), (10, 10, "the same"), (11, 10, "fell"), (None, 10, "not measured"), (10, None, "not measured")],
)
def test_any_rise_counts(before: int | None, after: int | None, said: str) -> None:
    assert known.verdict(before, after) == said


def test_the_table_names_what_was_caught_and_what_was_not(tmp_path: Path) -> None:
    compiled = f'{ROW}way = "probe"\nprofile = "cpu"\nbefore = "0.7.1"\nafter = "0.7.2"\n\n'
    rows = f'{compiled}{ROW}way = "none"\ncause = "No wheel."\n'
    key = "a/b#1 one cpu 0.7.1 0.7.2 probe"
    risen = known.table(declared(tmp_path, rows, {key: {"before": 10, "after": 20, "verdict": "RISE"}}))
    assert "| 10 → 20 | **caught.** |" in risen
    assert "| – | not caught. No wheel. |" in risen
    equal = known.table(declared(tmp_path, rows, {key: {"before": 10, "after": 10, "verdict": "the same"}}))
    assert "**caught.**" not in equal


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ('way = "none"\n', "cause has to say why"),
        ('way = "guess"\n', "way must be gate, none or probe, not 'guess'"),
        ('wya = "none"\n', "wya"),
    ],
)
def test_a_wrong_row_is_refused(tmp_path: Path, more: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        known.rows(declared(tmp_path, ROW + more))


def test_the_gates_document_becomes_figures() -> None:
    rise = {"quantity": "temp_bytes", "kind": "rise", "base": 5.0, "head": 7.0, "sentence": ""}
    assert known.of_gate({"findings": [rise]}) == {"before": 5, "after": 7, "verdict": "RISE", "reason": ""}
    assert known.of_gate({"findings": []})["verdict"] == "the same"
    lost = {"quantity": "", "kind": "unmeasured", "base": None, "head": None, "sentence": "failed on the base"}
    assert known.of_gate({"findings": [lost]})["verdict"] == "not measured"


def test_the_probe_prints_bytes_or_a_reason() -> None:
    pytest.importorskip("jax")

    def probe(name: str) -> dict[str, object]:
        command = [sys.executable, str(known.FOLDER / "probe.py"), name]
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
        return dict(json.loads(ran.stdout.splitlines()[-1]))

    assert probe("donated_across_a_loop")["alias_bytes"] == 4 << 20
    assert "AttributeError" in str(probe("nothing")["reason"])


def test_the_guide_has_the_rows_of_today() -> None:
    page = (Path(guide.__file__).parent / "releases.md").read_text(encoding="utf-8")
    for line in known.table().splitlines():
        assert not line.startswith("|") or line in page, f"suites/guide/releases.md lacks: {line}"
