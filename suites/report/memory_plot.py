"""Laws of memory and work as log-log plots: what was measured, the fitted line, and the claimed slope.

A logarithmic axis has no zero, so a zero is drawn as a hollow mark on a line below all other points.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from gradgate.hw_profiles.fit import FittedLaw
from gradgate.references import registry
from gradgate.references.law_kinds import Growth
from gradgate.suites.judging.verdict import Verdict
from gradgate.suites.measuring.series import amount
from gradgate.suites.report.plot import FONT, zero_at, zero_line
from gradgate.suites.report.plot_table import PlotTable

COLOURS = ("#3b6fb6", "#c4622d", "#3c8d5a", "#8a5fa8", "#a8893a", "#4f9aa8", "#b0506f", "#6b6b6b")


def figure(series: Sequence[Mapping[str, Any]], claimed: float | None = None) -> dict[str, Any]:
    """Traces and layout for Plotly.

    Args:
        series: dicts of `Series.to_dict`, of one variable, each with a ``name``.
        claimed: an exponent, drawn as a line through the largest point of the first series.
    """
    traces: list[dict[str, Any]] = []
    values = [value for one in series for value in one["values"]]
    bottom = zero_at(values)
    for i, one in enumerate(series):
        colour = COLOURS[i % len(COLOURS)]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": one["name"] or one["quantity"],
                "x": list(one["sizes"]),
                "y": [value if value > 0 else bottom for value in one["values"]],
                "text": [amount(value, one["quantity"]) for value in one["values"]],
                "hovertemplate": "%{x}: %{text}",
                "legendgroup": str(i),
                "marker": {
                    "color": colour,
                    "size": 8,
                    "symbol": ["circle" if value > 0 else "circle-open" for value in one["values"]],
                },
            }
        )
        if one["law"] is not None and one["sizes"] and one["sizes"][0] > 0:  # the axes are logarithmic
            traces.append(_line(one, colour, str(i)))
    if claimed is not None and series and series[0]["sizes"] and series[0]["sizes"][0] > 0:
        traces.append(_claimed(series[0], claimed))
    axis = {"type": "log", "exponentformat": "power", "gridcolor": "--line", "linecolor": "--line", "zeroline": False}
    first = series[0] if series else {"letter": "", "quantity": ""}
    unit = "FLOPs" if first["quantity"] == "flops" else "bytes"
    layout = {
        "font": FONT,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "height": 320,
        "margin": {"l": 76, "r": 16, "t": 8, "b": 48},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "bgcolor": "rgba(0,0,0,0)"},
        "xaxis": axis | {"title": {"text": first["letter"]}},
        "yaxis": axis | {"title": {"text": unit}},
    }
    if any(value <= 0 for value in values):
        layout |= zero_line(bottom, "0, drawn here")
    return {"data": traces, "layout": layout}


def tables(series: Sequence[Mapping[str, Any]]) -> list[PlotTable]:
    """The numbers of series, a table for each variable and unit."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for one in series:
        groups.setdefault((one["letter"], "flops" if one["quantity"] == "flops" else ""), []).append(one)
    return [
        PlotTable.of(
            letter,
            [(one["name"] or one["quantity"], one["sizes"], one["values"]) for one in group],
            functools.partial(amount, quantity=quantity),
        )
        for (letter, quantity), group in groups.items()
    ]


def of_verdict(verdict: Verdict) -> dict[str, Any]:
    """The plot of a claim about memory or work: every series over the first one's variable."""
    first, task = verdict.laws[0], verdict.task
    family = None if task.target else registry.families().get(task.family)  # a class of a user is not known here
    key = task.method, task.framework, task.claim
    claims = [(m.name, m.framework, c.name, c.law) for m in (family.methods if family else ()) for c in m.claims]
    law = next((law for *named, law in claims if tuple(named) == key), None)
    claimed = law.exponent if isinstance(law, Growth) else None
    return figure([one for one in verdict.laws if one["variable"] == first["variable"]], claimed)


def _line(one: Mapping[str, Any], colour: str, group: str) -> dict[str, Any]:
    law, sizes = FittedLaw.from_dict(one["law"]), one["sizes"]
    points = [sizes[0] * (sizes[-1] / sizes[0]) ** (i / 40) for i in range(41)]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": one["words"],
        "x": points,
        "y": [law.predict(x) for x in points],
        "hoverinfo": "skip",
        "line": {"color": colour, "width": 1.5},
        "legendgroup": group,
    }


def _claimed(one: Mapping[str, Any], exponent: float) -> dict[str, Any]:
    low, high = one["sizes"][0], one["sizes"][-1]
    top = one["values"][-1]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"slope {exponent:g}, as claimed",
        "x": [low, high],
        "y": [top * (low / high) ** exponent, top],
        "line": {"color": "--faint", "dash": "dash", "width": 1.5},
        "hoverinfo": "skip",
    }
