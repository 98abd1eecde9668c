"""The pages of the report, made from the templates of this folder."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape
from plotly.offline import get_plotlyjs

from gradgate.references import ledger, registry
from gradgate.references.claims import GRADIENT_CLAIMS
from gradgate.suites.engine.coverage import Coverage
from gradgate.suites.judging.explain import LABELS, number
from gradgate.suites.judging.outcomes import OUTCOMES
from gradgate.suites.report import domain_plot, memory_plot, paper_section, plot, power_section, source
from gradgate.suites.report.model import Report, clean

LARGE = 300
"""Up to this many verdicts of several classes are shown on one page."""
LISTED = 30
"""Up to this many classes are listed on every page. If there are more, the overview alone lists them, and the page of a
class has no more than a line for a claim that is upheld."""
POINTS = 10
"""With fewer points there is no plot: the table has their numbers, and the plotting library is larger than the page."""
SCRIPT = "plotly.min.js"
"""The file of the plotting library, if several pages share it."""
SHARED = {"report.css": "style.css", "plots.js": "plots.html", "report.js": "script.html"}
"""File that several pages share -> its template."""
LONGEST = 60
"""The longest part of a class's name that becomes part of a file's name."""
RESERVED = ("index", "papers", "memory", "selftest", "choice")
"""Names of pages that are not a class's."""


def pages(report: Report, domains: Sequence[dict[str, Any]] = ()) -> dict[str, str]:
    """The files of a report: name -> text. A large run of several classes has a page for each class.

    Its pages are small enough for a phone: an overview with failures and findings, one per class, one for the papers.
    `domains` are documents of ``gradgate domain``: figures of the first page.
    """
    if len(report.rows) <= LARGE or len(report.families) < 2:
        return {"index.html": render(report, domains=domains)}
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
    for file, template in SHARED.items():
        made[file] = f"/* gradgate */\n{environment().get_template(template).render()}"
    return made | ({SCRIPT: get_plotlyjs()} if any(f'src="{SCRIPT}"' in text for text in made.values()) else {})


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
    laws = {f"law-{row.anchor}": memory_plot.of_verdict(row.verdict) for row in measured}
    families = known_families(report)
    kept = paper_section.stored(families)
    papers, judged = paper_section.places(kept), paper_section.judged(kept)
    if menu:
        papers = []
    laws |= {place.anchor: place.figure for place in papers if place.figure}
    return (
        environment()
        .get_template("page.html")
        .render(
            report=report,
            outcomes=OUTCOMES,
            labels=LABELS,
            kappa=plot.KAPPA,
            menu=menu or {},
            here=here,
            parts=parts or {},
            overview=bool(parts),
            brief=brief,
            script=SCRIPT if menu and (drawn or laws) else "",
            drawn=len(drawn),
            zeros=sum(not row.verdict.error for row in drawn),
            floor=plot.floor(report.rows),
            not_finite=sum(row.not_finite and not row.exact for row in report.rows),
            dtypes=list(GRADIENT_CLAIMS),
            figure=plot.figure(report.rows) if drawn else None,
            sourced=[] if parts else [(row, source.sources(row.verdict)) for row in report.rows if row.verdict.lines],
            domains=[Markup(domain_plot.of_document(clean(one))) for one in domains],
            line_states=source.STATES,
            measured=measured,
            laws=laws,
            papers=papers,
            powers=[] if parts else power_section.of_families(families),
            all_dtypes=power_section.DTYPES,
            ledgers=[] if menu else _ledgers(families),
            judged=judged,
            figures=paper_section.total(judged),
            tones=paper_section.TONES,
            plotly_js=Markup(get_plotlyjs()) if (drawn or laws) and not menu else "",
        )
    )


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
    return (
        environment()
        .get_template("papers_page.html")
        .render(
            menu=menu,
            here="papers.html",
            papers=places,
            judged=paper_section.judged(kept),
            ledgers=_ledgers(families),
            tones=paper_section.TONES,
            laws={place.anchor: place.figure for place in places if place.figure},
            script=SCRIPT,
        )
    )


@functools.cache
def environment() -> jinja2.Environment:
    """The templates of this folder. They are compiled once, however many pages there are."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
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
    known = {name: found[name] for name in ("tried", "possible", "enough") if name in found}
    return Coverage(**known, missing=tuple(found["missing"])).sentence()


def _unique(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))
