"""Draw ``sixty_digits.svg``: errors of exact and of broken methods, measured in floats and in sixty digits.

``python -m gradgate.suites.guide.draw_sixty_digits`` measures one problem in PyTorch and writes the picture next to
this file. It takes half a minute.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

from gradgate.references import oracle, registry
from gradgate.references.backends import UNIT_ROUNDOFF, tree_map
from gradgate.references.contract import Problem, Tree
from gradgate.suites.exact import agreement, balls, truth
from gradgate.suites.exact.programs import Evaluator
from gradgate.suites.judging.tolerance import GROWTH, KAPPA

PLACE = Path(__file__).with_suffix("").with_name("sixty_digits.svg")
LEAF = "layers[0].A.w0"
"""The leaf whose error is shown, and in which the errors are planted."""
SPEC: Mapping[str, Any] = {"length": 24, "layers": 3, "state": 4, "width": 4, "seed": 7}
METHODS: Mapping[str, Mapping[str, int]] = {
    "backprop": {},
    "adjoint_sharding": {},
    "reverse_recurrence": {"chunk": 5},
    "adjoint_distributed": {"devices": 3},
}
"""Methods whose formula is the gradient -> the options they run with."""
PLANTED: Mapping[str, float] = {"10⁻³": 1e-3, "10⁻⁷": 1e-7, "10⁻¹¹": 1e-11, "2⁻⁵²": 2.0**-52, "10⁻³⁰": 1e-30}
"""Relative errors that are planted into the leaf of reverse_recurrence."""
DTYPES = ("float32", "float64")
SIXTY = "sixty digits"

Function = Callable[[Problem], tuple[Any, Tree]]


@dataclass(frozen=True)
class Line:
    """One method: its name, and its relative error in each dtype and in sixty digits.

    Attributes:
        known: whether the error in sixty digits is the true one; if not, it is only an upper bound.
    """

    name: str
    errors: dict[str, float]
    known: bool


def measure() -> tuple[list[Line], dict[str, float]]:
    """The lines of the picture, and for each dtype the largest error that is allowed in the leaf."""
    spec = registry.spec_class("state_space")(**SPEC)
    references = {dtype: truth.reference(spec, "torch", dtype) for dtype in DTYPES}
    allowed = {dtype: _bound(reference, dtype) for dtype, reference in references.items()} | {SIXTY: agreement.LIMIT}
    methods = {name.replace("_", " "): _method(name, **options) for name, options in METHODS.items()}
    broken = {f"{name} added": _planted(_method("reverse_recurrence", chunk=5), e) for name, e in PLANTED.items()}
    lines = []
    for name, function in (methods | broken).items():
        errors = {dtype: _in_floats(function, reference, dtype) for dtype, reference in references.items()}
        errors[SIXTY], known = _in_sixty_digits(function, spec)
        lines.append(Line(name, errors, known))
    return lines, allowed


def _method(name: str, **options: int) -> Function:
    [declared] = registry.methods("state_space", name, "torch")
    return functools.partial(registry.load(declared.implementation), **options)


def _planted(function: Function, error: float) -> Function:
    """The method, with a multiple of one leaf added to that leaf."""

    def broken(problem: Problem) -> tuple[Any, Tree]:
        loss, grads = function(problem)
        grads = tree_map(lambda leaf: leaf, grads)
        right = grads["layers"]["A"]["w0"]
        grads["layers"]["A"]["w0"] = right + right * error
        return loss, grads

    return broken


def _bound(reference: oracle.Reference, dtype: str) -> float:
    """What the rule of equality allows in the leaf, relative to it."""
    size = float(np.linalg.norm(reference.grads[LEAF]))
    return KAPPA * max(reference.noise[LEAF] / size, GROWTH * UNIT_ROUNDOFF[dtype])


def _in_floats(function: Function, reference: oracle.Reference, dtype: str) -> float:
    problem = registry.spec_class("state_space")(**SPEC, dtype=dtype).build("torch")
    got = oracle.split(problem, function(problem)[1])[LEAF].astype(np.float64)
    exact, rest = reference.grads[LEAF], reference.rest[LEAF]
    return float(np.linalg.norm(got - exact - rest) / np.linalg.norm(exact))


def _in_sixty_digits(function: Function, spec: Any) -> tuple[float, bool]:
    problem = oracle.in_widest(spec, "torch", "float64")
    with balls.digits(60):
        plain = truth.evaluator("loss", (), "torch")(problem, 60).values
        found = agreement.compare({LEAF: Evaluator(function)(problem, 60).values[LEAF]}, plain)
    return (found.wrong[LEAF], True) if LEAF in found.wrong else (found.error, False)


WIDTH, LEFT, RIGHT, TOP, ROW, GAP = 900, 176, 30, 92, 34, 44
LOW, HIGH = -58, 0
TEXT, RULE = "#747c88", "#9aa2ad"
COLOURS = {"float32": "#c8782a", "float64": "#8a63c9", SIXTY: "#2f86c9"}
"""Colours that can be read on white and on black."""


def drawing(lines: list[Line], allowed: Mapping[str, float]) -> str:
    """The picture as SVG: each error is a mark, open if it passes and filled if it is refuted."""
    height = TOP + len(lines) * ROW + GAP + 76
    bottom = height - 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'role="img" font-family="system-ui, sans-serif" font-size="13" fill="{TEXT}">',
        "<title>Errors of exact and of broken methods in float32, in float64 and in sixty digits</title>",
    ]
    for decade in range(-50, HIGH + 1, 10):
        parts.append(_rule(_x(decade), TOP - 8, bottom, RULE, "0.6", opacity=0.45))
        parts.append(_text(_x(decade), bottom + 20, f"10{_raised(decade)}" if decade else "1", "middle"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, bottom + 44, f"relative error in the leaf {LEAF}", "middle"))
    for name, place in zip(allowed, (LEFT, LEFT + 72, LEFT + 144), strict=True):
        parts.append(_rule(_x(math.log10(allowed[name])), TOP - 8, bottom, COLOURS[name], "1.5", dash="5 4"))
        parts.append(_text(place, 22, name, colour=COLOURS[name], weight=600))
    parts.append(
        _text(LEFT, 46, "○ passes   ● is refuted   ┆ the largest error that passes   ← the error is at most this")
    )
    parts.append(_text(16, TOP + 2, "the right formula", weight=600))
    parts.append(_text(16, TOP + ROW * len(METHODS) + GAP + 2, "reverse recurrence with an error in it", weight=600))
    for i, line in enumerate(lines):
        y = TOP + ROW * i + ROW * 0.8 + (GAP if i >= len(METHODS) else 0)
        parts.append(_text(LEFT - 16, y + 4, line.name, "end"))
        for (name, error), shift in zip(line.errors.items(), (-9, 0, 9), strict=True):
            parts.append(_mark(name, error, y + shift, error > allowed[name], name != SIXTY or line.known))
    edge = TOP + ROW * len(METHODS) + GAP / 2 - 2
    parts.append(f'<path d="M16 {edge:.1f}H{WIDTH - RIGHT}" stroke="{RULE}" stroke-width="1"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _x(decade: float) -> float:
    return LEFT + (WIDTH - RIGHT - LEFT) * (max(decade, LOW) - LOW) / (HIGH - LOW)


def _mark(name: str, error: float, y: float, refuted: bool, known: bool) -> str:
    """A circle; with an arrow to its left if the error is only an upper bound."""
    x, colour = _x(math.log10(error)), COLOURS[name]
    head = f"M{x - 5:.1f} {y:.1f}H{x - 21:.1f}m5 -4l-5 4l5 4"
    arrow = "" if known else f'<path d="{head}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
    inside = colour if refuted else "none"
    return f'{arrow}<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{inside}" stroke="{colour}" stroke-width="1.8"/>'


def _rule(x: float, top: float, bottom: float, colour: str, width: str, dash: str = "", opacity: float = 1.0) -> str:
    style = f' stroke-dasharray="{dash}"' if dash else ""
    style += f' opacity="{opacity}"' if opacity < 1 else ""
    return f'<path d="M{x:.1f} {top:.1f}V{bottom:.1f}" stroke="{colour}" stroke-width="{width}"{style}/>'


def _text(x: float, y: float, words: str, anchor: str = "start", colour: str = TEXT, weight: int = 400) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} xml:space="preserve" fill="{colour}" font-weight="{weight}">{escape(words)}</text>'


def _raised(number: int) -> str:
    return str(number).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def main() -> None:
    """Measure, draw, and print what was measured."""
    lines, allowed = measure()
    PLACE.write_text(drawing(lines, allowed), encoding="utf-8")
    for line in lines:
        print(f"{line.name:22}", *(f"{name} {error:.2g}" for name, error in line.errors.items()), sep="  ")
    print(f"{'allowed':22}", *(f"{name} {bound:.2g}" for name, bound in allowed.items()), sep="  ")


if __name__ == "__main__":
    main()
