"""Meta-gradients in JAX that do not store every step (App. A.2): reversed momentum, logarithmic rematerialisation.

Both go backwards through the recursion of Eq. 6 with mixed-mode products and rematerialised layers, as `jax_impl`; they
differ in where θ_i and υ_i come from.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from gradgate.references.bilevel.jax_impl import (
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
from gradgate.references.bilevel.optimisers import momentum_theta_before, momentum_velocity_before
from gradgate.references.bilevel.problem import BilevelProblem
from gradgate.references.bilevel.refusal import check_momentum
from gradgate.references.contract import Tree


@jax.jit
def momentum_inversion(problem: BilevelProblem) -> tuple[Any, Tree]:
    """Loss and meta-gradient in memory that does not grow with T: each step of momentum is taken back.

    Args:
        problem: a BilevelProblem with the optimiser momentum.

    Returns:
        The scalar loss and a tree like ``problem.params``, in its shapes and dtypes.

    Raises:
        NotInvertible: another optimiser.

    Source: App. A.2; Maclaurin, Duvenaud, Adams (2015), Algorithm 2, without its buffer of lost bits.
    Stores: θ, υ and their cotangents of one step, and what one product needs. Computes: as `mixflow` without saved
    gradients. Not for many steps or small μ: each step back divides the rounding errors of υ by μ, so that about
    T·log2(1/μ) bits are lost.
    """
    check_momentum(problem)
    inner, eta = inner_loss(problem, remat=True), problem.params

    def backward(inputs: tuple[Carry, Cotangents], x: Tree) -> tuple[tuple[Carry, Cotangents], None]:
        (theta, velocity), cotangents = inputs
        theta = momentum_theta_before(problem.rates(theta, eta), theta, velocity)
        grad = jax.grad(inner)(theta, eta, x)
        carry = theta, momentum_velocity_before(problem.data["momentum"], grad, velocity)
        return (carry, pull_step(problem, inner, forward_over_reverse, carry, grad, x, cotangents)), None

    carry = _advance(problem, inner, problem.init(eta), problem.xs)
    loss, cotangents = pull_outer(problem, *carry, block_of(True))
    (_, cotangents), _ = jax.lax.scan(backward, (carry, cotangents), problem.xs, reverse=True)
    return loss, pull_init(problem, cotangents)


@jax.jit
def log_remat(problem: BilevelProblem) -> tuple[Any, Tree]:
    """Loss and meta-gradient with 2·log2 T states in memory, in place of T: steps are run again from the middle.

    Returns:
        The scalar loss and a tree like ``problem.params``, in its shapes and dtypes.

    Source: App. A.2; Griewank (1992), by halves.
    Stores: two states (θ, υ) per halving, and what one product needs. Computes: `mixflow` without saved gradients, and
    each step up to log2 T times more. Not where T states fit.
    """
    inner, eta = inner_loss(problem, remat=True), problem.params
    starts, carry = [], problem.init(eta)
    for xs in _powers_of_two(problem.xs, problem.spec.steps):
        starts.append((carry, xs))
        carry = _advance(problem, inner, carry, xs)
    loss, cotangents = pull_outer(problem, *carry, block_of(True))
    for carry, xs in reversed(starts):
        cotangents = _pull_halves(problem, inner, carry, xs, cotangents)
    return loss, pull_init(problem, cotangents)


def _pull_halves(problem: BilevelProblem, inner: Inner, carry: Carry, xs: Tree, cotangents: Cotangents) -> Cotangents:
    """Pull back the 2^k steps that `xs` holds, which start from `carry`: later half first.

    A scan over the halves has the program of one of them, so that the whole has k programs.
    """
    length = len(xs["step"])
    if length == 1:
        x = jax.tree.map(lambda leaf: leaf[0], xs)
        return pull_step(problem, inner, forward_over_reverse, carry, None, x, cotangents)
    halves = jax.tree.map(lambda leaf: leaf.reshape(2, length // 2, *leaf.shape[1:]), xs)
    middle = _advance(problem, inner, carry, jax.tree.map(lambda leaf: leaf[0], halves))
    starts = jax.tree.map(lambda *leaves: jnp.stack(leaves), carry, middle)

    def half(cotangents: Cotangents, inputs: tuple[Carry, Tree]) -> tuple[Cotangents, None]:
        return _pull_halves(problem, inner, *inputs, cotangents), None

    return jax.lax.scan(half, cotangents, (starts, halves), reverse=True)[0]


def _powers_of_two(xs: Tree, length: int) -> list[Tree]:
    """`xs` cut into runs of 2^k steps, a power of two for each bit of the length, the longest first."""
    runs, start = [], 0
    for bit in reversed(range(length.bit_length())):
        if length >> bit & 1:
            runs.append(jax.tree.map(lambda leaf: leaf[start : start + 2**bit], xs))  # noqa: B023 - called at once
            start += 2**bit
    return runs


def _advance(problem: BilevelProblem, inner: Inner, carry: Carry, xs: Tree) -> Carry:
    """The steps of `xs`, of which nothing but the last state is kept."""

    def step(carry: Carry, x: Tree) -> tuple[Carry, None]:
        return problem.update(jax.grad(inner)(carry[0], problem.params, x), *carry, problem.params, x), None

    return jax.lax.scan(step, carry, xs)[0]
