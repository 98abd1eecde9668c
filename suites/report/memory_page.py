"""The pages of ``gradgate memory --report``: bytes and laws, and which method to use for a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gradgate.suites.console import choice_table, memory_table
from gradgate.suites.measuring.series import amount
from gradgate.suites.report import choice_plot, columns, frame, memory_plot
from gradgate.suites.report.model import clean
from gradgate.suites.report.plot_table import PlotTable

Row = Mapping[str, Any]
QUANTITIES = {
    "temp_bytes": "Bytes during the call",
    "required_bytes": "All bytes: temp, arguments and outputs",
    "flops": "Work",
    "residual_bytes": "Bytes kept from the forward to the backward pass",
    "compiled_residual_bytes": "Bytes kept from the forward to the backward pass, compiled",
    "compiled_peak_bytes": "Largest number of bytes alive at once, compiled",
}
"""Quantity of a law -> the heading of its plot."""


def pages(document: Row) -> dict[str, str]:
    """The pages of a document of ``gradgate memory``: name -> text. ``choice.html`` is there if a model was given."""
    document = clean(dict(document))
    made = {"memory.html": _memory(document)}
    return made | ({"choice.html": _choice(document)} if document.get("choice") else {})


def _memory(document: Row) -> str:
    laws: dict[str, list[dict[str, Any]]] = {}
    for law in document["laws"]:
        laws.setdefault(law["quantity"], []).append(law | {"name": _named(law)})
    # The work is the same on every profile, and so are the bytes of PyTorch: one line stands for all of them.
    sections = {quantity: list({law["name"]: law for law in found}.values()) for quantity, found in laws.items()}
    letter = next((law["letter"] for law in document["laws"]), "")
    variable = next((law["variable"] for law in document["laws"]), "")
    rows = memory_table.once_for_all_devices(document["cells"])
    heads, lines = memory_table.table(rows, variable, letter)
    limits = [
        (f"{law['method']} {law['framework']}", law["profile"], memory_table.limits(law, law["letter"]))
        for law in document["laws"]
        if law["quantity"] == "required_bytes"
    ]
    return frame.page(
        "memory.html",
        {quantity: memory_plot.figure(found) for quantity, found in sections.items()},
        document=document,
        rows=lines,
        heads=heads,
        texts=memory_table.TEXTS,
        reasons=memory_table.reasons(rows),
        whose=memory_table.whose(rows),
        limits=limits,
        sections=[
            (quantity, QUANTITIES.get(quantity, quantity), found, _numbers(quantity, found))
            for quantity, found in sections.items()
        ],
        meanings={name: columns.MEMORY.get(name, columns.MEMORY["size"]) for name in heads},
    )


def _named(law: Row) -> str:
    method = f"{law['method']} {law['framework']}"
    every = law["quantity"] == "flops" or law["framework"] == "torch"
    return method if every else f"{method}, {law['profile']}"


def _numbers(quantity: str, laws: Sequence[Row]) -> PlotTable:
    series = [(law["name"], law["sizes"], law["values"]) for law in laws]
    return PlotTable.of(laws[0]["letter"], series, lambda value: amount(value, quantity))


def _choice(document: Row) -> str:
    choice = document["choice"]
    rows = choice["rows"]
    profiles = list(dict.fromkeys(row["profile"] for row in rows))
    return frame.page(
        "choice.html",
        {"choice": choice_plot.figure(rows)},
        document=document,
        choice=choice,
        answers=[choice_table.answer(rows, profile, choice["letter"]) for profile in profiles],
        rows=[_line(row) for row in rows],
        heads=list(columns.CHOICE),
        meanings=columns.CHOICE,
    )


def _line(row: Row) -> list[str]:
    fits = {True: "yes", False: "no"}.get(row["fits"], "")
    seconds = row["roofline_seconds"]
    sizes = ["" if row[name] is None else amount(row[name], name) for name in ("required_bytes", "temp_bytes", "flops")]
    said = "; ".join(filter(None, (row["reason"], row["note"])))
    size = "" if row["size"] is None else str(row["size"])
    time = "" if seconds is None else f"{seconds:.2g} s"
    return [row["profile"], row["method"], row["verdict"], size, *sizes, time, fits, said]
