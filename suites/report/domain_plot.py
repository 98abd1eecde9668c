"""Digits lost over the scale of an input, as an SVG picture that stands alone, for a paper or a page."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

from gradgate.suites.pairs.domain import RANGE, UNKNOWN, Point, digits

WIDTH, LEFT, RIGHT, TOP, PLOT, BOTTOM = 640, 56, 16, 52, 150, 44
"""Pixels: the picture's width, its margins, the height of the area of one input and what stands below it."""
COLOURS = {"float64": "#3b6fb6", "float32": "#c4622d", "bfloat16": "#3c8d5a", "float16": "#8a5fa8"}
TEXT = "#404040"
QUOTE = {'"': "&quot;"}
"""What else is escaped inside an attribute."""
ABOVE = 1.12
"""Where a gradient without a right digit is drawn, as a part of the largest number of digits."""


def picture(name: str, found: Sequence[Point]) -> str:
    """The picture: an area for each input, a line for each dtype and function; crosses where no digit is right.

    Nothing is drawn where the true gradient is unknown or outside the dtype's range.
    """
    areas = [list(group) for _, group in itertools.groupby(found, key=lambda point: point.leaf)]
    dtypes = list(dict.fromkeys(point.dtype for point in found))
    top = max(digits(dtype) for dtype in dtypes)
    height = TOP + len(areas) * (PLOT + BOTTOM)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="{TEXT}" '
        f'aria-label="{escape(name, QUOTE)}: digits lost over the scale of each input">',
        _words(LEFT, 18, f"{name}: digits lost in the gradient"),
        _legend(dtypes),
    ]
    for place, points in enumerate(areas):
        parts.extend(_area(points, TOP + place * (PLOT + BOTTOM), top))
    return "\n".join([*parts, "</svg>\n"])


def of_document(document: dict[str, Any]) -> str:
    """The picture of a document of ``gradgate domain --json``, under the name of its target."""
    names = [field.name for field in dataclasses.fields(Point)]
    return picture(document["target"], [Point(**{name: row[name] for name in names}) for row in document["points"]])


def _legend(dtypes: Sequence[str]) -> str:
    kinds = [(dtype, COLOURS[dtype], "") for dtype in dtypes]
    kinds += [("function", TEXT, ""), ("reference", TEXT, "4 3")]
    parts, x = [], float(LEFT)
    for words, colour, dash in kinds:
        parts.append(_line([(x, 34.0), (x + 22, 34.0)], colour, dash))
        parts.append(_words(x + 27, 38, words))
        x += 42 + 6.5 * len(words)
    return "".join(parts)


def _area(points: Sequence[Point], at: float, top: float) -> list[str]:
    powers = sorted({point.power for point in points})

    def x(power: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (power - powers[0]) / max(1, powers[-1] - powers[0])

    def y(lost: float) -> float:
        return at + PLOT * (1 - lost / (top * ABOVE * 1.05))

    parts = []
    for lost in range(0, math.floor(top) + 1, 4):
        parts.append(_line([(LEFT, y(lost)), (WIDTH - RIGHT, y(lost))], "#dddddd"))
        parts.append(_words(LEFT - 6, y(lost) + 4, str(lost), "end"))
    for power in powers[::2]:
        parts.append(_words(x(power), at + PLOT + 15, f"10{_raised(power)}", "middle"))
    parts.append(
        _words((LEFT + WIDTH - RIGHT) / 2, at + PLOT + 32, f"{points[0].leaf or 'all inputs'} times", "middle")
    )
    for dtype, role in dict.fromkeys((point.dtype, point.role) for point in points):
        of_one = [point for point in points if (point.dtype, point.role) == (dtype, role)]
        dash, colour = "" if role == "function" else "4 3", COLOURS[dtype]
        for known, run in itertools.groupby(of_one, key=lambda point: point.lost is not None):
            if known:
                parts.append(_line([(x(point.power), y(point.lost or 0.0)) for point in run], colour, dash))
        for point in of_one:
            if point.state not in ("", RANGE, UNKNOWN):
                parts.append(_cross(x(point.power), y(top * ABOVE), colour, role, f"{role}, {dtype}: {point.state}"))
    return parts


def _line(places: Sequence[tuple[float, float]], colour: str, dash: str = "") -> str:
    style = f' stroke-dasharray="{dash}"' if dash else ""
    if len(places) == 1:  # a line of one point
        [(x, y)] = places
        places = [(x - 3, y), (x + 3, y)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"{style}/>'


def _cross(x: float, y: float, colour: str, role: str, title: str) -> str:
    x += -3 if role == "function" else 3
    path = f"M{x - 3:.1f} {y - 3:.1f}l6 6m0 -6l-6 6"
    return f'<path d="{path}" stroke="{colour}" stroke-width="1.8"><title>{escape(title)}</title></path>'


def _words(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _raised(number: int) -> str:
    return str(number).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
