"""A newer version of a library is found by pip, judged, and told as the text of an issue."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gradgate.suites.gallery import judge, newer
from gradgate.suites.tests.gallery.wheels import PAIR, library, wheel

pytest.importorskip("pip")
if os.name == "nt":
    pytest.skip("needs process groups", allow_module_level=True)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Library files: pip finds a newer tiny, whose factor is wrong, and no package called absent."""
    for version, factor in (("1.0", 6), ("2.0", 7)):
        wheel(tmp_path / "wheels", "tiny", version, f"FACTOR = {factor}\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("GRADGATE_CACHE", str(tmp_path / "cache"))
    text = PAIR.replace("FACTOR", "tiny.FACTOR").replace("import torch\n", "import tiny\nimport torch\n", 1)
    library(tmp_path, "tiny", "tiny==1.0", text)
    library(tmp_path, "absent", "absent==1.0", PAIR)
    library(tmp_path, "last", "tiny==2.0", text)
    (tmp_path / "findings.toml").write_text("")
    was = {"schema": 1, "name": "tiny", "pairs": {"scaled": {"verdicts": {"upheld": 9}}}}
    (tmp_path / "results.json").write_text(json.dumps({"schema": 1, "rows": [was]}))
    return tmp_path


def asked(place: Path, *names: str) -> int:
    where = ("--folder", place, "--report", place / "report", "--environments", place / "environments")
    return newer.main([*names, "--jobs", "1", "--examples", "2", *map(str, where)])


def test_a_newer_version_is_judged_and_what_changed_is_an_issue(place: Path) -> None:
    pytest.importorskip("torch")
    assert asked(place, "tiny") == 0
    told = (place / "report" / "newer.md").read_text(encoding="utf-8")
    assert "## tiny 1.0 → 2.0" in told
    assert "`scaled`: 9 upheld → " in told
    assert "unexplained: scaled gradient_float64" in told
    assert (place / "tiny.py").read_text().count('"tiny==1.0"') == 1, "the pin is a person's to move"


def test_without_a_newer_version_there_is_no_issue(place: Path) -> None:
    assert asked(place, "last") == 0
    assert not (place / "report").exists()


def test_what_pip_does_not_find_is_told(place: Path) -> None:
    assert asked(place, "absent", "last") == 2
    assert "absent" in (place / "report" / "newer.md").read_text(encoding="utf-8")
    assert asked(place, "misspelt") == 3


def test_verdicts_of_two_versions_are_compared() -> None:
    quiet: dict[str, Any] = {"state": judge.JUDGED, "scripts": [], "unexplained": [], "gone": [], "unsteady": []}
    one = {**quiet, "pairs": {"a": {"verdicts": {"upheld": 2}}}}
    two = {**quiet, "pairs": {"a": {"verdicts": {"upheld": 1, "refuted": 1}}, "b": {"verdicts": {"upheld": 1}}}}
    assert newer.changes(one, one) == ["every verdict is the same"]
    assert newer.changes(one, two) == ["`a`: 2 upheld → 1 upheld, 1 refuted", "`b`: not judged → 1 upheld"]
    assert newer.changes(one, two | {"state": judge.INSTALL, "reason": "no wheel"}) == [f"{judge.INSTALL}: no wheel"]


@pytest.mark.parametrize(
    ("within", "every", "lines"),
    [("1.0", "1.0", 0), ("1.1", "1.1", 1), ("1.0", "2.0", 2), ("1.1", "2.0", 2)],
)
def test_a_framework_is_newer_within_its_range_or_beyond(
    within: str, every: str, lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = {
        "project": {"optional-dependencies": {"jax": ["jax>=0.9,<2"]}},
        "dependency-groups": {"history": ["jax==1.0", "jaxlib==1.0", {"include-group": "test"}]},
    }
    monkeypatch.setattr(newer, "newest", lambda asked: within if "<" in asked else every)
    found = newer.of_framework("jax", project)
    assert len(found.lines if found else ()) == lines
    if found:
        assert (found.old, found.new) == ("1.0", within)
        assert ("out of the range" in found.lines[-1]) == (every == "2.0")
