"""A gradient judged by differences of its forward pass in float64, where sixty digits cannot enter the forward pass.

The central difference D(h) = (φ(x + he) − φ(x − he)) / 2h of a smooth φ is φ'·e + c₂h² + c₄h⁴ + …. Ridders' table of
Richardson extrapolations removes one power after the other, for smaller and smaller h, until rounding takes over. The
estimate that disagrees least with its neighbours in the table is kept, and the disagreement says how sharp it is. That
is an estimate and no proof. So a gradient is refuted only if it is farther away than `SURE` times that, and farther
than `LEAST`; and nothing is said unless the differences are sharper than `SHARP`. Where the slopes from the two sides
differ, as that of a ReLU at 0, the function has no derivative, and a gradient that differs from D is not refuted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gradgate.references.backends import precision, to_backend, to_numpy
from gradgate.suites.watching import replay

WIDEST = 0.05
"""The first step, relative to the size of the inputs."""
SHRINK = 2.0
LEVELS = 10
DIRECTIONS = 4
"""Random directions, each with other cotangents."""
SMOOTH = 1e-3
"""Relative disagreement of the widest steps with all of them, above which the function is not smooth at this scale: it
has steps, or noise."""
SURE = 20.0
LEAST = 1e-5
"""Relative differences below this are none: a solver that stops early has such errors, and its rule none."""
BENT = 0.75
"""How much of the distance between the slopes from two sides is left at half of the step, at least, where they differ;
of a smooth function, half is left."""
SHARP = 1e-4
"""Relative disagreement of the estimates above which nothing is said."""


@dataclasses.dataclass(frozen=True)
class Differences:
    """What the differences say.

    Attributes:
        agrees: whether the gradient agrees along every direction; None if the differences are not sharp enough.
        away: the largest difference, relative to the size of the gradient.
        sharp: how sharp the differences are there, in the same unit.
    """

    agrees: bool | None
    away: float
    sharp: float


def extrapolated(value: Callable[[float], float], widest: float) -> tuple[float, float]:
    """The derivative of a function at 0, and an estimate of its error.

    Args:
        value: the function.
        widest: the largest step.

    Cost: two calls of the function for each of `LEVELS` steps, at most.
    """
    rows: list[list[float]] = []
    best, error = float("nan"), float("inf")
    for level in range(LEVELS):
        step = widest / SHRINK**level
        row = [(value(step) - value(-step)) / (2 * step)]
        for place in range(level):
            power = SHRINK ** (2 * (place + 1))
            row.append((power * row[place] - rows[-1][place]) / (power - 1))
            away = max(abs(row[-1] - row[-2]), abs(row[-1] - rows[-1][place]))
            if away < error:
                best, error = row[-1], away
        rows.append(row)
    wide = rows[LEVELS // 2][-1]
    apart = abs(best - wide)
    return best, error if apart <= SMOOTH * max(abs(best), abs(wide)) else apart


def bend(value: Callable[[float], float], widest: float) -> float:
    """How far the slopes of a function at 0 from the two sides are apart; 0 if a smaller step brings them together."""
    middle, steps = value(0.0), [widest / SHRINK**level for level in (LEVELS - 2, LEVELS - 1)]
    wide, narrow = (abs(value(step) - 2 * middle + value(-step)) / step for step in steps)
    return narrow if narrow > BENT * wide else 0.0


def judged(pair: replay.SeenPair, spec: Any) -> Differences:
    """The gradient of a pair compared with differences of its forward pass.

    Args:
        pair: the pair of a call.
        spec: the problem.
    """
    found = [_along(pair, dataclasses.replace(spec, seed=spec.seed + k, dtype="float64"), k) for k in range(DIRECTIONS)]
    away, sharp, _ = max(found, key=lambda one: one[0] - SURE * one[1])
    if not np.isfinite([away, sharp]).all() or max(one[1] for one in found) > SHARP:
        return Differences(None, away, sharp)
    agrees = away <= max(LEAST, SURE * sharp)
    bent = max(one[2] for one in found) > max(LEAST, SURE * sharp)
    return Differences(None if bent and not agrees else agrees, away, sharp)


def _along(pair: replay.SeenPair, spec: Any, number: int) -> tuple[float, float, float]:
    """How far the gradient is from the differences along one direction, how sharp these are, and their `bend`.

    All three are relative to the gradient.
    """
    rng = np.random.default_rng([spec.seed, number])
    problem = spec.build(pair.where)
    with precision(pair.where, "float64"):
        own = {path: to_numpy(leaf) for path, leaf in pair.gradient("function", problem, {})[1].items()}
        start = {path: to_numpy(leaf).astype(float) for path, leaf in problem.params.items()}
        along = {path: rng.standard_normal(array.shape) * _size(array) for path, array in start.items()}

        def value(step: float) -> float:
            moved = {path: array + step * along[path] for path, array in start.items()}
            return _inner(pair, problem, moved)

        slope, error = extrapolated(value, WIDEST)
        bent = bend(value, WIDEST)
    told = sum(float((own[path] * along[path]).sum()) for path in own)
    size = max(abs(slope), sum(float(np.abs(own[path] * along[path]).sum()) for path in own), np.finfo(float).tiny)
    return abs(told - slope) / size, max(error / size, float(np.finfo(float).eps)), bent / size


def _inner(pair: replay.SeenPair, problem: Any, params: Mapping[str, Any]) -> float:
    given = {path: to_backend(pair.where, array, "float64") for path, array in params.items()}
    if pair.where == "torch":  # some rules look whether an input requires a gradient
        given = {path: leaf.requires_grad_() for path, leaf in given.items()}
    return float(problem.inner(pair.outputs("function", problem, given)))


def _size(array: Any) -> float:
    found = float(np.abs(array).mean()) if array.size else 0.0
    return found or 1.0
