"""The report's page lists the statements of the papers of its classes, with counts."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

pytest.importorskip("jinja2")
pytest.importorskip("plotly")

from gradgate.references import ledger
from gradgate.suites.judging.verdict import Task, Verdict
from gradgate.suites.report import write


def shown(folder: Path, family: str) -> str:
    """What the section says of a run of one claim of this class; "" where there is no section."""
    verdict = Verdict(Task(family, "any", "jax", "holds", "", "it holds", "Eq. 1", "upheld", ""), "upheld", seconds=0.1)
    document = {"schema": 1, "fingerprint": {}, "claims": 1, "verdicts": [verdict.to_dict()]}
    page = write(document, folder).read_text(encoding="utf-8")
    found = re.search(r'<section id="ledgers">.*?\n</section>', page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", found.group())).split()) if found else ""


def test_every_statement_of_the_paper_is_on_the_page_with_what_became_of_it(tmp_path: Path) -> None:
    one, said = ledger.of_family("invertible"), shown(tmp_path, "invertible")
    assert one.summary in said
    for entry in one.entries:
        assert " ".join(f"{entry.statement.place} {entry.statement.words} {entry.statement.kind}".split()) in said


def test_a_class_without_a_ledger_has_no_section(tmp_path: Path) -> None:
    assert shown(tmp_path, "of_my_own") == ""
