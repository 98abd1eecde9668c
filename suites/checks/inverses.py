"""Layers that can be inverted: the inverse gives the input back, and the VJP of the vijp is the identity."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradgate.references.backends import UNIT_ROUNDOFF, precision, to_backend, to_numpy
from gradgate.suites.checks.base import Case
from gradgate.suites.subject import Refuted

SLACK = 64.0
"""Times u·(condition number of the layer's Jacobian) that either identity may miss."""


def inverses(case: Case) -> None:
    """For every layer of a chain: f^{-1}(f(x)) = x, and vjp(f, x, vijp(f, x, h)) = h, to within its condition number.

    The problem has ``chain(params)``, pairs of a layer and its parameters; a layer has ``inverse`` and ``advance``. The
    bound is SLACK·u·cond(∂f/∂x), of the whole layer at this x; h is random.
    """
    problem: Any = case.problem()
    with precision(problem.backend, problem.dtype):
        case.subject.guard(problem, case.options, _walk, problem)


def _walk(problem: Any) -> None:
    vjp, vmap = _transforms(problem.backend)
    rng, x = np.random.default_rng(problem.spec.seed), problem.x
    for layer, p in problem.chain(problem.params):
        h = to_backend(problem.backend, rng.standard_normal(tuple(x.shape)), problem.dtype)
        y, pull = vjp(lambda x: layer(p, x), x)  # noqa: B023 - called at once
        rows = vmap(lambda row: pull(problem.xp.reshape(row, y.shape))[0])(  # noqa: B023 - called at once
            problem.xp.eye(math.prod(x.shape), dtype=x.dtype)
        )
        jacobian = to_numpy(rows).reshape(math.prod(x.shape), -1)
        bound = SLACK * UNIT_ROUNDOFF[problem.dtype] * float(np.linalg.cond(jacobian))
        back = layer.inverse(p, y)
        _near(f"{layer.name}: inverse(forward(x))", "x", back, x, bound + _scale_of(x, y) * bound)
        _near(f"{layer.name}: vjp(vijp(h))", "h", pull(layer.advance(vjp, p, x, h)[1])[0], h, bound)
        x = y


def _near(what: str, exact_name: str, found: Any, exact: Any, bound: float) -> None:
    ours, theirs = to_numpy(found), to_numpy(exact)
    if ours.shape != theirs.shape:
        raise Refuted(f"{what} has shape {ours.shape}; {exact_name} has {theirs.shape}")
    error = float(np.linalg.norm(ours - theirs)) / (float(np.linalg.norm(theirs)) or 1.0)
    if not error <= bound:
        raise Refuted(f"{what} is not {exact_name}: off by {error:.2g}, bound {bound:.2g}", "", error, bound)


def _scale_of(x: Any, y: Any) -> float:
    """‖y‖ / ‖x‖: what the layer added to x, such as a bias, is taken away again with its own rounding."""
    return float(np.linalg.norm(to_numpy(y))) / (float(np.linalg.norm(to_numpy(x))) or 1.0)


def _transforms(backend: str) -> tuple[Any, Any]:
    if backend == "jax":
        import jax

        return jax.vjp, jax.vmap
    import torch

    return torch.func.vjp, torch.func.vmap
