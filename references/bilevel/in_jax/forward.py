"""Meta-gradients in JAX by forward mode in η: one JVP of the whole inner loop per number of η (§2.3)."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from gradgate.references.bilevel.problem import BilevelProblem
from gradgate.references.contract import Tree
from gradgate.references.errors import check_integer


@functools.partial(jax.jit, static_argnames="tangents")
def forward_mode(problem: BilevelProblem, *, tangents: int = 1) -> tuple[Any, Tree]:
    """Loss and meta-gradient by one JVP through all inner steps per number of η; no step is stored.

    Args:
        problem: any `BilevelProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.
        tangents: how many JVPs are pushed forward together, an integer of at least 1.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        IllegalOption: `tangents` is not an integer of at least 1.

    Source:
        §2.3 ("forward-mode differentiation").

    Stores:
        θ, υ and `tangents` tangents of them of one step, (1 + `tangents`)·(|θ| + |υ|) numbers; the activations of one
        gradient of L and as many tangents of them; and `tangents`·|η| numbers for the directions. Nothing grows with T.

    Computes:
        |η| JVPs of the T inner steps, which cost about two gradients of L a step, and ⌈|η|/`tangents`⌉ + 1 runs of
        them. So FLOPs grow like |η|·T·|θ|.

    Not for:
        More than a few numbers of η: from two numbers on, `mixflow` computes less. What is left is the memory over T.
    """
    tangents = check_integer("tangents", tangents, 1)
    flat, unravel = ravel_pytree(problem.params)

    def slope(i: Any) -> Any:
        unit = jnp.zeros_like(flat).at[i].set(1)
        return jax.jvp(lambda eta: problem.loss(unravel(eta)), (flat,), (unit,))[1]

    found = jax.lax.map(slope, jnp.arange(flat.size), batch_size=min(tangents, flat.size))
    return problem.loss(problem.params), unravel(found)
