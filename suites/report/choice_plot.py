"""Which method to use for a model, as a plot: bytes against roofline time, a point per method, a colour per device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gradgate.suites.report.memory_plot import COLOURS
from gradgate.suites.report.plot import FONT, zero_at


def figure(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Traces and layout for Plotly. The point of a wrong method is a cross, one with a zero is hollow."""
    traces = []
    least = {
        name: zero_at(r[name] for r in rows if r[name] is not None) for name in ("required_bytes", "roofline_seconds")
    }
    profiles = list(dict.fromkeys(row["profile"] for row in rows))
    for profile, colour in zip(profiles, COLOURS * len(profiles), strict=False):
        known = [r for r in rows if r["profile"] == profile and None not in [r[name] for name in least]]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers+text",
                "name": profile,
                "textposition": "top center",
                "x": [r["required_bytes"] or least["required_bytes"] for r in known],
                "y": [r["roofline_seconds"] or least["roofline_seconds"] for r in known],
                "text": [r["method"] for r in known],
                "hovertext": [r["verdict"] for r in known],
                "marker": {
                    "color": colour,
                    "size": 10,
                    "symbol": [
                        ("x" if r["right"] is False else "circle") + ("" if all(r[name] for name in least) else "-open")
                        for r in known
                    ],
                },
            }
        )
    axis = {"type": "log", "exponentformat": "power", "gridcolor": "--line", "linecolor": "--line", "zeroline": False}
    layout = {
        "font": FONT,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "height": 460,
        "margin": {"l": 76, "r": 16, "t": 8, "b": 48},
        "xaxis": axis | {"title": {"text": "bytes"}},
        "yaxis": axis | {"title": {"text": "roofline, seconds"}},
    }
    return {"data": traces, "layout": layout}
