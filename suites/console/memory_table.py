"""What ``gradgate memory`` shows in the terminal: bytes per size, the laws, and what fits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from gradgate.hw_profiles.fit import MAX_EXTRAPOLATION
from gradgate.hw_profiles.profile import Profile
from gradgate.suites.console.terminal import console
from gradgate.suites.measuring.series import amount

OF_PASSES = {
    "residual_bytes": "kept",
    "compiled_residual_bytes": "compiled kept",
    "compiled_peak_bytes": "compiled peak",
}
"""Quantity of the two passes -> its column; there is none if no row has it."""
EVERY = "every device"
SAME = "PyTorch runs op by op and makes the same tensors on every device, so one row is for all of them."


def show(document: Mapping[str, Any], letter: str, profiles: Mapping[str, Profile]) -> None:
    """Show one row per cell, then the reasons given for cells, then the laws and what fits each device."""
    out = console()
    shown = _once_for_all_devices(document["cells"], len(profiles))
    grid = Table(box=None, pad_edge=False, header_style="bold")
    variable = next((law["variable"] for law in document["laws"]), "")
    for name in ("method", "framework", "profile", "options", *([letter] if letter else [])):
        grid.add_column(name, justify="right" if name == letter else "left", overflow="fold")
    passes = [name for name in OF_PASSES if any(name in row for row in document["cells"])]
    for name in ("temp", "arguments", "outputs", "fits", "work", "roofline", *(OF_PASSES[name] for name in passes)):
        grid.add_column(name, justify="right", no_wrap=True)
    for row in shown:
        grid.add_row(*_cells(row, variable), *(amount(row[name], name) if name in row else "" for name in passes))
    out.print(grid)
    if len(shown) < len(document["cells"]):
        out.print(f"\n{SAME}")
    said: dict[str, int] = {}
    for row in shown:
        if row["reason"]:
            sentence = f"{row['method']} {row['framework']} on {row['profile']}: {row['status']}: {row['reason']}"
            said[sentence] = said.get(sentence, 0) + 1
    for sentence, count in said.items():
        times = f" ({count} cells)" if count > 1 else ""
        out.print(f"\n{sentence}{times}", markup=False, soft_wrap=True)
    if document["laws"]:
        out.print()
    heads: set[tuple[str, str]] = set()
    for law in document["laws"]:
        every = law["framework"] == "torch" and len(profiles) > 1
        head = (f"{law['method']} {law['framework']} {EVERY if every else law['profile']}", law["quantity"])
        if head not in heads:
            out.print(Text(head[0], style="bold"), Text(law["words"]), soft_wrap=True)
        heads.add(head)
        if law["quantity"] == "required_bytes":
            device = f"{law['profile']}: " if every else ""
            out.print(f"  {device}{_fits(law, letter)}", markup=False, soft_wrap=True)


def _once_for_all_devices(rows: Sequence[Mapping[str, Any]], profiles: int) -> list[Mapping[str, Any]]:
    """The rows to show: one for all devices where PyTorch makes the same tensors on each, with the devices it fits."""
    if profiles < 2:
        return list(rows)
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        same = row["framework"] == "torch"
        key = json.dumps([row["method"], row["framework"], row["options"], row["spec"], same or row["profile"]])
        known = found.setdefault(key, {**row, "profile": EVERY, "fits": {}} if same else dict(row))
        if same:
            known["fits"][row["profile"]] = row["fits"]
    return list(found.values())


def _cells(row: Mapping[str, Any], variable: str) -> list[str]:
    def size(name: str) -> str:
        return "" if row[name] is None else amount(row[name], name)

    temp = size("temp_bytes") or row["status"]
    words = {True: "yes", False: "no", None: ""}
    devices = row["fits"] if isinstance(row["fits"], dict) else {"": row["fits"]}
    kinds = set(devices.values()) - {None} or {None}
    each = ", ".join(f"{name} {words[fit]}" for name, fit in devices.items() if words[fit])
    fits = words[kinds.pop()] if len(kinds) == 1 else each
    seconds = row["roofline_seconds"]
    options = row.get("setting") or json.dumps(row["options"])[1:-1].replace('"', "")
    return [
        row["method"],
        row["framework"],
        row["profile"],
        options,
        *([str(row["spec"][variable])] if variable else []),
        temp,
        size("argument_bytes"),
        size("output_bytes"),
        fits,
        size("flops"),
        f"{seconds:.2g} s" if seconds else "",
    ]


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
