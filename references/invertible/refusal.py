"""Refusing a chain at a layer, by its name, where an inverse or a vijp does not do what the methods ask of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradgate.references.backends import UNIT_ROUNDOFF, precision, to_backend, to_numpy
from gradgate.references.contract import UsageError
from gradgate.references.invertible.layers import NotInvertible, Vjp
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
            error = _missed(layer.name, "inverse", x, lambda: layer.inverse(p, y), allowed)  # noqa: B023 - called at once
            worst, x = max(worst, error), y
    return worst


def check_vijp(problem: InvertibleProblem, digits: float = 0.5) -> float:
    """What Moonwalk needs and no more: that every layer's vijp takes back what its VJP does to a cotangent.

    Args:
        problem: concrete arrays of JAX or PyTorch, not traced ones.
        digits: the share of the dtype's digits that must be left.

    Returns:
        The largest relative error of a cotangent that was pulled back and brought forward again.

    Raises:
        NotInvertible: names the first layer whose vijp misses by more than u^digits, raises, or is not finite: its
            Jacobian is singular here, or not surjective.
        UsageError: parameters or input have other shapes than the Spec, or the arrays are NumPy's, which has no VJP.

    Cost: as `walk`, and another backward pass; one layer in memory.
    """
    problem.check_shapes()
    vjp = _vjp(problem.backend)
    allowed, worst, x = UNIT_ROUNDOFF[problem.dtype] ** digits, 0.0, problem.x
    rng = np.random.default_rng(problem.spec.seed)
    with precision(problem.backend, problem.dtype):
        for layer, p in problem.chain(problem.params):
            y, pull = vjp(lambda x: layer(p, x), x)  # noqa: B023 - called at once
            h = to_backend(problem.backend, rng.standard_normal(tuple(y.shape)), problem.dtype)
            error = _missed(layer.name, "vijp", h, lambda: layer.advance(vjp, p, x, pull(h)[0])[1], allowed)  # noqa: B023
            worst, x = max(worst, error), y
    return worst


def _vjp(backend: str) -> Vjp:
    if backend == "jax":
        import jax

        return jax.vjp
    if backend == "torch":
        import torch

        found: Vjp = torch.func.vjp
        return found
    raise UsageError("vijp is checked in jax or torch; NumPy has no VJP")


def _missed(name: str, what: str, exact: Any, found: Callable[[], Any], allowed: float) -> float:
    """How far what should be `exact` is off, relative; refused where that is more than allowed."""
    try:
        with np.errstate(all="ignore"):
            back, wanted = to_numpy(found()), to_numpy(exact)
    except (ArithmeticError, RuntimeError, np.linalg.LinAlgError) as error:
        raise NotInvertible(f"{name} cannot be inverted: {error}") from error
    if back.shape != wanted.shape:
        raise NotInvertible(f"{name}: its {what} gives shape {back.shape}; expected {wanted.shape}")
    if not np.isfinite(back).all():
        raise NotInvertible(f"{name} cannot be inverted here: its {what} is not finite (singular or saturated)")
    missed = float(np.linalg.norm(back - wanted)) / (float(np.linalg.norm(wanted)) or 1.0)
    if missed > allowed:
        raise NotInvertible(f"{name}: its {what} is off by {missed:.1g}; at most {allowed:.1g} is allowed")
    return missed
