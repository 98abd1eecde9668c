"""The census: its scripts, how rules are counted, what needs an explanation, and the page that is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gradgate.suites.gallery import declared
from gradgate.suites.gallery.census import package, page, source
from gradgate.suites.gallery.metadata import BLOCK, Library, chosen

PACKAGES = chosen([], package.FOLDER)
TEXT = """
import jax, torch
from torch.autograd import Function

class One(Function):
    @staticmethod
    def backward(ctx, g): ...

class Base(Function):  # declares no derivative
    pass

@jax.custom_vjp
def two(x): ...

@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def three(x, n): ...

four = jax.custom_vjp(five)
"""


def rule(**different: Any) -> dict[str, Any]:
    return {
        "name": "thing.ops:Rule",
        "kind": "autograd.Function",
        "line": 3,
        "state": "upheld",
        "reason": "",
        "exact": True,
        "pattern": "",
        "likeness": "",
    } | different


def row(*rules: dict[str, Any], **different: Any) -> dict[str, Any]:
    return {
        "name": "thing",
        "library": "thing",
        "home": "https://example.org",
        "version": "1.0",
        "framework": "torch",
        "date": "2026-11-26",
        "reason": "",
        "seconds": 1.0,
        "declared": 4,
        "rules": list(rules),
        "findings": [],
    } | different


def library(**different: Any) -> Library:
    return Library("thing", Path("thing.py"), ("thing==1.0",), "https://example.org", "torch", "thing", **different)


@pytest.mark.parametrize("one", PACKAGES, ids=lambda one: one.name)
def test_a_script_is_short_and_pinned_and_its_findings_have_scripts(one: Library) -> None:
    text = one.path.read_text(encoding="utf-8")
    block = BLOCK.match(text)
    assert block is not None
    code = [line for line in text[block.end() :].split('"""', 2)[2].splitlines() if line.strip()]
    assert len(code) <= package.MOST_LINES
    for finding in one.findings.values():
        assert finding.keys() == {"cause", "script"}
        assert declared.script_faults(package.HERE / finding["script"], finding["script"]) == []


def test_there_are_at_least_twenty_packages_in_both_frameworks() -> None:
    assert len(PACKAGES) >= 20
    assert {one.framework for one in PACKAGES} == {"jax", "torch"}


def test_declared_rules_are_counted_in_the_text(tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text(TEXT)
    (tmp_path / "broken.py").write_text("def (")
    assert len(source.rules([tmp_path / "rules.py", tmp_path / "broken.py", tmp_path / "missing.py"])) == 4


def test_every_refutation_needs_an_explanation_that_holds() -> None:
    wrong = rule(state="refuted", reason="wrong gradient of x")
    assert package.faults(row(rule()), library()) == []
    assert "neither by design nor a finding" in package.faults(row(wrong), library())[0]
    found = {"thing.ops:Rule": {"cause": "It is wrong.", "script": "findings/x.py"}}
    shown = {"rule": "thing.ops:Rule", **found["thing.ops:Rule"], "shown": True, "output": ""}
    assert package.faults(row(wrong, findings=[shown]), library(findings=found)) == []
    assert package.faults(row(wrong, findings=[shown | {"shown": False}]), library(findings=found)) != []
    assert "not refuted" in package.faults(row(rule(), findings=[shown]), library(findings=found))[0]
    assert "no such rule does" in package.faults(row(rule()), library(by_design={"thing.*": "why"}))[0]


def test_a_rule_is_counted_once_and_what_was_not_judged_is_none() -> None:
    left = rule(name="thing.ops:Left", state="not judged", exact=False)
    found = package.counts([row(rule(), left), row(rule(), declared=1)])
    assert (found["declared"], found["called"], found["judged"], found["exact"], found["upheld"]) == (5, 2, 1, 1, 1)


def test_the_page_is_that_of_the_kept_rows() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.text(page.stored_rows())


def test_the_kept_census_is_explained_and_large() -> None:
    rows = page.stored_rows()
    known = {one.name: one for one in PACKAGES}
    assert {one["name"] for one in rows} <= known.keys()
    assert [fault for one in rows for fault in package.faults(one, known[one["name"]])] == []
    found = package.counts(rows)
    assert found["judged"] >= 150
    assert found["exact"] >= 0.8 * found["judged"]
    assert json.loads((package.HERE / page.KEPT).read_text())["schema"] == package.SCHEMA
