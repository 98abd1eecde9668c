"""Library files and findings are read, wrong ones are refused in words, and verdicts are compared with findings."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from gradgate.references.errors import UsageError
from gradgate.suites.gallery import declared, metadata
from gradgate.suites.tests.gallery.wheels import library
from gradgate.suites.workers.shards import Shard

PIN = "thing==1.0"
ENTRY = """[[finding]]
library = "thing"
pairs = ["one", "two"]
claims = ["value"]
kind = "crashes"
cause = "It divides by zero."
documented = "no"
script = "findings/thing.py"
"""
SCRIPT = '"""It crashes."""\n\nprint(1)\nraise SystemExit(0)\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one library and one finding."""
    library(tmp_path, "thing", PIN, "one = 1\ntwo = 1\n")
    (tmp_path / "findings").mkdir()
    (tmp_path / "findings" / "thing.py").write_text(SCRIPT)
    (tmp_path / "findings.toml").write_text(ENTRY)
    return tmp_path


@pytest.mark.parametrize("name", metadata.paths())
def test_every_library_file_declares_what_it_needs_and_pairs(name: str) -> None:
    found = metadata.read(metadata.FOLDER / f"{name}.py")
    assert found.title, "a docstring follows the metadata"
    assert "Pair(" in found.path.read_text(encoding="utf-8") or "module_pair(" in found.path.read_text(encoding="utf-8")


def test_every_finding_has_a_short_script_without_gradgate_and_every_script_a_finding() -> None:
    every = declared.findings()
    assert declared.faults(metadata.paths(), every) == []
    assert declared.without_finding(every) == []


@pytest.mark.parametrize("name", ["liger", "fla"])
def test_the_kernels_are_those_of_the_version_that_is_installed(name: str) -> None:
    found = metadata.read(metadata.FOLDER / f"{name}.py")
    [version] = [
        node.value.value
        for node in ast.parse(found.path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and "VERSION" in ast.unparse(node)
    ]
    assert found.dependencies[0].endswith(f"=={version}")


def test_a_library_file_is_read(tmp_path: Path) -> None:
    library(tmp_path, "thing", "a-thing[x]==1.0", "", seconds=7, notes="a note")
    found = metadata.read(tmp_path / "thing.py")
    assert (found.judges, found.seconds, found.notes, found.title) == ("a-thing", 7, "a note", "thing.")


@pytest.mark.parametrize(
    ("requirement", "fields", "words"),
    [
        ("thing", {}, "'thing' is not pinned"),
        (PIN, {"framework": "mxnet"}, "unknown framework in thing.py"),
        (PIN, {"hom": "x"}, r"unknown field of \[tool.gradgate\] in thing.py"),
        (PIN, {"home": "example.org"}, "home is a URL"),
        (PIN, {"seconds": "long"}, "seconds is of type int, not 'long'"),
    ],
)
def test_wrong_metadata_is_refused(tmp_path: Path, requirement: str, fields: dict[str, str], words: str) -> None:
    library(tmp_path, "thing", requirement, "", **fields)
    with pytest.raises(UsageError, match=words):
        metadata.read(tmp_path / "thing.py")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('"""A module."""\n', "begins with a block"),
        ("# /// script\n# dependencies = [\n# ///\n", "is not TOML"),
        ("# /// script\n# dependencies = []\n# ///\n", r"no table \[tool.gradgate\]"),
    ],
)
def test_a_file_without_metadata_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "thing.py").write_text(text)
    with pytest.raises(UsageError, match=words):
        metadata.read(tmp_path / "thing.py")


def test_a_python_that_does_not_suit_is_told() -> None:
    library = metadata.Library("x", Path("x.py"), (PIN,), "https://x", "jax", "x", python=">=3.11,<3.12")
    assert library.unsuited((3, 11)) == ""
    assert library.unsuited((3, 12)) == "it needs Python >=3.11,<3.12, and this is Python 3.12"


def test_shares_hold_each_library_once_and_cost_about_the_same(tmp_path: Path) -> None:
    for number in range(8):
        library(tmp_path, f"l{number}", PIN, "", seconds=100 if number < 2 else 10)
    shares = [metadata.chosen([], tmp_path, Shard(index, 2)) for index in (1, 2)]
    assert sorted(one.name for share in shares for one in share) == [f"l{number}" for number in range(8)]
    assert {sum(one.seconds for one in share) for share in shares} == {130}
    with pytest.raises(UsageError, match="unknown library"):
        metadata.chosen(["l9"], tmp_path)


