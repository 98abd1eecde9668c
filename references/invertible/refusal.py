"""Refusing a chain whose layers cannot be inverted at the point where they are used, by the layer's name."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradgate.references.backends import UNIT_ROUNDOFF, precision, to_numpy
from gradgate.references.invertible.layers import NotInvertible
from gradgate.references.invertible.problem import InvertibleProblem


def check_invertible(problem: InvertibleProblem, digits: float = 0.5) -> float:
    """Run every layer forward and back at its own input, outside of any transformation.

    Args:
        problem: concrete arrays, not traced ones.
        digits: the share of the dtype's digits that a round trip through one layer must keep.

    Returns:
        The largest relative error of a round trip.

    Raises:
        NotInvertible: names the first layer whose inverse misses its input by more than u^digits, raises, or is not
            finite.
        UsageError: parameters or input have other shapes than the Spec.

    Cost: a forward pass and every inverse once; one layer in memory.
    """
    problem.check_shapes()
    allowed, worst, x = UNIT_ROUNDOFF[problem.dtype] ** digits, 0.0, problem.x
    with precision(problem.backend, problem.dtype):
        for layer, p in problem.chain(problem.params):
            y = layer(p, x)
            error = _round_trip(layer, p, x, y, allowed)
            worst, x = max(worst, error), y
    return worst


def _round_trip(layer: Any, p: Any, x: Any, y: Any, allowed: float) -> float:
    try:
        with np.errstate(all="ignore"):
            back, exact = to_numpy(layer.inverse(p, y)), to_numpy(x)
    except (ArithmeticError, RuntimeError, np.linalg.LinAlgError) as error:
        raise NotInvertible(f"{layer.name} cannot be inverted: {error}") from error
    if back.shape != exact.shape:
        raise NotInvertible(f"{layer.name}: its inverse has shape {back.shape}; its input has {exact.shape}")
    if not np.isfinite(back).all():
        raise NotInvertible(f"{layer.name} cannot be inverted here: its inverse is not finite (singular or saturated)")
    missed = float(np.linalg.norm(back - exact)) / (float(np.linalg.norm(exact)) or 1.0)
    if missed > allowed:
        raise NotInvertible(
            f"{layer.name}: its inverse misses its input by {missed:.1g}; at most {allowed:.1g} is allowed"
        )
    return missed
