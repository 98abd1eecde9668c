"""The standing of a paper's statements in the atlas, and their pages, plots and tables."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from gradgate.references import ledger, registry
from gradgate.references.published import Judged, Published
from gradgate.suites.measuring import paper_results
from gradgate.suites.site import atlas, checking, drawing, splitting


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
    pages = atlas.paper(found, rows)
    first, *others = pages.values()
    whole = "\n".join(others)
    for one in found.entries:
        assert f"**{atlas.text(one.statement.place)}**: “{atlas.text(one.statement.words)}”" in whole
    assert whole.count(":::{container} statement") == len(found.entries)
    assert [line[3:] for line in first.splitlines() if line.startswith("## ")] == ["Headlines", "Every statement"]
    headings = list(dict.fromkeys(other.partition(":")[0].removeprefix("# ") for other in others))
    order = [heading for heading, _ in atlas.STANDINGS.values()]
    assert headings == [heading for heading in order if heading in headings]
    for name in (*list(pages)[1:], f"{family}_figures"):
        assert f"\n{name}\n" in first, "the navigation has it"
    assert all(splitting.words(page) < checking.WORDS for page in pages.values())


@pytest.mark.parametrize("family", ["bilevel", "chain", "invertible", "performer", "state_space"])
def test_a_statement_links_to_the_page_that_has_its_figures(family: str) -> None:
    found, rows = ledger.of_family(family), paper_results.stored(family)
    drawn = atlas.figures(found, rows)
    links = re.findall(r"\]\((\w+)\.md#([^)]+)\)", "\n".join(atlas.paper(found, rows).values()))
    assert links
    assert [link for link in links if f"({link[1]})=" not in drawn[link[0]]] == []
    assert all(splitting.words(page) < checking.WORDS for page in drawn.values())


def test_four_states_have_four_colours_and_a_legend_and_nothing_else_has_one() -> None:
    colours = [colour for _, colour, _ in atlas.STATES.values()]
    assert len(set(colours)) == len(atlas.STATES) == 4
    assert {state for _, state in atlas.STANDINGS.values()} == set(atlas.STATES)
    assert set(atlas.TONES.values()) <= set(colours)
    for name, colour, meaning in atlas.STATES.values():
        assert f'<span class="badge {colour}">{name}</span> {meaning}' in atlas.legend()


def test_the_overview_names_papers_by_title_and_says_why_a_statement_does_not_hold() -> None:
    found = ledger.of_family("chain")
    rows = paper_results.stored("chain")
    page = atlas.overview([found], {"chain": rows})
    assert f"| [{atlas.text(found.paper)}](chain.md) |" in page
    [*against] = [one for one in found.entries if atlas.standing(one, paper_results.judged(rows)) == "does not hold"]
    assert against
    known = {row["key"]: row for row in rows}
    reasons = [atlas.because(one, known) for one in against]
    assert all(reasons)
    assert all(f"“{atlas.text(one.statement.words)}”: {why}" in page for one, why in zip(against, reasons, strict=True))
    assert atlas.legend() in page


@pytest.mark.parametrize("family", ["bilevel", "chain", "invertible", "performer", "state_space"])
def test_a_page_begins_with_what_the_abstract_promises_and_what_judges_it(family: str) -> None:
    found = ledger.of_family(family)
    page = next(iter(atlas.paper(found, paper_results.stored(family)).values()))
    lines = page[page.index("## Headlines") : page.index("## Every statement")].splitlines()[4:]
    cells = [line.split(" | ") for line in lines if line]
    promised = [entry for entry in found.entries if entry.statement.place.startswith("Abstract")]
    assert 3 < len(cells) <= len(promised)
    assert all(len(cell) == 3 and cell[2].strip("| ") for cell in cells)
    notes = [entry for entry in promised if not (entry.claims or entry.rows)]
    assert len(cells) == len(promised) - len(notes)
    assert not any(atlas.text(entry.statement.words) in "".join(lines) for entry in notes)


def test_a_headline_says_printed_and_measured_and_what_does_not_agree() -> None:
    row: dict[str, Any] = {
        "place": "Abstract",
        "series": "GPU",
        "x": "",
        "unit": "times",
        "printed": 10.0,
        "ours": 7.5,
        "agreement": "at least, within 1%",
        "outcome": "unexplained",
    }
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
    assert atlas.sentence("reads `a_b`, an_other") == "Reads `a_b`, an\\_other."
    assert atlas.sentence("one ` alone") == "One \\` alone."


def test_a_table_has_a_line_for_each_figure() -> None:
    known: dict[str, Any] = {
        "series": "s",
        "x": 2,
        "unit": "B",
        "printed": 2.0,
        "ours": 3.0,
        "ratio": 1.5,
        "outcome": "unexplained",
    }
    told = atlas.table([known])
    assert "| s, 2 | 2 B | 3 B | 1.5 |" in told
    assert 'class="badge inapplicable"' in told
    assert atlas.table([]) == ""
