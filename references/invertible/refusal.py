"""Refuses a chain, by the name of a layer whose inverse or vijp does not do what the methods need."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from gradgate.references.backends import UNIT_ROUNDOFF, precision, to_backend, to_numpy
from gradgate.references.contract import UsageError
from gradgate.references.invertible.chain import Link
from gradgate.references.invertible.layers import NotInvertible, Vjp
from gradgate.references.invertible.problem import InvertibleProblem


def check_invertible(problem: InvertibleProblem, digits: float = 0.5) -> float:
    """Run every layer and its inverse at the layer's own input, outside of any transformation.

    Args:
        problem: concrete arrays, not traced ones.
        digits: the share of the dtype's digits that a round trip through one layer must keep.

    Returns:
        The largest relative error of a round trip.

    Raises:
        NotInvertible: names the first layer whose inverse raises, is not finite, or misses its input by more than
            u^digits.
        UsageError: parameters or input have other shapes than the Spec.

    Cost: a forward pass and every inverse once; one layer in memory.
    """
    problem.check_shapes()
    with precision(problem.backend, problem.dtype):
        return round_trips(_links(problem), problem.x, UNIT_ROUNDOFF[problem.dtype] ** digits)


def check_vijp(problem: InvertibleProblem, digits: float = 0.5) -> float:
    """Check what Moonwalk needs and no more: every layer's vijp must undo what its VJP does to a cotangent.

    Args:
        problem: concrete arrays of JAX or PyTorch, not traced ones.
        digits: the share of the dtype's digits that must be left.

    Returns:
        The largest relative error of a cotangent that was pulled back and brought forward again.

    Raises:
        NotInvertible: names the first layer whose vijp raises, is not finite, or misses by more than u^digits: its
            Jacobian is singular here, or not surjective.
        UsageError: parameters or input have other shapes than the Spec, or the arrays are NumPy's, which has no VJP.

    Cost: as `walk`, and another backward pass; one layer in memory.
    """
    problem.check_shapes()
    vjp, rng = _vjp(problem.backend), np.random.default_rng(problem.spec.seed)

    def draw(y: Any) -> Any:
        return to_backend(problem.backend, rng.standard_normal(tuple(y.shape)), problem.dtype)

    with precision(problem.backend, problem.dtype):
        return cotangent_trips(_links(problem), problem.x, UNIT_ROUNDOFF[problem.dtype] ** digits, vjp, draw)


def round_trips(chain: Iterable[Link], x: Any, allowed: float) -> float:
    """`check_invertible` of any chain: the largest relative error of x after a layer and its inverse."""
    worst = 0.0
    for _, layer, p in chain:
        y = layer(p, x)
        error = _missed(layer.name, "inverse", x, functools.partial(layer.inverse, p, y), allowed)
        worst, x = max(worst, error), y
    return worst


def cotangent_trips(chain: Iterable[Link], x: Any, allowed: float, vjp: Vjp, draw: Callable[[Any], Any]) -> float:
    """`check_vijp` of any chain: the largest relative error of a cotangent, ``draw(y)``, after a VJP and a step."""
    worst = 0.0

    def brought_back(layer: Any, p: Any, x: Any, pull: Any, h: Any) -> Any:
        return layer.advance(vjp, p, x, pull(h)[0], h if layer.hands_over and not layer.by_hand else None)[1]

    for _, layer, p in chain:
        y, pull = vjp(functools.partial(layer, p), x)
        h = draw(y)
        error = _missed(layer.name, "vijp", h, functools.partial(brought_back, layer, p, x, pull, h), allowed)
        worst, x = max(worst, error), y
    return worst


def _links(problem: InvertibleProblem) -> list[Link]:
    return [(layer.name, layer, p) for layer, p in problem.chain(problem.params)]


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
    """The relative error of what should be `exact`; NotInvertible is raised where it is more than allowed."""
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
        raise NotInvertible(
            f"{name}: its {what} is off by {missed:.1g}; at most {allowed:.1g} is allowed: it is wrong, or too "
            "ill-conditioned for this dtype"
        )
    return missed
