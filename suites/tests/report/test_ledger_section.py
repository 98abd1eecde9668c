"""The report's page lists the statements of the papers of the judged classes, with counts."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

pytest.importorskip("jinja2")
pytest.importorskip("plotly")

from gradgate.references import ledger
from gradgate.references.published import Published, equal, unexplained, upheld
from gradgate.suites.judging.verdict import Task, Verdict
from gradgate.suites.measuring import paper_results
from gradgate.suites.report import write


def shown(folder: Path, family: str) -> str:
    """The text of the section in the report of a run of one claim of this class; "" if there is no section."""
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


def test_a_statement_shows_the_verdicts_on_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    close = equal(0.1, "two digits are printed")
    rows = (
        Published("Table 1", "a", 1, "B", "m:f", {}, 4.0, expects=upheld(close)),
        Published("Table 1", "a", 2, "B", "m:f", {}, 4.0, "tested", expects=unexplained(close)),
        Published("Fig. 1", "a", 1, "B", "m:f", drawn=True),
    )
    statements = (
        ledger.Statement("§1", "both", figures=("Table 1",)),
        ledger.Statement("§2", "one", figures=("Table 1 / a / 2",)),
        ledger.Statement("§3", "drawn", figures=("Fig. 1",)),
    )
    one = ledger.Ledger("invertible", "A paper", tuple(ledger.entry(said, (), rows) for said in statements))
    told = [
        paper_results.with_verdict(row, paper_results.blank(row) | {"ours": ours, "problem": ""})
        for row, ours in zip(rows, (4.0, 9.0, 1.0), strict=True)
    ]
    monkeypatch.setattr(paper_results, "stored", lambda family: told)
    monkeypatch.setattr(ledger, "of_family", lambda family: one)
    said = shown(tmp_path, "invertible")
    assert "1 rests on unexplained figures alone, 1 rests on figures without a printed number alone" in said
    assert "§1 both figure 1 upheld, 1 unexplained upheld Table 1 / a / 1 unexplained Table 1 / a / 2 Table 1" in said
    assert "§2 one figure, unexplained unexplained Table 1 / a / 2" in said
    assert "§3 drawn figure without a printed number Fig. 1" in said


def test_a_class_without_a_ledger_has_no_section(tmp_path: Path) -> None:
    assert shown(tmp_path, "of_my_own") == ""
