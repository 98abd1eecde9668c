"""Mixed mode that keeps only the inner gradient of each step, in PyTorch; `in_jax.replay` says why that suffices."""

from __future__ import annotations

from typing import Any

import torch

from gradgate.references.bilevel.in_torch.methods import (
    Inner,
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
    """Loss and meta-gradient as by `mixflow`, but only ∇L_i of every step is stored; θ_i and υ_i are recomputed.

    Args:
        problem: any `BilevelProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.
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
        Per step, one gradient of L and one gradient with tangents, which costs about two more; and T(T + 1)/2 updates
        in all, each a few FLOPs per parameter.

    Not for:
        T near the number of data points, or tokens, of a batch: the updates then cost as much as the gradients. Use
        `mixflow`.
    """
    return replayed(problem, inner_loss(problem, check_flag("remat", remat)), remat)


def replayed(problem: BilevelProblem, inner: Inner, remat: bool) -> tuple[Any, Tree]:
    """The walk of `gradient_replay`."""
    eta, batches = problem.eta, list(steps(problem))
    carry, grads = problem.init(problem.params), []
    for x in batches:
        grads.append(gradient(inner, carry[0], eta, x))
        carry = problem.update(grads[-1], *carry, eta, x)
    loss, cotangents = pull_outer(problem, carry, remat)
    while grads:
        grad, x = grads.pop(), batches[len(grads)]
        carry = problem.init(problem.params)
        for earlier, before in zip(grads, batches, strict=False):
            carry = problem.update(earlier, *carry, eta, before)
        cotangents = pull_step(problem, inner, forward_over_reverse, carry, grad, x, cotangents)
    return loss, pull_init(problem, cotangents)
