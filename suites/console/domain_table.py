"""What ``gradgate domain`` shows in the terminal: digits lost for each input, scale, dtype and function."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from gradgate.suites.console.terminal import console
from gradgate.suites.pairs.domain import STATES, Point, digits, spans


def show(name: str, found: Sequence[Point]) -> None:
    """Show a table for each input, and in words where at most one digit is lost; then what the words mean."""
    out = console()
    out.print(f"{name}: decimal digits that the gradient loses, with an input times a scale")
    for leaf, group in itertools.groupby(found, key=lambda point: point.leaf):
        points = list(group)
        columns = list(dict.fromkeys((point.dtype, point.role) for point in points))
        grid = Table(box=None, pad_edge=False, header_style="bold")
        grid.add_column(leaf or "all inputs")
        for dtype, role in columns:
            grid.add_column(f"{role}\n{dtype} of {digits(dtype):.1f}", justify="right")
        for power, row in itertools.groupby(points, key=lambda point: point.power):
            grid.add_row(f"1e{power:+03d}", *(_cell(point) for point in row))
        out.print()
        out.print(grid)
        for dtype, role in columns:
            of_one = [point for point in points if (point.dtype, point.role) == (dtype, role)]
            out.print(f"{role} in {dtype}: at most one digit lost at {spans(of_one)}", soft_wrap=True)
    used = dict.fromkeys(point.state for point in found if point.state)
    if used:
        out.print()
    for state in used:
        out.print(Text(f"{state:9}", style="bold"), Text(STATES[state]), sep="", soft_wrap=True)


def _cell(point: Point) -> str:
    return point.state if point.lost is None else f"{point.lost:.1f}"
