"""Small plots as inline SVG: ratios of our figures to a paper's, and curves. Colours come from the page's style."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WIDTH, LEFT, RIGHT = 360, 12, 12
ROW = 30
"""Height of one line of a plot of ratios: a name, and its mark below."""
TONES = ("upheld", "failure", "error", "finding", "inapplicable", "unexpected")
"""The colours of curves, in the order in which they are used."""


@dataclass(frozen=True)
class Mark:
    """One figure in a plot of ratios.

    Attributes:
        name: which figure.
        ratio: measured over printed; positive.
        tone: class of its colour.
        said: the text of its tooltip.
    """

    name: str
    ratio: float
    tone: str
    said: str


def ratios(marks: Sequence[Mark], label: str) -> str:
    """Measured over printed, a line for each figure, on a logarithmic axis with 1 in the middle.

    Args:
        marks: the figures, at least one.
        label: what the plot shows, for screen readers.
    """
    reach = max(1.25, *(max(mark.ratio, 1 / mark.ratio) for mark in marks)) * 1.05
    edge = math.log10(reach)
    height = ROW * len(marks) + 24

    def at(ratio: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log10(ratio) + edge) / (2 * edge)

    told = [_open(height, label)]
    for tick in _ticks(reach):
        told.append(f'<line class="grid" x1="{at(tick):.1f}" x2="{at(tick):.1f}" y1="4" y2="{height - 18}"/>')
        told.append(f'<text x="{at(tick):.1f}" y="{height - 4}" text-anchor="middle">{tick:g}</text>')
    for i, mark in enumerate(marks):
        y = ROW * i + 24
        told.append(f'<text class="faint" x="{LEFT}" y="{y - 8}">{html.escape(_short(mark.name))}</text>')
        told.append(f'<line class="line {mark.tone}" x1="{at(1):.1f}" x2="{at(mark.ratio):.1f}" y1="{y}" y2="{y}"/>')
        told.append(
            f'<circle class="mark {mark.tone}" cx="{at(mark.ratio):.1f}" cy="{y}" r="4">'
            f"<title>{html.escape(mark.said)}</title></circle>"
        )
    return "".join(told) + "</svg>"


def curves(lines: Mapping[str, tuple[Sequence[float], Sequence[float]]], label: str) -> str:
    """Curves over one axis, each named in its colour below the plot.

    Args:
        lines: name -> (x, y); a line without a finite point is left out.
        label: what the plot shows, for screen readers.
    """
    points = {name: _finite(*line) for name, line in lines.items()}
    points = {name: line for name, line in points.items() if line}
    if not points:
        return ""
    xs = [x for line in points.values() for x, _ in line]
    ys = [y for line in points.values() for _, y in line]
    wide = min(xs) > 0 and max(xs) / min(xs) > 30
    tall = min(ys) > 0 and max(ys) / min(ys) > 30
    top, bottom = 8, 150
    x_at = _scale(xs, LEFT + 34, WIDTH - RIGHT, wide)
    y_at = _scale(ys, bottom, top, tall)
    height = bottom + 22 + 15 * len(points)
    told = [_open(height, label)]
    for y in (min(ys), max(ys)):
        told.append(f'<line class="grid" x1="{LEFT + 34}" x2="{WIDTH - RIGHT}" y1="{y_at(y):.1f}" y2="{y_at(y):.1f}"/>')
        told.append(f'<text x="{LEFT + 30}" y="{y_at(y) + 4:.1f}" text-anchor="end">{y:.3g}</text>')
    for x, anchor in ((min(xs), "start"), (max(xs), "end")):
        told.append(f'<text x="{x_at(x):.1f}" y="{bottom + 14}" text-anchor="{anchor}">{x:.4g}</text>')
    for i, (name, line) in enumerate(points.items()):
        tone = TONES[i % len(TONES)]
        if len(line) == 1:
            told.append(f'<circle class="mark {tone}" cx="{x_at(line[0][0]):.1f}" cy="{y_at(line[0][1]):.1f}" r="3"/>')
        path = " ".join(f"{x_at(x):.1f},{y_at(y):.1f}" for x, y in _thinned(line))
        told.append(f'<polyline class="line {tone}" points="{path}"/>')
        y = bottom + 30 + 15 * i
        told.append(f'<line class="line {tone}" x1="{LEFT}" x2="{LEFT + 16}" y1="{y - 4}" y2="{y - 4}"/>')
        told.append(f'<text x="{LEFT + 22}" y="{y}">{html.escape(_short(name))}</text>')
    return "".join(told) + "</svg>"


def bar(parts: Mapping[str, tuple[int, str]], label: str) -> str:
    """A bar of counts.

    Args:
        parts: name -> (how many, class of its colour).
        label: what it shows.
    """
    total = sum(n for n, _ in parts.values()) or 1
    told, x = [_open(18, label)], 0.0
    for name, (n, tone) in parts.items():
        width = WIDTH * n / total
        title = f"<title>{n} {html.escape(name)}</title>"
        told.append(f'<rect class="mark {tone}" x="{x:.1f}" y="3" width="{width:.1f}" height="12">{title}</rect>')
        x += width
    return "".join(told) + "</svg>"


def _open(height: int, label: str) -> str:
    return f'<svg class="plot" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{html.escape(label, quote=True)}">'


def _short(name: str) -> str:
    return name if len(name) <= 56 else name[:55] + "…"


def _ticks(reach: float) -> list[float]:
    if reach < 2.1:
        return [tick for tick in (0.5, 0.8, 1.0, 1.25, 2.0) if 1 / reach <= tick <= reach]
    if reach < 12:
        return [tick for tick in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0) if 1 / reach <= tick <= reach]
    top = int(math.log10(reach))
    step = max(1, math.ceil(top / 3))
    return [10.0**k for k in range(-top, top + 1) if k % step == 0]


def _finite(xs: Sequence[float], ys: Sequence[float]) -> list[tuple[float, float]]:
    return [
        (float(x), float(y))
        for x, y in zip(xs, ys, strict=False)
        if isinstance(x, (int, float)) and isinstance(y, (int, float)) and math.isfinite(x) and math.isfinite(y)
    ]


def _thinned(line: Sequence[tuple[float, float]], most: int = 80) -> list[tuple[float, float]]:
    """At most about `most` points, the last one included."""
    step = max(1, len(line) // most)
    return [*line[::step], line[-1]] if step > 1 else list(line)


def _scale(values: Sequence[float], low: float, high: float, logarithmic: bool) -> _Scale:
    return _Scale(min(values), max(values), low, high, logarithmic)


@dataclass(frozen=True)
class _Scale:
    """Where a value lies between two edges of the plot."""

    least: float
    most: float
    low: float
    high: float
    logarithmic: bool

    def __call__(self, value: float) -> float:
        if self.most == self.least:
            return (self.low + self.high) / 2
        if self.logarithmic:
            part = math.log(value / self.least) / math.log(self.most / self.least)
        else:
            part = (value - self.least) / (self.most - self.least)
        return self.low + (self.high - self.low) * part
