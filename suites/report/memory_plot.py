"""Laws of memory and work as log-log plots: what was measured, the fitted line, and the claimed slope."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from plotly.offline import get_plotlyjs

from gradgate.hw_profiles.fit import FittedLaw
from gradgate.references import registry
from gradgate.references.law_kinds import Growth
from gradgate.suites.console.files import MARK
from gradgate.suites.judging.verdict import Verdict
from gradgate.suites.report.plot import FONT

COLOURS = ("#3b6fb6", "#c4622d", "#3c8d5a", "#8a5fa8", "#a8893a", "#4f9aa8", "#b0506f", "#6b6b6b")


def figure(series: Sequence[Mapping[str, Any]], claimed: float | None = None) -> dict[str, Any]:
    """Traces and layout for Plotly.

    Args:
        series: dicts of `Series.to_dict`, of one variable, each with a ``name``.
        claimed: an exponent, drawn as a line through the largest point of the first series.
    """
    traces: list[dict[str, Any]] = []
    for i, one in enumerate(series):
        colour = COLOURS[i % len(COLOURS)]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": one["name"] or one["quantity"],
                "x": list(one["sizes"]),
                "y": list(one["values"]),
                "marker": {"color": colour, "size": 8},
                "legendgroup": str(i),
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
    return {"data": traces, "layout": layout}


def of_verdict(verdict: Verdict) -> dict[str, Any]:
    """The plot of a claim about memory or work: every series over the first one's variable."""
    first, task = verdict.laws[0], verdict.task
    family = None if task.target else registry.families().get(task.family)  # a class of a user is not known here
    key = task.method, task.framework, task.claim
    claims = [(m.name, m.framework, c.name, c.law) for m in (family.methods if family else ()) for c in m.claims]
    law = next((law for *named, law in claims if tuple(named) == key), None)
    claimed = law.exponent if isinstance(law, Growth) else None
    return figure([one for one in verdict.laws if one["variable"] == first["variable"]], claimed)


def page(document: Mapping[str, Any]) -> str:
    """The page of ``gradgate memory --report``: a plot per quantity and the laws in words."""
    parts = [f"<!doctype html><html lang=en><meta charset=utf-8>{MARK}<title>gradgate memory</title>"]
    parts.append("<style>body{font:15px system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em}</style>")
    parts += [f"<script>{get_plotlyjs()}</script>"] if document["laws"] else []
    parts.append("<h1>gradgate memory</h1>")
    for quantity in dict.fromkeys(law["quantity"] for law in document["laws"]):
        laws = [law for law in document["laws"] if law["quantity"] == quantity]
        if quantity == "flops":  # the work is the same on every profile
            laws = list({(law["method"], law["framework"]): law for law in laws}.values())
        named = [dict(law) | {"name": " ".join(law[k] for k in ("method", "framework", "profile"))} for law in laws]
        parts.append(f'<h2>{html.escape(quantity)}</h2><div id="{html.escape(quantity)}"></div><ul>')
        parts += [f"<li><b>{html.escape(law['name'])}</b> {html.escape(law['words'])}</li>" for law in named]
        parts.append(f"</ul><script>{_plot(quantity, figure(named))}</script>")
    if not document["laws"]:
        parts.append("<p>No sweep was requested, so there is no law to plot.</p>")
    return "\n".join(parts) + "\n"


def _plot(place: str, drawn: dict[str, Any]) -> str:
    import json

    plain = json.dumps(drawn).replace('"--line"', '"#ddd"').replace('"--text"', '"#222"')
    drawing = f"{{const f={plain};Plotly.newPlot({json.dumps(place)},f.data,f.layout,{{responsive:true}})}}"
    return drawing.replace("<", "\\u003c")  # no text of the document ends the script; it has no comparison of its own


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
