"""The pages, the badges and the JSON of the gallery, and rows that are united and kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from gradgate.references.errors import UsageError
from gradgate.suites.gallery import badge, page, results, run

FINDING = {
    "library": "thing",
    "pairs": ["one"],
    "claims": ["value"],
    "kind": "crashes",
    "cause": "It divides by a_b_c.",
    "documented": "no",
    "script": "findings/thing.py",
}


def row(name: str = "thing", **different: Any) -> dict[str, Any]:
    """A row with one pair and one finding."""
    refuted = {
        "pair": "one",
        "claim": "value",
        "verdict": "refuted",
        "reason": "wrong <b>value</b>",
        "finding": 0,
        "seeds": [0],
    }
    script = {
        "script": "findings/thing.py",
        "text": "print(1)\n",
        "shown": True,
        "status": "0",
        "output": "1\n",
        "key": "",
    }
    pair = {"name": "one of thing", "problems": 30, "verdicts": {"upheld": 3, "refuted": 1}, "kept": 10, "plain": 40}
    return {
        "schema": 1,
        "name": name,
        "title": "A thing.",
        "library": "a-thing",
        "framework": "jax",
        "notes": "",
        "home": "https://example.org/",
        "dependencies": ["a-thing==1.0"],
        "version": "1.0",
        "state": "judged",
        "reason": "",
        "date": "2026-11-23",
        "examples": 12,
        "seeds": 1,
        "judging_seconds": 3.0,
        "seconds": 3.0,
        "claims": 4,
        "problems": 30,
        "verdicts": {"upheld": 3, "refuted": 1},
        "pairs": {"one": pair},
        "findings": [FINDING],
        "refuted": [refuted],
        "unexplained": [],
        "gone": [],
        "unsteady": [],
        "scripts": [script],
    } | different


BROKEN = {
    "state": "not installed",
    "reason": "pip failed: <oh>",
    "verdicts": {},
    "pairs": {},
    "findings": [],
    "refuted": [],
    "scripts": [],
    "problems": 0,
}


def keep(folder: Path, *rows: dict[str, Any]) -> None:
    for one in rows:
        (folder / f"{one['name']}.py").write_text("")
    results.write(folder / "report", rows)
    results.keep(folder, folder / "report")


def test_there_is_a_page_a_badge_and_json_for_each_library(tmp_path: Path) -> None:
    keep(tmp_path, row(), row("broken", **BROKEN))
    target = tmp_path / "site"
    assert page.write(target, tmp_path) == ["libraries", "libraries/broken", "libraries/thing"]
    table = (target / "libraries.md").read_text()
    assert "1 of 2 libraries judged on 30 problems" in table
    assert "pip failed: &lt;oh&gt;" in table
    assert '<span class="badge failure">crashes</span>' in table
    assert ">0.25</td>" in table, "10 of 40 bytes"
    told = (target / "libraries" / "thing.md").read_text()
    assert "It divides by a\\_b\\_c." in told
    assert "wrong &lt;b&gt;value&lt;/b&gt;" in told
    assert "````python\nprint(1)\n````" in told
    found = json.loads((target / "extra" / "gallery" / "gallery.json").read_text())
    assert [one["name"] for one in found["rows"]] == ["broken", "thing"]
    shield = json.loads((target / "extra" / "gallery" / "thing.json").read_text())
    assert (shield["message"], shield["schemaVersion"]) == ("1 finding", 1)


def test_without_a_kept_run_the_page_says_how_to_make_one(tmp_path: Path) -> None:
    assert page.write(tmp_path / "site", tmp_path) == ["libraries"]
    assert "nox -s gallery -- --keep" in (tmp_path / "site" / "libraries.md").read_text()


@pytest.mark.parametrize(
    ("different", "message", "colour"),
    [
        ({}, "1 finding", "amber"),
        ({"findings": [], "refuted": []}, "3 claims upheld", "green"),
        ({"gone": [{"pair": "one", "claim": "x", "reason": "upheld"}]}, "not as declared", "red"),
        (BROKEN, "not installed", "grey"),
    ],
)
def test_a_badge_says_how_a_library_stands(different: dict[str, Any], message: str, colour: str) -> None:
    assert page.message(row(**different)) == (message, colour)
    drawn = ElementTree.fromstring(badge.svg("a <label>", message, colour))
    assert [text.text for text in drawn.findall(".//{*}text")] == ["a <label>", message]
    assert badge.COLOURS[colour] in badge.svg("a", message, colour)


def test_what_is_not_declared_is_on_the_page_of_its_library() -> None:
    told = page.library(row(unexplained=[{"pair": "one", "claim": "layouts", "reason": "wrong"}]))
    assert "## Not declared" in told
    assert "- `one` layouts: wrong" in told
    assert "## Not declared" not in page.library(row())


def test_shares_are_united_and_a_library_in_two_of_them_is_refused(tmp_path: Path) -> None:
    one, two = tmp_path / "1", tmp_path / "2"
    results.write(one, [row("b")])
    results.write(two, [row("a")])
    assert [found["name"] for found in results.united([one, two])] == ["a", "b"]
    with pytest.raises(UsageError, match="both hold b; give one of them"):
        results.united([one, one])
    with pytest.raises(UsageError, match="has no row"):
        results.united([tmp_path / "3"])
    (two / "c.json").write_text('{"schema": 0}')
    with pytest.raises(UsageError, match=r"c\.json is no row of the gallery of version 1"):
        results.united([two])


def test_kept_rows_are_replaced_by_newer_ones_and_dropped_with_their_library(tmp_path: Path) -> None:
    keep(tmp_path, row("a"), row("b", version="1.0"))
    (tmp_path / "a.py").unlink()
    keep(tmp_path, row("b", version="2.0"))
    assert [(one["name"], one["version"]) for one in results.stored(tmp_path)] == [("b", "2.0")]


def test_shares_are_united_by_the_command(tmp_path: Path, capsys: Any) -> None:
    results.write(tmp_path / "1", [row()])
    wrong = row("worse", unexplained=[{"pair": "one", "claim": "layouts", "reason": "wrong"}])
    results.write(tmp_path / "2", [wrong])
    where = ["--folder", str(tmp_path), "--report", str(tmp_path / "all")]
    assert run.main(["--unite", str(tmp_path / "1"), *where]) == 0
    assert run.main(["--unite", str(tmp_path / "1"), str(tmp_path / "2"), *where]) == 1
    assert "NOT as declared: worse" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "all").iterdir()} == {"thing.json", "worse.json"}


def test_the_kept_rows_are_printed_as_a_table(tmp_path: Path, capsys: Any) -> None:
    keep(tmp_path, row(problems=130), row("broken", **BROKEN))
    assert run.main(["--table", "--folder", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "| `thing` | a-thing 1.0 | jax | 1 | 130 | 3 | 1 | 0 | 0 | 1 | 3 |" in told
    assert "| `broken` | a-thing 1.0 | jax | not installed |" in told
    assert "2 libraries, 1 of them on more than 100 problems; 130 problems, 1 findings (2026-11-23)" in told


def test_libraries_are_listed_by_what_was_found_and_findings_are_in_words(tmp_path: Path) -> None:
    def library(name: str, *kinds: str) -> dict[str, Any]:
        made = row(name)
        [finding] = made["findings"][:1]
        return made | {"findings": [finding | {"kind": kind, "cause": f"{name} is off. More."} for kind in kinds]}

    slow, grave = "loses digits", "wrong gradient"
    rows = [
        library("clean"),
        row("broken", **BROKEN),
        library("digits", slow),
        library("two", grave, grave, slow, slow),
    ]
    assert [one["name"] for one in sorted([*rows, library("one", grave)], key=page.gravity)] == [
        "two",
        "one",
        "digits",
        "clean",
        "broken",
    ]
    shown = page.overview(rows)
    order = [shown.index(f"libraries/{name}.html") for name in ("two", "digits", "clean", "broken")]
    assert order == sorted(order)
    assert '<span class="badge failure">wrong gradient</span> two is off.</li>' in shown
    assert "and 1 more</a>" in shown
    assert "nothing: every claim is upheld or inapplicable" in shown


def test_the_first_sentence_of_a_cause_keeps_what_follows_from_it() -> None:
    assert page.first_sentence("It copies x; so y is wrong. More.") == "It copies x; so y is wrong."
    assert page.first_sentence("a " * 50 + "; " + "b " * 9) == "a " * 49 + "a."
