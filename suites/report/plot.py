"""Error against noise, one point per verdict, as a Plotly figure in plain JSON.

Colours are names of CSS variables: the page resolves them in the reader's colour scheme.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable
from typing import Any

from gradgate.references.contract import Method
from gradgate.suites.judging.outcomes import OUTCOMES
from gradgate.suites.report.model import Row

KAPPA = Method.kappa
"""κ of a method that declares no other."""
EMPTY_FLOOR = 1e-18
FONT = {"color": "--text", "family": "system-ui, sans-serif", "size": 13}
_SYMBOLS = {"upheld": "circle", "finding": "diamond", "failure": "x", "unexpected": "cross", "error": "square"}


def drawable(rows: list[Row]) -> list[Row]:
    """The rows that have an error and a noise."""
    return [row for row in rows if row.verdict.error is not None and row.noise is not None]


def floor(rows: list[Row]) -> float:
    """Where a zero is drawn: at least a decade below every number that is not zero."""
    numbers = [x for row in drawable(rows) for x in (row.verdict.error, row.noise) if x]
    return 10.0 ** (math.floor(math.log10(min(numbers))) - 1) if numbers else EMPTY_FLOOR


def zero_at(values: Iterable[float]) -> float:
    """Where a zero is drawn on a logarithmic axis: a decade or more below the smallest number that is not zero.

    >>> zero_at([0, 300, 4000]), zero_at([0])
    (10.0, 1.0)
    """
    positive = [value for value in values if value > 0]
    return 10.0 ** (math.floor(math.log10(min(positive))) - 1) if positive else 1.0


def figure(rows: list[Row]) -> dict[str, Any]:
    """Traces and layout, for Plotly."""
    rows, bottom = drawable(rows), floor(rows)
    noises = [row.noise or bottom for row in rows]
    errors = [row.verdict.error or bottom for row in rows]
    left, right = _margins(noises)
    low, high = _margins([*errors, bottom / 3])
    traces = [
        _line("error = noise", 1.0, left, right, "solid"),
        _line(f"error = {KAPPA:g} · noise (κ)", KAPPA, left, right, "dash"),
    ]
    traces += [_points(outcome, rows, bottom) for outcome in OUTCOMES if any(row.outcome == outcome for row in rows)]
    axis = {"type": "log", "exponentformat": "power", "gridcolor": "--line", "linecolor": "--line", "zeroline": False}
    layout: dict[str, Any] = {
        "font": FONT,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 76, "r": 16, "t": 8, "b": 56},
        "height": 520,
        "hovermode": "closest",
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "--faint", "activecolor": "--text"},
        "hoverlabel": {"align": "left", "bgcolor": "--raised", "bordercolor": "--faint", "font": FONT},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "bgcolor": "rgba(0,0,0,0)"},
        "xaxis": axis | {"title": {"text": "noise"}, "range": [math.log10(left), math.log10(right)]},
        "yaxis": axis | {"title": {"text": "relative error"}, "range": [math.log10(low), math.log10(high)]},
    }
    if any(not row.verdict.error for row in rows):
        layout |= zero_line(bottom, "error exactly 0, drawn here")
    return {"data": traces, "layout": layout}


def _points(outcome: str, rows: list[Row], bottom: float) -> dict[str, Any]:
    chosen = [row for row in rows if row.outcome == outcome]
    chosen.sort(key=lambda row: not row.verdict.error)  # the legend shows the first point
    symbols = [_SYMBOLS.get(outcome, "circle") + ("" if row.verdict.error else "-open") for row in chosen]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": OUTCOMES[outcome].meaning,
        "x": [row.noise or bottom for row in chosen],
        "y": [row.verdict.error or bottom for row in chosen],
        "text": [_hover(row) for row in chosen],
        "customdata": [row.anchor for row in chosen],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"color": f"--{outcome}", "symbol": symbols, "size": 9, "opacity": 0.8, "line": {"width": 1}},
    }


def _line(name: str, factor: float, left: float, right: float, dash: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": [left, right],
        "y": [factor * left, factor * right],
        "line": {"color": "--faint", "dash": dash, "width": 1.5},
        "hoverinfo": "skip",
    }


def zero_line(bottom: float, words: str) -> dict[str, Any]:
    """The part of a layout that marks where zeros are drawn."""
    ends = {"xref": "paper", "x0": 0, "x1": 1, "y0": bottom, "y1": bottom}
    line = ends | {"type": "line", "layer": "below", "line": {"color": "--faint", "dash": "dot", "width": 1}}
    place = {"xref": "paper", "x": 1, "xanchor": "right", "y": math.log10(bottom), "yanchor": "bottom", "yshift": 7}
    return {
        "shapes": [line],
        "annotations": [place | {"text": words, "showarrow": False, "font": {"color": "--faint"}}],
    }


def _hover(row: Row) -> str:
    verdict, task = row.verdict, row.verdict.task
    fields = [f"{name}={value}" for name, value in ((verdict.spec or {}) | verdict.options).items()]
    lines = [
        row.explanation.outcome,
        row.explanation.measured,
        *(" ".join(fields[i : i + 5]) for i in range(0, len(fields), 5)),
    ]
    head = f"<b>{_text(task.method)}</b> {_text(task.framework)} · {_text(task.claim)}"
    return "<br>".join([head, *map(_text, lines)])


def _text(text: str) -> str:
    """Text for a label of Plotly, which reads tags and a few entities, but not the entity of the quotation mark."""
    return html.escape(text, quote=False)


def _margins(values: list[float]) -> tuple[float, float]:
    return min(values) / 4, max(values) * 4
