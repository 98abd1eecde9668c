"""What ``gradgate memory`` shows in the terminal: bytes per size, the laws, and what fits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from gradgate.hw_profiles.fit import MAX_EXTRAPOLATION
from gradgate.suites.console.terminal import console
from gradgate.suites.measuring.series import amount

OF_PASSES = {
    "residual_bytes": "kept",
    "compiled_residual_bytes": "compiled kept",
    "compiled_peak_bytes": "compiled peak",
}
"""Quantity of the two passes -> its column; there is none if no row has it."""
TEXTS = ("method", "framework", "bytes of", "options")
NUMBERS = ("temp", "arguments", "outputs", "fits", "work", "roofline")
"""Columns that every table has; the size that was swept stands between them."""
ALWAYS = ("method", "framework", "bytes of", "temp")
"""Columns that a table has even if no row says anything there."""
EVERY = "every device"
WHOSE = {
    "torch": "PyTorch: the bytes are those of the tensors that it allocates, op by op. They were counted on a CPU, and "
    "are the same on every device; what a device's own kernels and libraries take besides is not in them. "
    "Work is that of products of matrices, convolutions and attention; a function without these has none.",
    "jax": "JAX: the bytes are those that the compiler plans for the device. They were not measured on it.",
}
"""Framework -> whose bytes a table shows."""
MEANINGS = (
    "temp: bytes that live only during the call · arguments, outputs: bytes of the inputs, of loss and gradients · "
    "fits: whether all of it fits in the device's memory · work: floating-point operations · roofline: the shortest "
    "time that the device's rates allow"
)
"""What the columns say, in a line."""
OF_PASSES_MEANING = "kept: bytes that are kept from the forward to the backward pass · compiled: under torch.compile"


def show(document: Mapping[str, Any], letter: str) -> None:
    """Show one row per cell, whose bytes they are, then the reasons for cells, the laws and what fits each device."""
    out = console()
    shown = once_for_all_devices(document["cells"])
    grid = Table(box=None, pad_edge=False, header_style="bold")
    variable = next((law["variable"] for law in document["laws"]), "")
    names, lines = table(shown, variable, letter)
    for name in names:
        if name in TEXTS:
            grid.add_column(name, overflow="fold", min_width=len(name) if name != "bytes of" else len(EVERY))
        else:
            grid.add_column(name, justify="right", overflow="fold", no_wrap=name != letter)
    for line in lines:
        grid.add_row(*line)
    out.print(grid)
    out.print()
    for sentence in whose(shown):
        out.print(sentence, markup=False, soft_wrap=True)
    out.print(MEANINGS, style="dim", markup=False, soft_wrap=True)
    if any(name in names for name in OF_PASSES.values()):
        out.print(OF_PASSES_MEANING, style="dim", markup=False, soft_wrap=True)
    for sentence in reasons(shown):
        out.print(f"\n{sentence}", markup=False, soft_wrap=True)
    if document["laws"]:
        out.print()
    told: set[tuple[str, str]] = set()
    for law in document["laws"]:
        every = law["framework"] == "torch"
        head = (f"{law['method']} {law['framework']} {EVERY if every else law['profile']}", law["quantity"])
        if head not in told:
            out.print(Text(head[0], style="bold"), Text(law["words"]), soft_wrap=True)
        told.add(head)
        if law["quantity"] == "required_bytes":
            device = f"{law['profile']}: " if every else ""
            out.print(f"  {device}{limits(law, letter)}", markup=False, soft_wrap=True)


def once_for_all_devices(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows to show: one for all devices where PyTorch makes the same tensors on each, with the devices it fits."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        same = row["framework"] == "torch"
        key = json.dumps([row["method"], row["framework"], row["options"], row["spec"], same or row["profile"]])
        known = found.setdefault(key, {**row, "profile": EVERY, "fits": {}} if same else dict(row))
        if same:
            known["fits"][row["profile"]] = row["fits"]
    return list(found.values())


def table(rows: Sequence[Mapping[str, Any]], variable: str, letter: str) -> tuple[list[str], list[list[str]]]:
    """The columns of a table of rows, and its lines; a column in which no row says anything is left out.

    Args:
        rows: what to show.
        variable, letter: the Spec field that was swept and its letter; "" if none was.
    """
    passes = [column for name, column in OF_PASSES.items() if any(name in row for row in rows)]
    heads = [*TEXTS, *([letter] if letter else []), *NUMBERS, *passes]
    lines = [_cells(row, variable, passes) for row in rows]
    told = [place for place, head in enumerate(heads) if head in ALWAYS or any(line[place] for line in lines)]
    return [heads[place] for place in told], [[line[place] for place in told] for line in lines]


def whose(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Whose bytes the rows show, a sentence for each framework."""
    return [WHOSE[name] for name in dict.fromkeys(row["framework"] for row in rows) if name in WHOSE]


def reasons(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why cells have no answer, or which one, each sentence once."""
    said: dict[str, int] = {}
    for row in rows:
        if row["reason"]:
            sentence = f"{row['method']} {row['framework']} on {row['profile']}: {row['status']}: {row['reason']}"
            said[sentence] = said.get(sentence, 0) + 1
    return [f"{sentence} ({count} cells)" if count > 1 else sentence for sentence, count in said.items()]


def _cells(row: Mapping[str, Any], variable: str, passes: Sequence[str]) -> list[str]:
    """A row in words, one for each column; `variable` is the Spec field that was swept, or ""."""

    def size(name: str) -> str:
        return "" if row.get(name) is None else amount(row[name], name)

    words = {True: "yes", False: "no", None: ""}
    devices = row["fits"] if isinstance(row["fits"], dict) else {"": row["fits"]}
    kinds = set(devices.values()) - {None} or {None}
    each = ", ".join(f"{name} {words[fit]}" for name, fit in devices.items() if words[fit])
    options = row.get("setting") or json.dumps(row["options"])[1:-1].replace('"', "")
    seconds = row["roofline_seconds"]
    fixed = [
        row["method"],
        row["framework"],
        row["profile"],
        options,
        *([str(row["spec"][variable])] if variable else []),
        size("temp_bytes") or row["status"],
        size("argument_bytes"),
        size("output_bytes"),
        words[kinds.pop()] if len(kinds) == 1 and (len(devices) > 1 or "" in devices) else each,
        size("flops"),
        f"{seconds:.2g} s" if seconds is not None else "",
    ]
    return [*fixed, *(size(name) for name, column in OF_PASSES.items() if column in passes)]


def limits(law: Mapping[str, Any], letter: str) -> str:
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
