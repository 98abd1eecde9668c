"""The standing of a paper's statements in the atlas, and their pages, plots and tables."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from gradgate.references import ledger, registry
from gradgate.references.published import Judged, Published
from gradgate.suites.measuring import paper_results
from gradgate.suites.site import atlas, drawing


def row(name: str) -> Published:
    return Published("§1", "series", name, "", "module:function", printed=1.0)


def entry(claims: tuple[str, ...] = (), rows: tuple[Published, ...] = (), reason: str = "") -> ledger.Entry:
    method = registry.methods("chain", "backprop", "torch")[0]
    made = [method.claims[0].__class__(name, "check", "says", "§1", name) for name in claims]  # type: ignore[arg-type]
    said = ledger.Statement("§1", "words", claims, tuple(one.name for one in rows), reason)
    return ledger.Entry(said, tuple((method, claim) for claim in made), rows)


@pytest.mark.parametrize(
    ("claims", "outcomes", "reason", "expected"),
    [
        (("upheld",), (), "", "holds"),
        (("refuted",), (), "", "does not hold"),
        (("upheld", "refuted"), (), "", "holds in part"),
        (("upheld",), ("unexplained",), "", "holds in part"),
        ((), ("unexplained",), "", "differs"),
        ((), ("upheld", "upheld"), "", "holds"),
        ((), ("refuted as declared",), "", "does not hold"),
        ((), ("not as declared",), "", "differs"),
        ((), (None,), "", "no number"),
        ((), (), "no such thing here", "not measurable"),
        ((), (), "not covered yet: seconds", "not covered"),
        ((), (), "note: of a textbook", "note"),
    ],
)
def test_the_standing_of_a_statement(
    claims: tuple[str, ...], outcomes: tuple[str | None, ...], reason: str, expected: str
) -> None:
    rows = tuple(row(str(i)) for i in range(len(outcomes)))
    judged = {one.key: Judged(found, "") for one, found in zip(rows, outcomes, strict=True) if found}
    assert atlas.standing(entry(claims, rows, reason), judged) == expected


@pytest.mark.parametrize("family", ["bilevel", "chain", "invertible", "performer", "state_space"])
def test_every_statement_is_on_its_papers_page_once_and_findings_come_first(family: str) -> None:
    found = ledger.of_family(family)
    rows = paper_results.stored(family)
    page = atlas.paper(found, rows)
    for one in found.entries:
        assert f"**{atlas.text(one.statement.place)}**: “{atlas.text(one.statement.words)}”" in page
    assert page.count(":::{container} statement") == len(found.entries)
    first, *headings = [line[3:] for line in page.splitlines() if line.startswith("## ")]
    assert first == "Headlines"
    order = [heading for heading, _ in atlas.STANDINGS.values()]
    assert headings == [heading for heading in order if heading in headings]
    assert len(page.encode()) < 500_000


@pytest.mark.parametrize("family", ["bilevel", "chain", "invertible", "performer", "state_space"])
def test_a_page_begins_with_what_the_abstract_promises_and_what_judges_it(family: str) -> None:
    found = ledger.of_family(family)
    page = atlas.paper(found, paper_results.stored(family))
    lines = page[page.index("## Headlines") : page.index("```{raw}")].splitlines()[4:]
    cells = [line.split(" | ") for line in lines if line]
    promised = [entry for entry in found.entries if entry.statement.place.startswith("Abstract")]
    assert 3 < len(cells) <= len(promised)
    assert all(len(cell) == 3 and cell[2].strip("| ") for cell in cells)
    notes = [entry for entry in promised if not (entry.claims or entry.rows)]
    assert len(cells) == len(promised) - len(notes)
    assert not any(atlas.text(entry.statement.words) in "".join(lines) for entry in notes)


def test_a_headline_says_printed_and_measured_and_what_does_not_agree() -> None:
    row: dict[str, Any] = {
        "place": "Abstract", "series": "GPU", "x": "", "unit": "times", "printed": 10.0, "ours": 7.5,
        "agreement": "at least, within 1%", "outcome": "unexplained",
    }  # fmt: skip
    assert atlas._in_words(row) == "Abstract, GPU: printed at least 10, here 7.5 times (unexplained)"
    alike = row | {"agreement": "equal within 5%", "outcome": "upheld", "x": 8}
    assert atlas._in_words(alike) == "Abstract, GPU, 8: printed 10, here 7.5 times"
    ours = row | {"printed": None, "agreement": "", "outcome": ""}
    assert atlas._in_words(ours) == "Abstract, GPU: here 7.5 times"


def test_a_plot_of_ratios_puts_one_in_the_middle() -> None:
    drawn = drawing.ratios(
        [drawing.Mark("a < b", 1.0, "upheld", "equal"), drawing.Mark("c", 4.0, "finding", "off")], ""
    )
    marks = ElementTree.fromstring(drawn).findall(".//circle")
    assert float(marks[0].get("cx", "")) == pytest.approx(drawing.WIDTH / 2)
    assert drawing.WIDTH / 2 < float(marks[1].get("cx", "")) < drawing.WIDTH


def test_curves_leave_out_what_is_not_finite_and_say_nothing_about_nothing() -> None:
    drawn = drawing.curves({"loss": ([1, 2, 3], [1.0, float("nan"), 3.0])}, "loss")
    [line] = ElementTree.fromstring(drawn).findall(".//polyline")
    assert len(line.get("points", "").split()) == 2
    assert drawing.curves({"loss": ([1], [float("nan")])}, "loss") == ""


def test_what_looks_like_markdown_is_text() -> None:
    assert atlas.text("a|b `c` <d> *e*") == "a\\|b \\`c\\` \\<d\\> \\*e\\*"


def test_a_table_has_a_line_for_each_figure() -> None:
    known: dict[str, Any] = {
        "series": "s", "x": 2, "unit": "B", "printed": 2.0, "ours": 3.0, "ratio": 1.5, "outcome": "unexplained",
    }  # fmt: skip
    told = atlas.table([known])
    assert "| s, 2 | 2 B | 3 B | 1.5 |" in told
    assert 'class="badge unexpected"' in told
    assert atlas.table([]) == ""
