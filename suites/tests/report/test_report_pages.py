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
    names = {"index.html", "junit.xml", "failures.sarif", "verdicts.json", "plotly.min.js"}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert (tmp_path / "index.html").read_text(encoding="utf-8").count('<tr id="v') == 2


@pytest.mark.parametrize("classes", [1, 7])
def test_the_first_page_has_at_most_a_megabyte_however_many_causes_there_are(classes: int, tmp_path: Path) -> None:
    long = "; ".join(["wrong gradient of w", *["x y z " * 100] * 2])
    rows = [verdict(f"c{i}", "refuted", reason=f"{i}: {long}", family=f"f{i % classes}") for i in range(700)]
    write(document(*rows), tmp_path)
    first = tmp_path / "index.html"
    shown = first.read_text(encoding="utf-8")
    assert first.stat().st_size <= page.LIMIT
    assert shown.count("<article") == page.CARDS
    assert f"{700 - page.CARDS} more causes" in shown, "a cause without a card has a line"
    assert [fault for fault in checking.faults(tmp_path) if "broken" in fault or "no such place" in fault] == []
    everything = "".join(path.read_text(encoding="utf-8") for path in tmp_path.glob("f*.html"))
    assert everything.count("<article") == 700
