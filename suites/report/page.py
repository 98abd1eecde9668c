"""The page: templates of this folder, filled in."""

from __future__ import annotations

import json
from collections.abc import Iterable
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


def render(report: Report) -> str:
    """The whole page, in one self-contained file."""
    drawn = plot.drawable(report.rows)
    measured = [row for row in report.rows if row.verdict.laws]
    laws = {f"law-{row.anchor}": memory_plot.of_verdict(row.verdict) for row in measured}
    known = registry.families()
    families = [m.family for m in report.matrices if m.family in known]
    kept = paper_section.kept(families)
    papers, judged = paper_section.places(kept), paper_section.judged(kept)
    ledgers = [found for found in map(ledger.of_family, families) if found.entries]
    laws |= {place.anchor: place.figure for place in papers if place.figure}
    return environment().get_template("page.html").render(
        report=report, outcomes=OUTCOMES, labels=LABELS, kappa=plot.KAPPA,
        drawn=len(drawn),
        zeros=sum(not row.verdict.error for row in drawn),
        floor=plot.floor(report.rows),
        not_finite=sum(row.not_finite and not row.exact for row in report.rows),
        dtypes=list(GRADIENT_CLAIMS),
        figure=plot.figure(report.rows) if drawn else None,
        measured=measured, laws=laws, papers=papers, powers=power_section.of_families(families),
        all_dtypes=power_section.DTYPES, ledgers=ledgers, judged=judged, figures=paper_section.total(judged),
        tones=paper_section.TONES,
        plotly_js=Markup(get_plotlyjs()) if drawn or laws else "",
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
    return Coverage(found["tried"], found["possible"], tuple(found["missing"])).sentence()


def _unique(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))
