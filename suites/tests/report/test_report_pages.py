"""A large run of several classes has a page for each class, and every link between the pages leads somewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("jinja2")
pytest.importorskip("plotly")

from gradgate.suites.report import page, write
from gradgate.suites.site import checking
from gradgate.suites.tests.report.test_report import document, section, text, verdict

FOUND = {"declared_reason": "a sign", "reason": "wrong gradient of w"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run that does not fit on one page; of its two classes, one is registered."""
    made = tmp_path_factory.mktemp("report")
    rows = [verdict(f"claim_{i}", error=1e-16, noise=1e-16, leaf="w", family="chain") for i in range(page.LARGE)]
    rows += [
        verdict("found", "refuted", "refuted", family="other", **FOUND),
        verdict("broken", "refuted", family="other"),
    ]
    write(document(*rows), made)
    return made


def test_each_class_has_a_page_and_the_papers_have_one(folder: Path) -> None:
    names = {"index.html", "chain.html", "other.html", "papers.html", "plotly.min.js", "junit.xml", "verdicts.json"}
    names |= {"failures.sarif"}
    names |= {"report.css", "report.js", "plots.js"}
    assert {path.name for path in folder.iterdir()} == names


def test_every_link_leads_somewhere_and_no_page_is_large(folder: Path) -> None:
    wrong = [fault for fault in checking.faults(folder) if not fault.startswith("index.html takes")]
    assert wrong == []


def test_the_overview_has_the_counts_and_the_findings_and_leads_to_the_rows(folder: Path) -> None:
    shown = (folder / "index.html").read_text(encoding="utf-8")
    assert "301 of 302" in text(shown)
    assert "chain300" in section(shown, "families")
    assert "statement of found" in section(shown, "findings")
    assert "statement of broken" in section(shown, "failures")
    assert section(shown, "verdicts") == ""


def test_the_page_of_a_class_has_its_rows_alone(folder: Path) -> None:
    shown = (folder / "chain.html").read_text(encoding="utf-8")
    assert shown.count('<tr id="v') == page.LARGE
    assert 'src="plotly.min.js"' in shown
    assert len(shown) < 1_000_000
    assert (folder / "other.html").read_text(encoding="utf-8").count('<tr id="v') == 2


def test_a_run_that_fits_has_one_page(tmp_path: Path) -> None:
    write(document(verdict("holds", family="chain"), verdict("holds", family="other")), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"index.html", "junit.xml", "failures.sarif", "verdicts.json"}
    assert (tmp_path / "index.html").read_text(encoding="utf-8").count('<tr id="v') == 2
