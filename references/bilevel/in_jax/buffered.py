"""Meta-gradients in JAX with steps of momentum taken back bit for bit: a byte per number and step (App. A.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from gradgate.references.bilevel.in_jax.methods import (
    Cotangents,
    Inner,
    block_of,
    forward_over_reverse,
    inner_loss,
    pull_init,
    pull_outer,
    pull_step,
)
from gradgate.references.bilevel.inner.buffered import Carry, Grid
from gradgate.references.bilevel.problem import BilevelProblem
from gradgate.references.bilevel.refusal import check_momentum
from gradgate.references.contract import Tree


@jax.jit
def buffered_inversion(problem: BilevelProblem) -> tuple[Any, Tree]:
    """Loss and meta-gradient with steps of momentum taken back exactly, for any T and μ: a buffer keeps lost bits.

    Args:
        problem: any `BilevelProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes. Its inner
            optimiser must be momentum.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes. Neither is
        finite if the steps cannot be taken back because rounding them to the grid moves θ or υ far from where they go
        in floats.

    Raises:
        NotInvertible: the inner optimiser is not momentum; the message names another method.

    Source:
        App. A.2; Maclaurin, Duvenaud and Adams (2015), Algorithm 3; here υ_i is the nearest number with the buffered
        bits.

    Stores:
        Eight bits of every number of υ_i of every step, T·|θ| bytes. For one step, θ as a sum of two, υ and their
        cotangents, 3·|θ| + 2·|υ| numbers (in float32 for bfloat16). dV/dη, |η| numbers; and what one product needs with
        its layers rematerialised.

    Computes:
        Per step, three gradients of L, one of them to choose the grid, and one gradient with tangents, which costs
        about two more; all with the layers rematerialised. About thirty FLOPs per number of θ and step.

    Not for:
        Few steps with μ near 1. Use `compensated_inversion`, whose memory does not grow with T.
    """
    check_momentum(problem)
    return inverted(problem, inner_loss(problem, remat=True), block_of(True))


def inverted(problem: BilevelProblem, inner: Inner, block: Callable[..., Any]) -> tuple[Any, Tree]:
    """The walk of `buffered_inversion`, with the wrapper of the outer loss's layers."""
    eta, xs = problem.eta, problem.xs

    # Barriers around it keep the gradient the same program forward and back.
    def gradient(theta: Tree, x: Tree) -> Tree:
        return jax.lax.optimization_barrier(jax.grad(inner)(*jax.lax.optimization_barrier((theta, eta, x))))

    grid = Grid.of(problem, gradient)

    def forward(inputs: tuple[Carry, Any], x: Tree) -> tuple[tuple[Carry, Any], Tree]:
        carry, sound = inputs
        carry, read, held = grid.forward(gradient(grid.narrowed(carry)[0], x), carry)
        return (carry, sound & held), read

    def backward(inputs: tuple[Carry, Cotangents], step: Any) -> tuple[tuple[Carry, Cotangents], None]:
        (carry, cotangents), (x, read) = inputs, step
        carry = grid.theta_before(carry)
        grad = gradient(grid.narrowed(carry)[0], x)
        carry = grid.velocity_before(grad, read, carry)
        cotangents = pull_step(problem, inner, forward_over_reverse, grid.narrowed(carry), grad, x, cotangents)
        return (carry, cotangents), None

    (carry, sound), buffer = jax.lax.scan(forward, (grid.start(), jnp.asarray(True)), xs)
    loss, cotangents = pull_outer(problem, *grid.narrowed(carry), block)
    (_, cotangents), _ = jax.lax.scan(backward, (carry, cotangents), (xs, buffer), reverse=True)

    def checked(leaf: Any) -> Any:
        return leaf / sound.astype(leaf.dtype) if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf

    return jax.tree.map(checked, (loss, pull_init(problem, cotangents)))
