"""Mixed mode that keeps only the inner gradient of each step, in JAX: beyond the paper.

§4 saves ∇L_i in addition to θ_i and υ_i, so that Adam has 4·T·|θ| static numbers. But θ_i and υ_i follow from θ_0, υ_0
and the gradients ∇L_0 … ∇L_{i−1} by i updates, and an update is elementwise: compared with a gradient of L it costs
nothing. So the updates are run again from the saved gradients, and T·|θ| numbers are enough.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from gradgate.references.bilevel.in_jax.methods import (
    Carry,
    Cotangents,
    Inner,
    block_of,
    forward_over_reverse,
    inner_loss,
    pull_init,
    pull_outer,
    pull_step,
)
from gradgate.references.bilevel.problem import BilevelProblem
from gradgate.references.contract import Tree


@functools.partial(jax.jit, static_argnames=("remat",))
def gradient_replay(problem: BilevelProblem, *, remat: bool = False) -> tuple[Any, Tree]:
    """Loss and meta-gradient as by `mixflow`, but only ∇L_i of every step is stored; θ_i and υ_i are recomputed.

    Args:
        problem: any `BilevelProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.
        remat: True or False. True rematerialises the layers of the inner model one by one (block rematerialisation).

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        IllegalOption: `remat` is neither True nor False.

    Source:
        Beyond the paper: its §4 saves inner gradients in addition to states.

    Stores:
        ∇L_i of every step, T·|θ| numbers; `mixflow` with saved gradients and Adam has 4·T·|θ|. One θ and υ; and what
        one product needs.

    Computes:
        Per step, one gradient of L and one gradient with tangents, which costs about two more; and T² + T updates in
        all, each a few FLOPs per parameter.

    Not for:
        T near the number of data points, or tokens, of a batch: the updates then cost as much as the gradients. Use
        `mixflow`.
    """
    return replayed(problem, inner_loss(problem, remat), block_of(remat))


def replayed(problem: BilevelProblem, inner: Inner, block: Callable[..., Any]) -> tuple[Any, Tree]:
    """The walk of `gradient_replay`, with the wrapper of the outer loss's layers."""
    eta, xs = problem.eta, problem.xs
    start = problem.init(problem.params)

    def forward(carry: Carry, x: Tree) -> tuple[Carry, Tree]:
        grad = jax.grad(inner)(carry[0], eta, x)
        return problem.update(grad, *carry, eta, x), grad

    def carry_before(number: Any) -> Carry:
        def again(carry: Carry, inputs: tuple[Any, Tree, Tree]) -> tuple[Carry, None]:
            j, x, grad = inputs
            after = problem.update(grad, *carry, eta, x)
            return jax.tree.map(lambda new, old: jnp.where(j < number, new, old), after, carry), None

        return jax.lax.scan(again, start, (numbers, xs, grads))[0]

    def backward(cotangents: Cotangents, inputs: tuple[Any, Tree, Tree]) -> tuple[Cotangents, None]:
        number, x, grad = inputs
        carry = carry_before(number)
        return pull_step(problem, inner, forward_over_reverse, carry, grad, x, cotangents), None

    (theta, state), grads = jax.lax.scan(forward, start, xs)
    numbers = jnp.arange(problem.spec.steps)
    loss, cotangents = pull_outer(problem, theta, state, block)
    cotangents, _ = jax.lax.scan(backward, cotangents, (numbers, xs, grads), reverse=True)
    return loss, pull_init(problem, cotangents)
