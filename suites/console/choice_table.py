"""Which method to use for a model, in the terminal: one row per method and device, then the answer in a sentence."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from gradgate.suites.console.terminal import console
from gradgate.suites.measuring.choice import best
from gradgate.suites.measuring.series import amount


def show(choice: Mapping[str, Any]) -> None:
    """Show the table, why methods are wrong or were left out, and what to use on each device.

    Args:
        choice: ``problem``, ``class``, ``letter`` (of the size that was swept, or ""), ``rows`` from
            `measuring.choice.rows`, and ``left_out`` (method -> reason).
    """
    out, letter, rows = console(), choice["letter"], choice["rows"]
    out.print(Text(f"\n{choice['problem']}: which method of {choice['class']}, on which device", style="bold"))
    profiles = list(dict.fromkeys(row["profile"] for row in rows))
    for profile in profiles:
        out.print(Text(f"\n{profile}", style="bold"))
        out.print(_grid([row for row in rows if row["profile"] == profile], letter))
    said: dict[str, list[str]] = {}
    for row in rows:
        if row["reason"]:
            said.setdefault(f"{row['verdict']}: {row['reason']}", []).append(row["method"])
        if row["note"]:
            said.setdefault(f"on {row['profile']}: {row['note']}", []).append(row["method"])
    if said:
        out.print()
    for sentence, methods in said.items():
        out.print(f"{', '.join(dict.fromkeys(methods))}: {sentence}", markup=False, soft_wrap=True)
    if choice["left_out"]:
        out.print()
    for method, reason in choice["left_out"].items():
        out.print(f"not run on your model: {method}: {reason}", markup=False, soft_wrap=True)
    out.print()
    for profile in profiles:
        out.print(answer(rows, profile, letter), markup=False, soft_wrap=True)


def _grid(rows: Sequence[Mapping[str, Any]], letter: str) -> Table:
    """The rows of one device, those with the fewest bytes first."""
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("method", "verdict", "options"):
        grid.add_column(name, no_wrap=name != "options", overflow="fold")
    for name in (*([letter] if letter else []), "bytes", "work", "roofline", "fits"):
        grid.add_column(name, justify="right", no_wrap=True)
    if letter:
        grid.add_column(f"largest {letter}", justify="right", no_wrap=True)
    for row in sorted(rows, key=lambda row: (row["required_bytes"] is None, row["required_bytes"])):
        grid.add_row(*_cells(row, letter), style="red" if row["right"] is False else "")
    return grid


def answer(rows: Any, profile: str, letter: str) -> str:
    """What to use on a device, in a sentence."""
    found = best(rows, profile)
    if not found:
        return f"{profile}: no method is right and fits"
    at = next((f" at {letter} = {row['size']}" for row in found.values() if letter and row["size"]), "")
    parts = []
    if "least memory" in found:
        row = found["least memory"]
        parts.append(f"{row['method']} takes the fewest bytes, {amount(row['required_bytes'], 'bytes')}")
    else:
        parts.append("bytes are not known")
    if "least time" in found:
        row = found["least time"]
        parts.append(f"{row['method']} takes the least time, {row['roofline_seconds']:.2g} s by the roofline")
    return f"{profile}{at}: {'; '.join(parts)}"


def _cells(row: Mapping[str, Any], letter: str) -> list[str]:
    def size(name: str) -> str:
        return "" if row[name] is None else amount(row[name], name)

    options = json.dumps(row["options"])[1:-1].replace('"', "")
    seconds = row["roofline_seconds"]
    fits = {True: "yes", False: "no", None: ""}[row["fits"]]
    largest = [_largest(row)] if letter else []
    return [
        row["method"],
        row["verdict"],
        options,
        *([str(row["size"] or "")] if letter else []),
        size("required_bytes") or row["status"],
        size("flops"),
        f"{seconds:.2g} s" if seconds else "",
        fits,
        *largest,
    ]


def _largest(row: Mapping[str, Any]) -> str:
    """The largest size that fits: as the law of bytes predicts it, or as measured if there is no law."""
    if row["foretold"] is not None:
        return f"about {row['foretold']:,.3g}"
    return f"≥ {row['largest']}" if row["largest"] else ""
