"""Errata of Moonwalk in JAX: what the paper prints, which must be refuted."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from gradgate.references.contract import Tree
from gradgate.references.invertible.in_jax.methods import random_direction
from gradgate.references.invertible.problem import InvertibleProblem


def projected_forward_printed(problem: InvertibleProblem, *, seed: int = 0) -> tuple[Any, Tree]:
    """Loss, and the projection of the gradient on one random direction of unit length, (∇J·u) u.

    E[u uᵀ] = I/P for unit length: its mean is the gradient divided by the number of parameters P.

    Args:
        problem: any InvertibleProblem.
        seed: of u, an integer of at least 0, or one traced by JAX.

    Raises:
        IllegalOption: `seed` is no integer of at least 0.

    Source: §3.3, Eq. 5, "for a unit-length tangent vector". Stores and computes: as `projected_forward`; use that one.
    """
    direction = random_direction(problem, seed)
    length = jnp.sqrt(sum(jnp.sum(u * u) for u in jax.tree.leaves(direction)))
    direction = jax.tree.map(lambda u: u / length, direction)
    loss, slope = jax.jvp(problem.loss, (problem.params,), (direction,))
    return loss, jax.tree.map(lambda u: slope * u, direction)