def test_a_finding_that_is_in_order_has_no_fault(folder: Path) -> None:
    assert declared.faults(["thing"], declared.findings(folder), folder) == []
    assert declared.without_finding(declared.findings(folder), folder) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SCRIPT + "print(2)\n" * 20, "has 24 lines; legal are 20"),
        (SCRIPT + "import gradgate\n", "mentions gradgate"),
        ("print(1)\n", "never exits with a status"),
        ("raise SystemExit(0)\n", "prints nothing"),
        (None, "there is no such script"),
    ],
)
def test_a_script_that_does_not_stand_by_itself_is_a_fault(folder: Path, text: str | None, words: str) -> None:
    path = folder / "findings" / "thing.py"
    path.write_text(text) if text is not None else path.unlink()
    [fault] = declared.faults(["thing"], declared.findings(folder), folder)
    assert words in fault


def test_a_finding_of_no_library_or_pair_and_a_script_of_no_finding_are_faults(folder: Path) -> None:
    assert "there is no library file thing.py" in declared.faults([], declared.findings(folder), folder)[0]
    (folder / "thing.py").write_text("one = 1\n")
    assert "thing.py declares no pair two" in declared.faults(["thing"], declared.findings(folder), folder)[0]
    (folder / "findings" / "stray.py").write_text(SCRIPT)
    assert declared.without_finding(declared.findings(folder), folder) == ["findings/stray.py"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('kind = "crashes"', 'kind = "bad"', "unknown kind of finding 1"),
        ('documented = "no"', 'documented = "yes"', "documented is 'no', or 'yes: ' and"),
        ('claims = ["value"]', 'claims = "value"', "claims is a list of names"),
        ("cause", "couse", "unknown field of finding 1"),
        ('cause = "It divides by zero."', "", "lacks cause"),
    ],
)
def test_a_wrong_entry_is_refused(folder: Path, old: str, new: str, words: str) -> None:
    (folder / "findings.toml").write_text(ENTRY.replace(old, new))
    with pytest.raises(UsageError, match=words):
        declared.findings(folder)


def verdict(pair: str, verdict: str, claim: str = "value") -> dict[str, Any]:
    return {"family": pair, "origin": f"thing.py:{pair}", "claim": claim, "verdict": verdict, "reason": "so"}


def compared(folder: Path, *seeds: list[dict[str, Any]], whole: bool = True) -> dict[str, list[str]]:
    """Pair and claim of everything in a comparison."""
    found = declared.compared(dict(enumerate(seeds)), declared.findings(folder), whole)
    return {name: [f"{row['pair']} {row['claim']}" for row in rows] for name, rows in found.items()}


NONE: dict[str, list[str]] = {"refuted": [], "unexplained": [], "gone": [], "unsteady": []}
BOTH = ["one value", "two value"]


def test_verdicts_that_are_as_declared_leave_nothing_over(folder: Path) -> None:
    rows = [verdict("one", "refuted"), verdict("two", "error"), verdict("three", "upheld")]
    assert compared(folder, rows) == {**NONE, "refuted": BOTH}


def test_an_undeclared_refutation_and_a_declared_one_that_is_gone_are_told(folder: Path) -> None:
    rows = [verdict("one", "refuted", "layouts"), verdict("one", "upheld"), verdict("two", "refuted")]
    expected = ["one layouts", "two value"]
    assert compared(folder, rows) == {
        "refuted": expected,
        "unexplained": ["one layouts"],
        "gone": ["one value"],
        "unsteady": [],
    }
    assert compared(folder, [verdict("one", "error")])["gone"] == ["two value"], "there is no such claim"


def test_a_run_that_was_cut_off_does_not_say_that_a_finding_is_gone(folder: Path) -> None:
    assert compared(folder, [verdict("one", "refuted")], whole=False)["gone"] == []


def test_a_verdict_that_depends_on_the_seed_is_told(folder: Path) -> None:
    seeds = [[verdict("one", first), verdict("two", "refuted")] for first in ("upheld", "refuted")]
    assert compared(folder, *seeds) == {**NONE, "refuted": BOTH, "unsteady": ["one value"]}
