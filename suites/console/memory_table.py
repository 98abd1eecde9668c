"""What ``gradgate memory`` shows in the terminal: bytes per size, the laws, and what fits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from gradgate.hw_profiles.fit import MAX_EXTRAPOLATION
from gradgate.hw_profiles.profile import Profile
from gradgate.suites.console.terminal import console
from gradgate.suites.measuring.series import amount

OF_PASSES = {
    "residual_bytes": "kept", "compiled_residual_bytes": "compiled kept", "compiled_peak_bytes": "compiled peak",
}  # fmt: skip
"""Quantity of the two passes -> its column; there is none if no row has it."""


def show(document: Mapping[str, Any], letter: str, profiles: Mapping[str, Profile]) -> None:
    """Show one row per cell, then the reasons given for cells, then the laws and what fits each device."""
    out = console()
    grid = Table(box=None, pad_edge=False, header_style="bold")
    variable = next((law["variable"] for law in document["laws"]), "")
    for name in ("method", "framework", "profile", "options", *([letter] if letter else [])):
        grid.add_column(name, justify="right" if name == letter else "left", overflow="fold")
    passes = [name for name in OF_PASSES if any(name in row for row in document["cells"])]
    for name in ("temp", "arguments", "outputs", "fits", "work", "roofline", *(OF_PASSES[name] for name in passes)):
        grid.add_column(name, justify="right", no_wrap=True)
    for row in document["cells"]:
        grid.add_row(*_cells(row, variable), *(amount(row[name], name) if name in row else "" for name in passes))
    out.print(grid)
    said: dict[str, int] = {}
    for row in document["cells"]:
        if row["reason"]:
            sentence = f"{row['method']} {row['framework']} on {row['profile']}: {row['status']}: {row['reason']}"
            said[sentence] = said.get(sentence, 0) + 1
    for sentence, count in said.items():
        times = f" ({count} cells)" if count > 1 else ""
        out.print(f"\n{sentence}{times}", markup=False, soft_wrap=True)
    if document["laws"]:
        out.print()
    for law in document["laws"]:
        head = f"{law['method']} {law['framework']} {law['profile']}"
        out.print(Text(head, style="bold"), Text(law["words"]), soft_wrap=True)
        if law["quantity"] == "required_bytes":
            out.print(f"  {_fits(law, letter)}", markup=False, soft_wrap=True)


def _cells(row: Mapping[str, Any], variable: str) -> list[str]:
    def size(name: str) -> str:
        return "" if row[name] is None else amount(row[name], name)

    temp = size("temp_bytes") or row["status"]
    fits = {True: "yes", False: "no", None: ""}[row["fits"]]
    seconds = row["roofline_seconds"]
    options = json.dumps(row["options"])[1:-1].replace('"', "")
    return [
        row["method"], row["framework"], row["profile"], options, *([str(row["spec"][variable])] if variable else []),
        temp, size("argument_bytes"), size("output_bytes"), fits, size("flops"), f"{seconds:.2g} s" if seconds else "",
    ]  # fmt: skip


def _fits(law: Mapping[str, Any], letter: str) -> str:
    """Which sizes fit the device, as measured and as the law predicts."""
    if law["memory_bytes"] is None:
        return "the profile's memory is not known"
    memory = f"{law['memory_bytes'] / 2**30:.4g} GiB"
    measured = f"measured to fit up to {letter} = {law['largest_measured']}" if law["largest_measured"] else "none fits"
    if law["smallest_unfit"]:
        measured += f", not at {law['smallest_unfit']}"
    if law["law"] is None:
        return f"in {memory}: {measured}"
    largest = law["largest_foretold"]
    return f"in {memory}: {measured}; by the law " + (
        f"{letter} up to about {largest:,.3g}"
        if largest is not None
        else f"at least up to {law['largest_measured'] * MAX_EXTRAPOLATION:,.3g}, beyond which it is not trusted"
    )
