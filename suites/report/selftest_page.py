"""The page of ``gradgate selftest``: kill rates, the suite and its rivals, and every mutant with what refuted it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradgate.suites.bugs.mutant import FORMULA
from gradgate.suites.report import columns, frame
from gradgate.suites.report.memory_plot import COLOURS
from gradgate.suites.report.model import clean
from gradgate.suites.report.plot import FONT
from gradgate.suites.report.plot_table import PlotTable
from gradgate.suites.selftest import summary, table
from gradgate.suites.selftest.judging import SUITE


def render(document: dict[str, Any], expected: int) -> str:
    """The page of a document of ``gradgate selftest --json``, complete or cut off; `expected`: how many mutants."""
    document = clean(document)
    outcomes = document["mutants"]
    tools = [tool for tool in summary.tools(outcomes) if tool.asked]
    bugs = [row for row in outcomes if row["status"] in summary.BUGS]
    figures = {"rates": rates(tools), "planted": planted(outcomes, tools)}
    return frame.page(
        "selftest.html",
        figures,
        document=document,
        bugs=bugs,
        killed=sum(row["status"] == "killed" for row in bugs),
        faults=[row for row in outcomes if row["status"] in ("survived", "alarm", "undecided")],
        equivalent=[row for row in outcomes if row["status"] == "equivalent"],
        status=summary.status(outcomes, expected),
        groups=summary.groups(outcomes),
        tools=tools,
        killers=summary.killers(outcomes),
        formulas=summary.formulas(outcomes),
        exact=FORMULA,
        percent=summary.percent,
        power=summary.power,
        found_by=summary.found_by,
        labels=summary.LABELS,
        command=table.command,
        planted=_planted_table(outcomes, tools),
        meanings={"tools": columns.TOOLS, "groups": columns.GROUPS, "mutants": columns.MUTANTS},
    )


def _planted_table(outcomes: Sequence[dict[str, Any]], tools: Sequence[summary.Tool]) -> PlotTable:
    shares = {tool.label: summary.shares(outcomes, tool.name) for tool in tools}
    series = [(label, [size for size, _ in points], [share for _, share in points]) for label, points in shares.items()]
    return PlotTable.of("relative error", series, "{:.0%}".format)


def rates(tools: Sequence[summary.Tool]) -> dict[str, Any]:
    """Kill rates as bars, of all mutants and of those with a wrong formula."""
    labels = [tool.label for tool in tools]
    pairs = {
        "all mutants": [100 * tool.detected / tool.asked for tool in tools],
        "wrong formulas": [100 * tool.found_formula / max(1, tool.asked_formula) for tool in tools],
    }
    bars = [
        {"type": "bar", "orientation": "h", "name": name, "y": labels, "x": values, "marker": {"color": COLOURS[i]}}
        for i, (name, values) in enumerate(pairs.items())
    ]
    layout = _layout("found, in percent", "", height=90 + 46 * len(tools))
    layout["yaxis"] |= {"autorange": "reversed", "automargin": True}
    layout["xaxis"] |= {"range": [0, 100]}
    return {"data": bars, "layout": layout | {"barmode": "group"}}


def planted(outcomes: Sequence[dict[str, Any]], tools: Sequence[summary.Tool]) -> dict[str, Any]:
    """The share of planted errors that is found, over their relative size, a line per tool."""
    lines = []
    for i, tool in enumerate(tools):
        points = summary.shares(outcomes, tool.name)
        lines.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": tool.label,
                "x": [size for size, _ in points],
                "y": [100 * share for _, share in points],
                "line": {
                    "color": COLOURS[i % len(COLOURS)],
                    "width": 4 if tool.name == SUITE else 2,
                    "dash": "solid" if i < len(COLOURS) else "dot",
                },
            }
        )
    layout = _layout("relative error planted in one leaf", "found, in percent", height=420)
    layout["xaxis"] |= {"type": "log", "exponentformat": "power", "autorange": "reversed"}
    layout["yaxis"] |= {"range": [-3, 103]}
    return {"data": lines, "layout": layout}


def _layout(x: str, y: str, height: int) -> dict[str, Any]:
    axis = {"gridcolor": "--line", "linecolor": "--line", "zeroline": False}
    return {
        "font": FONT,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "height": height,
        "margin": {"l": 76, "r": 16, "t": 8, "b": 48},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "bgcolor": "rgba(0,0,0,0)"},
        "xaxis": axis | {"title": {"text": x}},
        "yaxis": axis | {"title": {"text": y}},
    }
