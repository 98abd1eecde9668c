"""The report's first page counts the verdicts on the papers' figures; the figures' section shows each."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest

pytest.importorskip("jinja2")
pytest.importorskip("plotly")

from gradgate.references.performer.paper import rows as paper
from gradgate.references.published import Published, equal, refuted, unexplained, upheld
from gradgate.suites.judging.verdict import Task, Verdict
from gradgate.suites.measuring import paper_results
from gradgate.suites.report import write

CLOSE = equal(0.1, "two digits are printed")
TESTED = "tested: another compiler"
ITEMS = (
    Published("Table 1", "a", 1, "B", "m:f", {}, 4.0, expects=upheld(CLOSE)),
    Published("Table 1", "a", 2, "B", "m:f", {}, 4.0, TESTED, expects=refuted(CLOSE, instead=6.0)),
    Published("Table 1", "a", 3, "B", "m:f", {}, 4.0, TESTED, expects=unexplained(CLOSE), unlike="printed is a time"),
    Published("Table 1", "a", 4, "B", "m:f", {}, 4.0, expects=upheld(CLOSE)),
    Published("Table 1", "a", 5, "B", "m:f", {}, 4.0, expects=upheld(CLOSE)),
    Published("Table 1", "a", 6, "B", "m:f", {}, 4.0),
    Published("Fig. 1", "b", 1, "B", "m:f", drawn=True),
)
MEASURED = (4.0, 6.0, 9.0, 9.0, None, 4.0, 1.0)


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The page of a run of one claim of the class performer, whose paper has one figure of each outcome."""
    results = [
        paper_results.blank(item) | {"ours": ours, "problem": "" if ours else "no compiler", "date": "2026-11-22"}
        for item, ours in zip(ITEMS, MEASURED, strict=True)
    ]
    kept = tmp_path / "paper.json"
    kept.write_text(json.dumps({"schema": 1, "results": results}))
    monkeypatch.setattr(paper, "PUBLISHED", ITEMS)
    monkeypatch.setattr(paper_results, "results_path", lambda family: kept)
    monkeypatch.setattr("gradgate.references.ledger.FILE", "no_ledger.toml")
    return written(tmp_path, "performer")


def written(folder: Path, family: str) -> str:
    verdict = Verdict(Task(family, "any", "jax", "holds", "", "it holds", "Eq. 1", "upheld", ""), "upheld", seconds=0.1)
    document = {"schema": 1, "fingerprint": {}, "claims": 1, "verdicts": [verdict.to_dict()]}
    return write(document, folder / "report").read_text(encoding="utf-8")


def text(part: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", part)).split())


def test_the_first_page_counts_every_outcome_and_the_run_stays_as_claimed(page: str) -> None:
    head = text(page[page.index("<header>") : page.index("</header>")])
    assert "1 of 1 claims as declared: as claimed" in head
    assert "1 upheld 1 refuted as declared 1 unexplained 1 not as declared 1 not measured here 1 undeclared" in head


def test_every_printed_figure_shows_agreement_verdict_and_reason(page: str) -> None:
    found = re.search(r'<section id="papers">.*?\n</section>', page, flags=re.DOTALL)
    assert found
    lines = [text(line) for line in re.findall(r"<tr><td>a</td>.*?</tr>", found.group(), flags=re.DOTALL)]
    assert lines == [
        "a 1 4 4 1 B equal within 10% upheld",
        f"a 2 4 6 1.5 B equal within 10% refuted as declared {TESTED}",
        f"a 3 4 9 2.25 B equal within 10% unexplained {TESTED} (Unlike: printed is a time)",
        "a 4 4 9 2.25 B equal within 10% not as declared",
        "a 5 4 B equal within 10% not measured here no compiler",
        "a 6 4 4 1 B undeclared",
    ]
    assert "declared upheld, but it does not agree" in html.unescape(found.group())


def test_what_is_only_drawn_has_no_verdict(page: str) -> None:
    (line,) = re.findall(r"<tr><td>b</td>.*?</tr>", page, flags=re.DOTALL)
    assert text(line) == "b 1 1 B"


def test_a_run_of_a_class_without_a_paper_counts_no_figures(tmp_path: Path) -> None:
    assert '<ul class="counts figures">' not in written(tmp_path, "of_my_own")


def test_a_figure_that_was_never_measured_is_shown_and_measured_by_no_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paper, "PUBLISHED", ITEMS[:1])
    monkeypatch.setattr(paper_results, "results_path", lambda family: tmp_path / "none.json")
    monkeypatch.setattr("gradgate.references.ledger.FILE", "no_ledger.toml")
    shown = text(written(tmp_path, "performer"))
    assert "a 1 4 B equal within 10% not measured here not measured yet" in shown
    assert "0 upheld 0 refuted as declared 0 unexplained 0 not as declared 1 not measured here" in shown
