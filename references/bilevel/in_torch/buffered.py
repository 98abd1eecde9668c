"""Meta-gradients in PyTorch with steps of momentum taken back bit for bit: a byte per number and step (App. A.2)."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree

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
from gradgate.references.bilevel.inner.buffered import Grid
from gradgate.references.bilevel.problem import BilevelProblem
from gradgate.references.bilevel.refusal import check_momentum
from gradgate.references.contract import Tree


def buffered_inversion(problem: BilevelProblem) -> tuple[torch.Tensor, Tree]:
    """Loss and meta-gradient with steps of momentum taken back exactly, for any T and μ: a buffer keeps lost bits.

    Args:
        problem: any `BilevelProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes. Its
            inner optimiser must be momentum.

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
    return inverted(problem, inner_loss(problem, remat=True), remat=True)


def inverted(problem: BilevelProblem, inner: Inner, remat: bool) -> tuple[Any, Tree]:
    """The walk of `buffered_inversion`."""
    eta, batches = problem.eta, list(steps(problem))
    grid = Grid.of(problem, lambda theta, x: gradient(inner, theta, eta, x))
    carry, buffer, sound = grid.start(), [], torch.tensor(True)
    for x in batches:
        carry, read, held = grid.forward(gradient(inner, grid.narrowed(carry)[0], eta, x), carry)
        buffer.append(read)
        sound = sound & held
    loss, cotangents = pull_outer(problem, grid.narrowed(carry), remat)
    for x in reversed(batches):
        carry = grid.theta_before(carry)
        grad = gradient(inner, grid.narrowed(carry)[0], eta, x)
        carry = grid.velocity_before(grad, buffer.pop(), carry)
        cotangents = pull_step(problem, inner, forward_over_reverse, grid.narrowed(carry), grad, x, cotangents)

    def checked(leaf: Any) -> Any:
        return leaf / sound if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf

    return _pytree.tree_map(checked, (loss, pull_init(problem, cotangents)))
