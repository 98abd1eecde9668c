"""Listing 1 in a user's own loop over steps: `mixed_mode_grad` in the place of `jax.grad` (A.3)."""

from __future__ import annotations

import functools
from typing import Any

import jax

from gradgate.references.bilevel.in_jax.methods import Carry, block_of, inner_loss
from gradgate.references.bilevel.in_jax.mixed_mode import mixed_mode_grad
from gradgate.references.bilevel.problem import BilevelProblem
from gradgate.references.contract import Tree


@functools.partial(jax.jit, static_argnames=("remat",))
def mixflow_drop_in(problem: BilevelProblem, *, remat: bool = False) -> tuple[Any, Tree]:
    """Loss and meta-gradient of a user's own loop over steps, which takes the gradient of L by `mixed_mode_grad`.

    Args:
        problem: any `BilevelProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.
        remat: True or False. True rematerialises the layers of the inner model one by one (block rematerialisation).

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        IllegalOption: `remat` is neither True nor False.
        NotComposable: a further derivative is taken.

    Source:
        Listings 1 and 2, corrected, in Algorithm 2.

    Stores:
        θ_i and υ_i of every step, T·(|θ| + |υ|) numbers; and the activations and tangents of one gradient of L, with
        `remat` the input of every layer and its tangent.

    Computes:
        As `mixflow`: per step, two gradients of L and one gradient with tangents, which costs about two more.

    Not for:
        A further derivative of the meta-gradient. Use `mixflow`, which writes the recursion out.
    """
    gradient = mixed_mode_grad(inner_loss(problem, remat))

    @jax.checkpoint
    def step(carry: Carry, eta: Tree, x: Tree) -> Carry:
        return problem.update(gradient(carry[0], eta, x), *carry, eta, x)

    def outer(eta: Tree) -> Any:
        (theta, _), _ = jax.lax.scan(lambda carry, x: (step(carry, eta, x), None), problem.init(eta), problem.xs)
        return problem.outer_loss(theta, problem.y, block=block_of(remat))

    return jax.value_and_grad(outer)(problem.params)
