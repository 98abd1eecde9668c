"""The papers' tables and figures next to ours, as ``gradgate paper`` last measured them, with current verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradgate.references import registry
from gradgate.references.published import Judged, counts
from gradgate.suites.measuring import paper_results
from gradgate.suites.report.memory_plot import COLOURS
from gradgate.suites.report.plot import FONT, zero_at, zero_line
from gradgate.suites.report.plot_table import PlotTable

Row = Mapping[str, Any]
TONES = {
    "upheld": "upheld",
    "refuted as declared": "finding",
    "unexplained": "unexpected",
    "not as declared": "failure",
    "not measured here": "error",
    "undeclared": "inapplicable",
}
"""Outcome of a figure -> class of its colour."""
MOST = 12
"""Points of a curve that the table beside its plot has."""


@dataclass(frozen=True)
class Place:
    """One table or figure of a paper, or a measurement that only we made.

    Attributes:
        anchor: the id of its plot.
        rows: results that are single figures or have no value.
        figure: the plot of the curves; None if there are none.
        curves: the numbers of curves that are no rows; None if there are none.
        notes: numbers that came with a curve.
        drawings: results that are text, which is shown unchanged.
        dates: when it was measured.
    """

    family: str
    name: str
    anchor: str
    rows: list[Row]
    figure: dict[str, Any] | None
    curves: PlotTable | None
    notes: dict[str, float]
    drawings: list[Row]
    dates: str


def stored(names: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    """Family -> every listed figure of its paper, with the kept result and its verdict. Nothing is measured."""
    return {family: paper_results.stored(family) for family in filter(registry.package, names)}


def places(papers: Mapping[str, list[dict[str, Any]]]) -> list[Place]:
    """The places of the kept results, paper by paper."""
    found = []
    for family, rows in papers.items():
        for i, name in enumerate(dict.fromkeys(row["place"] for row in rows)):
            chosen = [row for row in rows if row["place"] == name]
            found.append(place(family, name, f"paper-{family}-{i}", chosen))
    return found


def judged(papers: Mapping[str, list[dict[str, Any]]]) -> dict[str, dict[str, Judged]]:
    """Family -> key of a printed figure -> its verdict."""
    return {family: paper_results.judged(rows) for family, rows in papers.items()}


def total(verdicts: Mapping[str, Mapping[str, Judged]]) -> dict[str, int]:
    """Outcome -> how many printed figures of all papers have it; empty if there are no printed figures."""
    found = counts(one for rows in verdicts.values() for one in rows.values())
    return found if any(found.values()) else {}


def place(family: str, name: str, anchor: str, results: Sequence[Row]) -> Place:
    """The results of one place. A result at a number x is a point, a dict of lists is curves, text is a drawing."""
    curves = [row["ours"] for row in results if isinstance(row["ours"], dict)]
    drawings = [row for row in results if isinstance(row["ours"], str)]
    rows = [row for row in results if not isinstance(row["ours"], (dict, str))]
    lines: dict[str, tuple[list[float], list[float]]] = {}
    for row in rows:
        if isinstance(row["x"], (int, float)) and row["ours"] is not None:
            xs, ys = lines.setdefault(row["series"], ([], []))
            xs.append(row["x"])
            ys.append(row["ours"])
    notes: dict[str, float] = {}
    drawn: list[tuple[str, list[float], list[float]]] = []
    for curve in curves:
        x = next(values for values in curve.values() if isinstance(values, list))
        own = {key: (x, values) for key, values in list(curve.items())[1:] if isinstance(values, list)}
        lines |= own
        drawn += [(key, *_some(*line)) for key, line in own.items()]
        notes |= {key: value for key, value in curve.items() if isinstance(value, (int, float))}
    figure = _figure(lines, results[0]["unit"], "linear" if curves else "log") if lines else None
    dates = sorted({row["date"] for row in results} - {""}) or [paper_results.NOT_YET]
    told = dates[0] if len(dates) == 1 else f"{dates[0]} … {dates[-1]}"
    table = PlotTable.of(next(iter(curves[0])), drawn, "{:.4g}".format) if drawn else None
    return Place(family, name, anchor, rows, figure, table, notes, drawings, told)


def _some(xs: Sequence[float], ys: Sequence[float]) -> tuple[list[float], list[float]]:
    """At most `MOST` known points of a curve, evenly chosen, with both ends."""
    points = [(x, y) for x, y in zip(xs, ys, strict=False) if x is not None and y is not None]
    if len(points) > MOST:
        points = [points[i] for i in sorted({round(i * (len(points) - 1) / (MOST - 1)) for i in range(MOST)})]
    return [x for x, _ in points], [y for _, y in points]


def _figure(lines: Mapping[str, tuple[list[float], list[float]]], unit: str, scale: str) -> dict[str, Any]:
    values = [y for _, ys in lines.values() for y in ys if y is not None]
    zeros = scale == "log" and any(value <= 0 for value in values)
    bottom = zero_at(values)
    if zeros:
        lines = {name: (xs, [y if y is None or y > 0 else bottom for y in ys]) for name, (xs, ys) in lines.items()}
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers" if scale == "log" else "lines",
            "name": name,
            "x": xs,
            "y": ys,
            "line": {"color": COLOURS[i % len(COLOURS)]},
        }
        for i, (name, (xs, ys)) in enumerate(lines.items())
    ]
    axis = {"type": scale, "gridcolor": "--line", "linecolor": "--line", "zeroline": False}
    layout = {
        "font": FONT,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "height": 360,
        "margin": {"l": 76, "r": 16, "t": 8, "b": 48},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "bgcolor": "rgba(0,0,0,0)"},
        "xaxis": axis,
        "yaxis": axis | {"title": {"text": unit}},
    }
    if zeros:
        layout |= zero_line(bottom, "0, drawn here")
    return {"data": traces, "layout": layout}
