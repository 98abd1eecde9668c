"""The pages of the report, made from the templates of this folder."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from gradgate.references import ledger, registry
from gradgate.references.claims import GRADIENT_CLAIMS
from gradgate.suites.judging.explain import LABELS
from gradgate.suites.judging.outcomes import OUTCOMES
from gradgate.suites.report import columns, domain_plot, frame, memory_plot, paper_section, plot, power_section, source
from gradgate.suites.report.model import Report, Row, clean

LARGE = 300
"""Up to this many verdicts of several classes are shown on one page."""
LISTED = 30
"""Up to this many classes are listed on every page. If there are more, the overview alone lists them, and the page of a
class has no more than a line for a claim that is upheld."""
POINTS = 10
"""With fewer points there is no plot: the table has their numbers, and the plotting library is larger than the page."""
LIMIT = 1_000_000
"""Bytes that the first page may have. A run whose page is larger has several."""
CARDS = 100
"""Up to this many causes have a card on the first page of several; any further one has a line."""
MEANINGS = {
    "verdicts": columns.VERDICTS,
    "cause": columns.CAUSE,
    "power": columns.POWER,
    "papers": columns.PAPERS,
    "ledger": columns.LEDGER,
    "covered": columns.COVERED,
}
"""Table of a page -> what its columns say."""
LONGEST = 60
"""The longest part of a class's name that becomes part of a file's name."""
RESERVED = ("index", "papers", "memory", "selftest", "choice")
"""Names of pages that are not a class's."""


def pages(report: Report, domains: Sequence[dict[str, Any]] = ()) -> dict[str, str]:
    """The files of a report: name -> text. A large run has a page for each class.

    Its first page is small enough for a phone: an overview with failures and findings. One per class follows, and one
    for the papers. The plotting library is a file of its own, which pages with a plot load.
    `domains` are documents of ``gradgate domain``: figures of the first page.
    """
    if len(report.rows) <= LARGE or len(report.families) < 2:
        whole_page = render(report, domains=domains)
        if not report.families or len(whole_page.encode()) <= LIMIT:
            return frame.with_library({"index.html": whole_page})
    parts = {rows[0].verdict.task.family: Report(rows, len(rows), report.fingerprint) for rows in report.families}
    files = file_names(parts)
    ends = {"index.html": "overview"}, {"papers.html": "the papers"} if known_families(report) else {}
    listed = {file: name for name, file in files.items()} if len(files) <= LISTED else {}
    linked = [dataclasses.replace(row, page=files[row.verdict.task.family]) for row in report.rows]
    whole = Report(linked, report.claims, report.fingerprint)
    menu = ends[0] | listed | ends[1]
    overview = {files[name]: part for name, part in parts.items()}
    made = {"index.html": render(whole, menu, "index.html", overview, domains=domains)}
    made |= {"papers.html": _papers(report, menu)} if ends[1] else {}
    for name, part in parts.items():
        around = ends[0] | (listed or {files[name]: name}) | ends[1]
        made[files[name]] = render(part, around, files[name], brief=not listed)
    for file, template in frame.SHARED.items():
        made[file] = f"/* gradgate */\n{frame.environment().get_template(template).render()}"
    return frame.with_library(made)


def file_names(families: Iterable[str]) -> dict[str, str]:
    """Class -> the file of its page: no two the same, even where case does not count, and none of another page.

    >>> file_names(["chain", "Chain", "../../x"])
    {'chain': 'chain.html', 'Chain': 'Chain-dae0896c.html', '../../x': 'x-9cdf6a50.html'}
    """
    found: dict[str, str] = {}
    taken = set(RESERVED)
    for family in families:
        stem = re.sub("[^A-Za-z0-9_-]+", "-", family).strip("-")[:LONGEST]
        digest = hashlib.sha256(family.encode(errors="backslashreplace")).hexdigest()
        names = [stem] if stem and stem == family else []
        names += [f"{stem or 'class'}-{digest[:8]}", digest]  # the last is longer than any plain name
        name = next(name for name in names if name.casefold() not in taken)
        taken.add(name.casefold())
        found[family] = f"{name}.html"
    return found


