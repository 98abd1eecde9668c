"""Meta-gradients in JAX that do not store every step (App. A.2): reversed momentum, logarithmic rematerialisation.

Both go backwards through the recursion of Eq. 6 with mixed-mode products and rematerialised layers, as `methods` does.
They differ in where θ_i and υ_i come from.
"""

from __future__ import annotations

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
from gradgate.references.bilevel.inner.optimisers import momentum_theta_before, momentum_velocity_before
from gradgate.references.bilevel.problem import BilevelProblem
from gradgate.references.bilevel.refusal import check_momentum
from gradgate.references.contract import Tree


@jax.jit
def momentum_inversion(problem: BilevelProblem) -> tuple[Any, Tree]:
    """Loss and meta-gradient in memory that does not grow with T: every step of momentum is taken back.

    Args:
        problem: any `BilevelProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes. Its inner
            optimiser must be momentum.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        NotInvertible: the inner optimiser is not momentum; the message names a method that needs no inverse.

    Source:
        App. A.2; Maclaurin, Duvenaud and Adams (2015), Algorithm 2, without its buffer of lost bits.

    Stores:
        θ, υ and their cotangents of one step, 2·(|θ| + |υ|) numbers, dV/dη, |η| numbers; and what one product needs
        with its layers rematerialised. A TPU's compiler also copies the batches of all T steps, in bfloat16.

    Computes:
        Per step, two gradients of L and one gradient with tangents, which costs about two more, all with the layers
        rematerialised.

    Not for:
        Many steps or a small μ. Each step back divides the rounding errors of υ by μ, which loses about T·log2(1/μ)
        bits. Use `log_remat`.
    """
    check_momentum(problem)
    inner, eta = inner_loss(problem, remat=True), problem.params

    def backward(inputs: tuple[Carry, Cotangents], x: Tree) -> tuple[tuple[Carry, Cotangents], None]:
        (theta, velocity), cotangents = inputs
        theta = momentum_theta_before(problem.rates(theta, eta), theta, velocity)
        grad = jax.grad(inner)(theta, eta, x)
        carry = theta, momentum_velocity_before(problem.data["momentum"], grad, velocity)
        return (carry, pull_step(problem, inner, forward_over_reverse, carry, grad, x, cotangents)), None

    carry = _advance(problem, inner, problem.init(eta), 0, problem.spec.steps)
    loss, cotangents = pull_outer(problem, *carry, block_of(True))
    (_, cotangents), _ = jax.lax.scan(backward, (carry, cotangents), problem.xs, reverse=True)
    return loss, pull_init(problem, cotangents)


@jax.jit
def log_remat(problem: BilevelProblem) -> tuple[Any, Tree]:
    """Loss and meta-gradient with O(log T) states in memory instead of T: steps are run again from recursive halves.

    Args:
        problem: any `BilevelProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Source:
        App. A.2; Griewank (1992), by halves.

    Stores:
        Two states (θ, υ) per halving: 2·log2(T)·(|θ| + |υ|) numbers if T is a power of two. Otherwise T is cut into
        powers of two, and each of them except the largest adds at most one state. And what one product needs with its
        layers rematerialised.

    Computes:
        Forward, T gradients of L, and k·2^k/2 more for each power 2^k in the binary form of T: T·log2(T)/2 more if T is
        a power of two. Backward, per step a gradient and a gradient with tangents, which costs about two more. All with
        the layers rematerialised. JAX leaves the second gradient out if the update does not read ∇L's value: in SGD and
        momentum with fixed learning rates.

    Not for:
        T states that fit in memory. Use `mixflow`, which runs every step once.
    """
    return halved(problem, inner_loss(problem, remat=True), block_of(True))


def halved(problem: BilevelProblem, inner: Inner, block: Callable[..., Any]) -> tuple[Any, Tree]:
    """The walk of `log_remat`, with the wrapper of the outer loss's layers."""
    carry, runs, first = problem.init(problem.params), [], 0
    for length in _powers_of_two(problem.spec.steps):
        runs.append((carry, first, length))
        carry = _advance(problem, inner, carry, first, length)
        first += length
    loss, cotangents = pull_outer(problem, *carry, block)
    for run in reversed(runs):
        cotangents = _pull_halves(problem, inner, *run, cotangents)
    return loss, pull_init(problem, cotangents)


def _pull_halves(
    problem: BilevelProblem, inner: Inner, carry: Carry, first: Any, length: int, cotangents: Cotangents
) -> Cotangents:
    """Pull back the 2^k steps from step `first` on, which start from `carry`; the later half comes first.

    A scan over the halves contains the program of one half only, so the whole consists of k programs.
    """
    if length == 1:
        return pull_step(problem, inner, forward_over_reverse, carry, None, _batch(problem, first), cotangents)
    middle = _advance(problem, inner, carry, first, length // 2)
    starts = jax.tree.map(lambda *leaves: jnp.stack(leaves), carry, middle)

    def half(cotangents: Cotangents, inputs: tuple[Carry, Any]) -> tuple[Cotangents, None]:
        return _pull_halves(problem, inner, *inputs, length // 2, cotangents), None

    firsts = first + jnp.array([0, length // 2], dtype=jnp.int32)
    return jax.lax.scan(half, cotangents, (starts, firsts), reverse=True)[0]


def _powers_of_two(length: int) -> list[int]:
    """The powers of two that add up to a length, the largest first."""
    return [2**bit for bit in reversed(range(length.bit_length())) if length >> bit & 1]


def _batch(problem: BilevelProblem, i: Any) -> Tree:
    """x_i, indexed where it is used, because a scan over a part of the batches would copy that part."""
    return jax.tree.map(lambda leaf: leaf[i], problem.xs)


def _advance(problem: BilevelProblem, inner: Inner, carry: Carry, first: Any, length: int) -> Carry:
    """`length` steps from step `first` on. Only the last state is kept."""

    def step(carry: Carry, i: Any) -> tuple[Carry, None]:
        x = _batch(problem, i)
        return problem.update(jax.grad(inner)(carry[0], problem.eta, x), *carry, problem.eta, x), None

    return jax.lax.scan(step, carry, first + jnp.arange(length, dtype=jnp.int32))[0]
