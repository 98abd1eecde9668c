"""Meta-gradients in JAX with static memory: momentum and Adam taken back in words of three floats (App. A.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

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
from gradgate.references.bilevel.inner.inverses import Steps
from gradgate.references.bilevel.problem import BilevelProblem
from gradgate.references.bilevel.refusal import check_invertible
from gradgate.references.contract import Tree


@jax.jit
def compensated_inversion(problem: BilevelProblem) -> tuple[Any, Tree]:
    """Loss and meta-gradient in memory that does not grow with T: steps of momentum or Adam are taken back.

    Args:
        problem: any `BilevelProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes. Its inner
            optimiser must be momentum or Adam.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        NotInvertible: the inner optimiser is SGD, whose step cannot be taken back; the message names a method.

    Source:
        App. A.2 ("such as Adam … invert per-step updates"), with θ and υ in words of three floats
        (Dekker, 1971; Priest, 1991).

    Stores:
        θ and υ of one step in words, 3·(|θ| + |υ|) numbers (in float32 for bfloat16), the cotangents |θ| + |υ|, dV/dη,
        |η| numbers; and what one product needs with its layers rematerialised.

    Computes:
        Per step, two gradients of L and one gradient with tangents, which costs about two more, all with the layers
        rematerialised; and 100 to 170 FLOPs per number of θ and υ.

    Not for:
        More than 2·log2(1/u)/log2(1/μ) steps, u the unit roundoff: 697 at μ = 0.9 in float64 and 315 in float32, 61 and
        27 at μ = 0.3. After more steps no digit is right. Use `buffered_inversion` with momentum, or `log_remat`. Not
        for a further derivative with Adam: tangents of rebuilt states are floats, and those of v_i lose v_{i+1}/v_i
        roundoffs.
    """
    check_invertible(problem)
    return taken_back(problem, inner_loss(problem, remat=True), block_of(True), parts=3)


def taken_back(problem: BilevelProblem, inner: Inner, block: Callable[..., Any], parts: int) -> tuple[Any, Tree]:
    """The walk of `compensated_inversion`, with the wrapper of the outer loss's layers and the parts of a word."""
    eta, steps = problem.eta, Steps(problem, parts)

    # Barriers around it keep the gradient the same program forward and back, so that it rounds the same.
    def gradient(theta: Tree, x: Tree) -> Tree:
        return jax.lax.optimization_barrier(jax.grad(inner)(*jax.lax.optimization_barrier((theta, eta, x))))

    def forward(carry: Any, x: Tree) -> tuple[Any, None]:
        return steps.forward(gradient(steps.rounded(carry)[0], x), carry, x), None

    def backward(inputs: tuple[Any, Cotangents], x: Tree) -> tuple[tuple[Any, Cotangents], None]:
        carry, cotangents = inputs
        carry = steps.theta_before(carry, x)
        grad = gradient(steps.rounded(carry)[0], x)
        carry = steps.state_before(grad, carry)
        cotangents = pull_step(problem, inner, forward_over_reverse, steps.rounded(carry), grad, x, cotangents)
        return (carry, cotangents), None

    carry, _ = jax.lax.scan(forward, steps.start(), problem.xs)
    loss, cotangents = pull_outer(problem, *steps.rounded(carry), block)
    (_, cotangents), _ = jax.lax.scan(backward, (carry, cotangents), problem.xs, reverse=True)
    return loss, pull_init(problem, cotangents)