def render(
    report: Report,
    menu: Mapping[str, str] | None = None,
    here: str = "",
    parts: Mapping[str, Report] | None = None,
    brief: bool = False,
    domains: Sequence[dict[str, Any]] = (),
) -> str:
    """One page: the whole report in one self-contained file, or one page of several.

    Args:
        report: the report that it shows.
        menu: file -> name of every page, if there are several. Then the papers have a separate page.
        here: the file of this page.
        parts: file of a class's page -> its report, for the overview, which has no tables of single verdicts.
        brief: show of a claim that is upheld no more than its line.
        domains: documents of ``gradgate domain``, each shown as a figure.
    """
    drawn = [] if parts else plot.drawable(report.rows)
    drawn = drawn if len(drawn) >= POINTS else []
    measured = [] if parts else [row for row in report.rows if row.verdict.laws]
    families = known_families(report)
    kept = paper_section.stored(families)
    papers, judged = paper_section.places(kept), paper_section.judged(kept)
    if menu:
        papers = []
    figures = {"error-noise": plot.figure(report.rows)} if drawn else {}
    figures |= {f"law-{row.anchor}": memory_plot.of_verdict(row.verdict) for row in measured}
    figures |= {place.anchor: place.figure for place in papers if place.figure}
    return frame.page(
        "page.html",
        figures,
        shared=bool(menu),
        report=report,
        outcomes=OUTCOMES,
        labels=LABELS,
        kappa=plot.KAPPA,
        menu=menu or {},
        here=here,
        parts=parts or {},
        overview=bool(parts),
        brief=brief,
        drawn=len(drawn),
        most=CARDS if parts else len(report.rows),
        meanings=MEANINGS,
        zeros=sum(not row.verdict.error for row in drawn),
        floor=plot.floor(report.rows),
        not_finite=sum(row.not_finite and not row.exact for row in report.rows),
        dtypes=list(GRADIENT_CLAIMS),
        sourced=[] if parts else _sourced(report),
        domains=[Markup(domain_plot.of_document(clean(one))) for one in domains],
        line_states=source.STATES,
        measured=measured,
        papers=papers,
        tables={row.anchor: memory_plot.tables(row.verdict.laws) for row in measured},
        powers=[] if parts else power_section.of_families(families),
        all_dtypes=power_section.DTYPES,
        ledgers=[] if menu else _ledgers(families),
        judged=judged,
        printed=paper_section.total(judged),
        tones=paper_section.TONES,
    )


def _sourced(report: Report) -> list[tuple[Row, list[source.Source], source.Covered]]:
    """The verdicts that say which lines ran, with the files and how much of them was judged."""
    rows = [row for row in report.rows if row.verdict.lines]
    return [(row, source.sources(row.verdict), source.Covered.of(row.verdict)) for row in rows]


def known_families(report: Report) -> list[str]:
    """The classes of a report that are registered here."""
    known = registry.families()
    return [matrix.family for matrix in report.matrices if matrix.family in known]


def _ledgers(families: Iterable[str]) -> list[ledger.Ledger]:
    return [found for found in map(ledger.of_family, families) if found.entries]


def _papers(report: Report, menu: Mapping[str, str]) -> str:
    """The page of the papers: their figures, and their statements."""
    families = known_families(report)
    kept = paper_section.stored(families)
    places = paper_section.places(kept)
    figures = {place.anchor: place.figure for place in places if place.figure}
    return frame.page(
        "papers_page.html",
        figures,
        shared=True,
        menu=menu,
        here="papers.html",
        papers=places,
        judged=paper_section.judged(kept),
        ledgers=_ledgers(families),
        tones=paper_section.TONES,
        meanings=MEANINGS,
    )
