"""Bytes over releases as inline SVG: one line per method, each relative to its first release."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

TONES = ("upheld", "failure", "error", "finding", "inapplicable", "unexpected")
"""The colours of lines: classes of the site's style, in the order in which they are used."""
WIDTH, LEFT, RIGHT, TOP, BOTTOM = 360, 44, 12, 8, 130
"""Sizes in pixels: of the plot, and the edges of the area in which lines are drawn."""
FLAT = 1.005
"""A line that stays within this factor of 1 is drawn without a name, because half a per cent cannot be seen."""


def over_releases(lines: Mapping[str, Sequence[float | None]], releases: Sequence[str], label: str) -> str:
    """A plot on a logarithmic axis, with 1 for every method's first release; "" if no line moves.

    Args:
        lines: name of a method -> its bytes at each release, None where they are not known.
        releases: the names at the horizontal axis, in order.
        label: what the plot shows, for screen readers.
    """
    points = {name: found for name, values in lines.items() if len(found := _relative(values)) > 1}
    moved = {name: line for name, line in points.items() if any(not 1 / FLAT < r < FLAT for _, r in line)}
    if not moved:
        return ""
    reach = max(1.1, *(max(ratio, 1 / ratio) for line in points.values() for _, ratio in line)) * 1.02
    height = BOTTOM + 26 + 15 * len(moved)
    told = [
        f'<svg class="plot" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{html.escape(label, quote=True)}">'
    ]
    for ratio in (1 / reach, 1.0, reach):
        y = _y(ratio, reach)
        told.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        told.append(f'<text x="{LEFT - 4}" y="{y + 4:.1f}" text-anchor="end">{ratio:.2f}</text>')
    for place, release in enumerate(releases):
        anchor = "start" if place == 0 else "end" if place == len(releases) - 1 else "middle"
        x = _x(place, len(releases))
        told.append(f'<text x="{x:.1f}" y="{BOTTOM + 16}" text-anchor="{anchor}">{html.escape(release)}</text>')
    for name in [*(name for name in points if name not in moved), *moved]:
        told.append(_line(name, points[name], len(releases), reach, _tone(name, list(moved))))
    for place, name in enumerate(moved):
        y = BOTTOM + 34 + 15 * place
        told.append(f'<line class="line {_tone(name, list(moved))}" x1="12" x2="28" y1="{y - 4}" y2="{y - 4}"/>')
        told.append(f'<text x="34" y="{y}">{html.escape(name)}</text>')
    return "".join(told) + "</svg>"


def _relative(values: Sequence[float | None]) -> list[tuple[int, float]]:
    """Place and ratio to the first known value, of the values that are known and positive."""
    known = [(place, value) for place, value in enumerate(values) if value]
    return [(place, value / known[0][1]) for place, value in known]


def _line(name: str, line: Sequence[tuple[int, float]], count: int, reach: float, tone: str) -> str:
    path = " ".join(f"{_x(place, count):.1f},{_y(ratio, reach):.1f}" for place, ratio in line)
    return f'<polyline class="line {tone}" points="{path}"><title>{html.escape(name)}</title></polyline>'


def _tone(name: str, moved: Sequence[str]) -> str:
    return TONES[moved.index(name) % len(TONES)] if name in moved else "inapplicable"


def _x(place: int, count: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * place / (count - 1)


def _y(ratio: float, reach: float) -> float:
    return BOTTOM - (BOTTOM - TOP) * (math.log(ratio) + math.log(reach)) / (2 * math.log(reach))
