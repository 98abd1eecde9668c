"""The declarations about the papers' figures, compared with the results in ``paper.json``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gradgate.references import ledger, registry
from gradgate.references.published import Judged, Published, equal, judge, upheld
from gradgate.suites.measuring import paper_results

PAPERS = tuple(name for name in registry.families() if registry.package(name))


def wrong(rows: list[dict[str, Any]]) -> list[str]:
    """The faults of a family's figures, as sentences."""
    found = [row["sentence"] for row in rows if row["outcome"] in ("not as declared", "undeclared")]
    return found + [
        f"{row['sentence']}; gradgate paper measures it"
        for row in rows
        if row["outcome"] == "not measured here" and row["problem"] == paper_results.NOT_YET
    ]


@pytest.mark.parametrize("family", PAPERS)
def test_the_kept_figures_are_declared_and_as_declared(family: str) -> None:
    found = wrong(paper_results.stored(family))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("family", PAPERS)
def test_no_statement_rests_on_figures_that_cannot_fail(family: str) -> None:
    """A statement about a curve is a figure that can fail (`gradgate.references.derived`), or it is a note."""
    found = resting(ledger.of_family(family), paper_results.judged(paper_results.stored(family)))
    assert found == []


def resting(one: ledger.Ledger, judged: dict[str, Judged]) -> list[str]:
    """The statements that rest on no claim and on no printed figure."""
    return [
        f"{entry.statement.place}: {entry.statement.words}"
        for entry in one.entries
        if entry.rests_on(judged) == ledger.NO_NUMBER
    ]


def test_a_statement_that_cannot_fail_is_found() -> None:
    rows = (Published("Fig. 1", "a", 1, "B", "m:f", drawn=True), Published("Table 1", "a", 1, "B", "m:f", {}, 4.0))
    entries = tuple(
        ledger.entry(ledger.Statement(place, "it is small", figures=(place,)), (), rows)
        for place in ("Fig. 1", "Table 1")
    )
    judged = {row.key: verdict for row in rows if (verdict := judge(row, 4.0))}
    assert resting(ledger.Ledger("any", "A paper", entries), judged) == ["Fig. 1: it is small"]


def made(ours: float | None, *, declared: bool = True) -> dict[str, Any]:
    expects = upheld(equal(0.1, "two digits are printed")) if declared else None
    item = Published("Table 1", "a", 1, "B", "operator:add", {}, 4.0, expects=expects)
    blank = paper_results.blank(item)
    return paper_results.with_verdict(item, blank if ours is None else blank | {"ours": ours, "problem": ""})


@pytest.mark.parametrize(
    ("row", "count"), [(made(4.0), 0), (made(5.0), 1), (made(None), 1), (made(4.0, declared=False), 1)]
)
def test_a_figure_that_is_not_as_declared_not_measured_or_undeclared_is_found(row: dict[str, Any], count: int) -> None:
    assert len(wrong([row])) == count


@pytest.mark.parametrize("family", PAPERS)
def test_results_are_kept_of_listed_figures_alone(family: str) -> None:
    listed = {item.key for item in paper_results.listed(family)}
    kept = [row["key"] for row in paper_results.read(paper_results.results_path(family))["results"]]
    stale = [" / ".join(map(str, json.loads(key)[:3])) for key in kept if key not in listed]
    assert not stale, f"no longer listed, and gradgate paper --family {family} drops them: {', '.join(stale)}"
