"""The third oracle: the Taylor remainder of the NumPy loss in extended precision.

For a correct gradient g, R(ε) = |f(x + εv) − f(x) − ε⟨g, v⟩| falls like ε², slope 2 in log-log; for a wrong one like ε,
slope 1. It knows neither JAX nor PyTorch, and no reverse mode.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from gradgate.references.backends import leaves, to_numpy, tree_map
from gradgate.references.contract import Spec, Tree
from gradgate.references.oracle import random_direction

STEPS = tuple(2.0**-k for k in range(6, 30, 3))
"""ε, falling by 8 each time; below 2^-29 the remainder of a float64 gradient is rounding."""


@dataclass(frozen=True)
class Remainder:
    """The result. `slope` is that of the last pair of steps above rounding; None if the remainder is all rounding."""

    slope: float | None
    remainders: tuple[float, ...]


def remainder(spec: Spec, grads: Tree, seed: int = 0) -> Remainder:
    """Slope of the Taylor remainder along a random direction, in NumPy longdouble.

    Args:
        spec: any dtype; the NumPy problem is built in longdouble.
        grads: the gradient under test, a tree like params in any backend.

    Raises:
        ArithmeticError: this platform's longdouble has no more digits than float64.

    Cost: 9 evaluations of the loss in NumPy, loops in Python: for small problems.
    """
    import numpy as np

    if np.finfo(np.longdouble).eps >= np.finfo(np.float64).eps:
        raise ArithmeticError("longdouble has no more digits than float64 on this platform")
    problem = dataclasses.replace(spec, dtype="longdouble").build("numpy")
    direction = random_direction(problem, seed)
    products = tree_map(lambda g, v: np.sum(np.asarray(to_numpy(g), np.longdouble) * v), grads, direction)
    slope_at_zero = sum(leaves(products))
    start = problem.loss(problem.params)
    found = []
    for step in STEPS:
        moved = tree_map(lambda p, v: p + np.longdouble(step) * v, problem.params, direction)  # noqa: B023 - called at once
        found.append(float(abs(problem.loss(moved) - start - np.longdouble(step) * slope_at_zero)))
    # Two sources of rounding: the longdouble losses, and the float64 gradient, whose error is multiplied by ε.
    rounding = [1e3 * 2.0**-64 * abs(float(start)) + 64 * 2.0**-53 * s * abs(float(slope_at_zero)) for s in STEPS]
    usable = [i for i in range(len(STEPS) - 1) if found[i + 1] > rounding[i + 1] and np.isfinite(found[i])]
    slope = float(np.log2(found[usable[-1]] / found[usable[-1] + 1]) / 3) if usable else None
    return Remainder(slope, tuple(found))
