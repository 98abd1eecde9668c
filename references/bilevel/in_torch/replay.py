"""Mixed mode that keeps nothing of a step but its inner gradient, in PyTorch; `jax_replay` says why that suffices."""

from __future__ import annotations

import torch

from gradgate.references.bilevel.in_torch.methods import (
    forward_over_reverse,
    gradient,
    inner_loss,
    pull_init,
    pull_outer,
    pull_step,
    steps,
)
from gradgate.references.bilevel.options import check_flag
from gradgate.references.bilevel.problem import BilevelProblem
from gradgate.references.contract import Tree


def gradient_replay(problem: BilevelProblem, *, remat: bool = False) -> tuple[torch.Tensor, Tree]:
    """Loss and meta-gradient as `mixflow`, with ∇L_i alone kept of every step; θ_i and υ_i are made from them again.

    Args:
        problem: any BilevelProblem.
        remat: rematerialise the layers of the inner model one by one (block rematerialisation).

    Returns:
        The loss, a scalar, and its gradient, shaped and typed like ``problem.params``.

    Raises:
        IllegalOption: the option is not a bool.

    Source: beyond the paper; its §4 saves inner gradients in addition to states. Cost: stores ∇L_i of every step, one θ
    and υ, and what one product needs: with Adam T·|θ| numbers in place of 4·T·|θ|; computes `mixflow` with saved
    gradients, and T²/2 updates, each a few operations per parameter. Do not use it where T comes near the number of
    data points, or tokens, of a batch.
    """
    inner, eta = inner_loss(problem, check_flag("remat", remat)), problem.params
    batches = list(steps(problem))
    carry, grads = problem.init(eta), []
    for x in batches:
        grads.append(gradient(inner, carry[0], eta, x))
        carry = problem.update(grads[-1], *carry, eta, x)
    loss, cotangents = pull_outer(problem, carry, remat)
    while grads:
        grad, x = grads.pop(), batches[len(grads)]
        carry = problem.init(eta)
        for earlier, before in zip(grads, batches, strict=False):
            carry = problem.update(earlier, *carry, eta, before)
        cotangents = pull_step(problem, inner, forward_over_reverse, carry, grad, x, cotangents)
    return loss, pull_init(problem, cotangents)
