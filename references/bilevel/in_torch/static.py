"""Meta-gradients in PyTorch that do not store every step (App. A.2): reversed momentum, logarithmic rematerialisation.

Both go backwards through the recursion of Eq. 6 with mixed-mode products and rematerialised layers, as `methods` does.
They differ in where θ_i and υ_i come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gradgate.references.bilevel.in_torch.methods import (
    Carry,
    Inner,
    forward_over_reverse,
    gradient,
    inner_loss,
    pull_init,
    pull_outer,
    pull_step,
    steps,
)
from gradgate.references.bilevel.inner.optimisers import momentum_theta_before, momentum_velocity_before
from gradgate.references.bilevel.problem import BilevelProblem
from gradgate.references.bilevel.refusal import check_momentum
from gradgate.references.contract import Tree


def momentum_inversion(problem: BilevelProblem) -> tuple[torch.Tensor, Tree]:
    """Loss and meta-gradient in memory that does not grow with T: every step of momentum is taken back.

    Args:
        problem: any `BilevelProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes. Its
            inner optimiser must be momentum.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        NotInvertible: the inner optimiser is not momentum; the message names a method that needs no inverse.

    Source:
        App. A.2; Maclaurin, Duvenaud and Adams (2015), Algorithm 2, without its buffer of lost bits.

    Stores:
        θ, υ and their cotangents of one step, 2·(|θ| + |υ|) numbers, dV/dη, |η| numbers; and what one product needs
        with its layers rematerialised.

    Computes:
        Per step, two gradients of L and one gradient with tangents, which costs about two more, all with the layers
        rematerialised.

    Not for:
        Many steps or a small μ. Each step back divides the rounding errors of υ by μ, which loses about T·log2(1/μ)
        bits. Use `log_remat`.
    """
    check_momentum(problem)
    inner, eta = inner_loss(problem, remat=True), problem.params
    batches = list(steps(problem))
    theta, velocity = _advance(problem, inner, problem.init(eta), batches)
    loss, cotangents = pull_outer(problem, (theta, velocity), remat=True)
    for x in reversed(batches):
        theta = momentum_theta_before(problem.rates(theta, eta), theta, velocity)
        grad = gradient(inner, theta, eta, x)
        velocity = momentum_velocity_before(problem.data["momentum"], grad, velocity)
        cotangents = pull_step(problem, inner, forward_over_reverse, (theta, velocity), grad, x, cotangents)
    return loss, pull_init(problem, cotangents)


def log_remat(problem: BilevelProblem) -> tuple[torch.Tensor, Tree]:
    """Loss and meta-gradient with O(log T) states in memory instead of T: steps are run again from recursive halves.

    Args:
        problem: any `BilevelProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Source:
        App. A.2; Griewank (1992), by halves.

    Stores:
        A state (θ, υ) per halving: at most (⌈log2 T⌉ + 1)·(|θ| + |υ|) numbers. And what one product needs with its
        layers rematerialised.

    Computes:
        Forward, as many gradients of L as the binary forms of 0 … T − 1 have ones, and one more: about T·log2(T)/2.
        Backward, per step a gradient and a gradient with tangents, which costs about two more. All with the layers
        rematerialised.

    Not for:
        T states that fit in memory. Use `mixflow`, which runs every step once.
    """
    return halved(problem, inner_loss(problem, remat=True), remat=True)


def halved(problem: BilevelProblem, inner: Inner, remat: bool) -> tuple[Any, Tree]:
    """The walk of `log_remat`."""
    runs: list[tuple[Carry, list[Tree]]] = [(problem.init(problem.params), list(steps(problem)))]
    loss, cotangents = None, None
    while runs:  # not a recursion: each of its frames would keep the cotangents that it was given
        carry, batches = runs.pop()
        while len(batches) > 1:
            half = len(batches) // 2
            runs.append((carry, batches[:half]))
            carry, batches = _advance(problem, inner, carry, batches[:half]), batches[half:]
        if cotangents is None:
            loss, cotangents = pull_outer(problem, _advance(problem, inner, carry, batches), remat)
        cotangents = pull_step(problem, inner, forward_over_reverse, carry, None, batches[0], cotangents)
    assert loss is not None
    assert cotangents is not None
    return loss, pull_init(problem, cotangents)


def _advance(problem: BilevelProblem, inner: Inner, carry: Carry, batches: Sequence[Tree]) -> Carry:
    """The steps of `batches`. Only the last state is kept."""
    eta = problem.eta
    for x in batches:
        carry = problem.update(gradient(inner, carry[0], eta, x), *carry, eta, x)
    return carry
