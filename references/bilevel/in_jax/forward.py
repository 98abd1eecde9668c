"""Meta-gradients in JAX by forward mode in η: one JVP of the whole inner loop per number of η (§2.3)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from gradgate.references.bilevel.problem import BilevelProblem
from gradgate.references.contract import Tree


@jax.jit
def forward_mode(problem: BilevelProblem) -> tuple[Any, Tree]:
    """Loss and meta-gradient by one JVP through all inner steps per number of η; no step is stored.

    Args:
        problem: any `BilevelProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Source:
        §2.3 ("forward-mode differentiation").

    Stores:
        θ, υ and their tangents of one step, 2·(|θ| + |υ|) numbers; the activations and tangents of one gradient of L;
        and |η| numbers for the direction. Nothing grows with T.

    Computes:
        |η| + 1 runs of the T inner steps; each but the last also pushes a tangent through every step, which costs
        about two gradients of L more. So FLOPs grow like |η|·T·|θ|.

    Not for:
        More than a few numbers of η: from two numbers on, `mixflow` computes less. What is left is the memory over T.
    """
    flat, unravel = ravel_pytree(problem.params)

    def slope(i: Any) -> Any:
        unit = jnp.zeros_like(flat).at[i].set(1)
        return jax.jvp(lambda eta: problem.loss(unravel(eta)), (flat,), (unit,))[1]

    return problem.loss(problem.params), unravel(jax.lax.map(slope, jnp.arange(flat.size)))
