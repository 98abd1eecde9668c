"""The pages of the report, made from the templates of this folder."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape
from plotly.offline import get_plotlyjs

from gradgate.references import ledger, registry
from gradgate.references.claims import GRADIENT_CLAIMS
from gradgate.suites.judging.coverage import Coverage
from gradgate.suites.judging.explain import LABELS, number
from gradgate.suites.judging.outcomes import OUTCOMES
from gradgate.suites.report import memory_plot, paper_section, plot, power_section
from gradgate.suites.report.model import Report

LARGE = 300
"""Up to this many verdicts of several classes are shown on one page."""
SCRIPT = "plotly.min.js"
"""The file of the plotting library, if several pages share it."""


def pages(report: Report) -> dict[str, str]:
    """The files of a report: name -> text. A large run of several classes has a page for each class.

    Its pages are small enough for a phone: an overview with failures and findings, one per class, one for the papers.
    """
    if len(report.rows) <= LARGE or len(report.families) < 2:
        return {"index.html": render(report)}
    parts = {rows[0].verdict.task.family: Report(rows, len(rows), report.fingerprint) for rows in report.families}
    menu = {"index.html": "overview", **{f"{name}.html": name for name in parts}, "papers.html": "the papers"}
    linked = [dataclasses.replace(row, page=f"{row.verdict.task.family}.html") for row in report.rows]
    whole = Report(linked, report.claims, report.fingerprint)
    made = {"index.html": render(whole, menu, "index.html", parts), "papers.html": _papers(report, menu)}
    made |= {f"{name}.html": render(part, menu, f"{name}.html") for name, part in parts.items()}
    return made | {SCRIPT: get_plotlyjs()}


def render(
    report: Report, menu: Mapping[str, str] | None = None, here: str = "", parts: Mapping[str, Report] | None = None
) -> str:
    """One page: the whole report in one self-contained file, or one page of several.

    Args:
        report: the report that it shows.
        menu: file -> name of every page, if there are several. Then the papers have a separate page.
        here: the file of this page.
        parts: class -> its report, for the overview, which has no tables of single verdicts.
    """
    drawn = [] if parts else plot.drawable(report.rows)
    measured = [] if parts else [row for row in report.rows if row.verdict.laws]
    laws = {f"law-{row.anchor}": memory_plot.of_verdict(row.verdict) for row in measured}
    families = known_families(report)
    kept = paper_section.kept(families)
    papers, judged = paper_section.places(kept), paper_section.judged(kept)
    if menu:
        papers = []
    laws |= {place.anchor: place.figure for place in papers if place.figure}
    return environment().get_template("page.html").render(
        report=report, outcomes=OUTCOMES, labels=LABELS, kappa=plot.KAPPA, menu=menu or {}, here=here,
        parts=parts or {}, overview=bool(parts), script=SCRIPT if menu and (drawn or laws) else "",
        drawn=len(drawn),
        zeros=sum(not row.verdict.error for row in drawn),
        floor=plot.floor(report.rows),
        not_finite=sum(row.not_finite and not row.exact for row in report.rows),
        dtypes=list(GRADIENT_CLAIMS),
        figure=plot.figure(report.rows) if drawn else None,
        measured=measured, laws=laws, papers=papers, powers=[] if parts else power_section.of_families(families),
        all_dtypes=power_section.DTYPES, ledgers=[] if menu else _ledgers(families), judged=judged,
        figures=paper_section.total(judged), tones=paper_section.TONES,
        plotly_js=Markup(get_plotlyjs()) if (drawn or laws) and not menu else "",
    )  # fmt: skip


def known_families(report: Report) -> list[str]:
    """The classes of a report that are registered here."""
    known = registry.families()
    return [matrix.family for matrix in report.matrices if matrix.family in known]


def _ledgers(families: Iterable[str]) -> list[ledger.Ledger]:
    return [found for found in map(ledger.of_family, families) if found.entries]


def _papers(report: Report, menu: Mapping[str, str]) -> str:
    """The page of the papers: their figures, and their statements."""
    families = known_families(report)
    kept = paper_section.kept(families)
    places = paper_section.places(kept)
    return environment().get_template("papers_page.html").render(
        menu=menu, here="papers.html", papers=places, judged=paper_section.judged(kept), ledgers=_ledgers(families),
        tones=paper_section.TONES, laws={place.anchor: place.figure for place in places if place.figure},
        script=SCRIPT,
    )  # fmt: skip


def environment() -> jinja2.Environment:
    """The templates of this folder."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True,
    )  # fmt: skip
    made.filters |= {"number": number, "breakable": _breakable, "plain": _plain}
    made.filters |= {"unique": _unique, "covered": _covered}
    return made


def _breakable(name: str) -> Markup:
    """An identifier that may wrap after an underscore."""
    return escape(name).replace("_", Markup("_<wbr>"))


def _plain(value: Any) -> str:
    """A field's value: strings as they are, the rest as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _covered(found: dict[str, Any]) -> str:
    """Which pairs of (field, value) were tried, in words."""
    return Coverage(**{**found, "missing": tuple(found["missing"])}).sentence()


def _unique(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))
