"""Errata of Moonwalk in JAX: what the paper prints, which must be refuted."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from gradgate.references.contract import Tree
from gradgate.references.invertible.in_jax.methods import random_direction
from gradgate.references.invertible.problem import InvertibleProblem


def projected_forward_printed(problem: InvertibleProblem, *, seed: int = 0) -> tuple[Any, Tree]:
    """The loss, and the projection of the gradient on one random direction u of unit length: (∇J·u) u.

    E[u uᵀ] = I/P for unit length: the mean of the estimate is the gradient divided by the number of parameters P.

    Args:
        problem: any `InvertibleProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.
            Nothing is inverted.
        seed: seeds u: an integer of at least 0, or one that JAX traces.

    Returns:
        The loss, a scalar, and the estimate, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        IllegalOption: `seed` is not an integer of at least 0.
        UsageError: a parameter or the input has another shape than the Spec gives.

    Source:
        §3.3, Eq. 5, as printed: "for a unit-length tangent vector".

    Stores:
        The activations and tangents of one layer, and u, P numbers for P parameters.

    Computes:
        One evaluation and one JVP of every layer and of the head. FLOPs grow linearly with L.

    Not for:
        Any use but refuting Eq. 5. Use `projected_forward`.
    """
    direction = random_direction(problem, seed)
    length = jnp.sqrt(sum(jnp.sum(u * u) for u in jax.tree.leaves(direction)))
    direction = jax.tree.map(lambda u: u / length, direction)
    loss, slope = jax.jvp(problem.loss, (problem.params,), (direction,))
    return loss, jax.tree.map(lambda u: slope * u, direction)
