"""Which method to use for a model, as a plot: bytes against roofline time, a point per method, a colour per device."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from typing import Any

from plotly.offline import get_plotlyjs

from gradgate.suites.console.choice_table import answer
from gradgate.suites.console.files import MARK
from gradgate.suites.report.memory_plot import COLOURS
from gradgate.suites.report.plot import FONT

COLUMNS = ("profile", "method", "verdict", "size", "required_bytes", "temp_bytes", "flops", "roofline_seconds", "fits")


def figure(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Traces and layout for Plotly. The point of a wrong method is a cross."""
    traces = []
    profiles = list(dict.fromkeys(row["profile"] for row in rows))
    for profile, colour in zip(profiles, COLOURS * len(profiles), strict=False):
        known = [r for r in rows if r["profile"] == profile and r["required_bytes"] and r["roofline_seconds"]]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers+text",
                "name": profile,
                "textposition": "top center",
                "x": [r["required_bytes"] for r in known],
                "y": [r["roofline_seconds"] for r in known],
                "text": [r["method"] for r in known],
                "hovertext": [r["verdict"] for r in known],
                "marker": {
                    "color": colour,
                    "size": 10,
                    "symbol": ["x" if r["right"] is False else "circle" for r in known],
                },
            }
        )
    axis = {"type": "log", "exponentformat": "power", "gridcolor": "#ddd", "zeroline": False}
    layout = {
        "font": FONT | {"color": "#222"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "height": 460,
        "margin": {"l": 76, "r": 16, "t": 8, "b": 48},
        "xaxis": axis | {"title": {"text": "bytes"}},
        "yaxis": axis | {"title": {"text": "roofline, seconds"}},
    }
    return {"data": traces, "layout": layout}


def page(choice: Mapping[str, Any]) -> str:
    """The whole page: the answer per device, the plot, the table, and the methods that were left out."""
    rows = choice["rows"]
    title = f"{choice['problem']}: which method of {choice['class']}"
    parts = [f"<!doctype html><html lang=en><meta charset=utf-8>{MARK}<title>{html.escape(title)}</title>"]
    parts.append(
        "<style>body{font:15px system-ui,sans-serif;max-width:75em;margin:2em auto;padding:0 1em}"
        "td,th{text-align:left;padding:.2em .8em;border-bottom:1px solid #ddd}</style>"
    )
    parts.append(f"<script>{get_plotlyjs()}</script><h1>{html.escape(title)}</h1><ul>")
    for profile in dict.fromkeys(row["profile"] for row in rows):
        parts.append(f"<li>{html.escape(answer(rows, profile, choice['letter']))}</li>")
    drawn = json.dumps(figure(rows)).replace("<", "\\u003c")
    parts.append(f'</ul><div id="choice"></div><script>{{const f={drawn};')
    parts.append("Plotly.newPlot('choice',f.data,f.layout,{responsive:true})}</script><table>")
    parts.append("<tr>" + "".join(f"<th>{name}</th>" for name in COLUMNS) + "</tr>")
    for row in rows:
        shown = ("" if row[name] is None else html.escape(str(row[name])) for name in COLUMNS)
        parts.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in shown) + "</tr>")
    parts.append("</table><ul>")
    parts += [f"<li>{html.escape(m)}: {html.escape(why)}</li>" for m, why in choice["left_out"].items()]
    return "\n".join(parts) + "</ul>\n"
