"""Listing 2 in a user's own loop over steps: `mixed_mode_grad` in the place of `torch.func.grad` (A.3)."""

from __future__ import annotations

import torch

from gradgate.references.bilevel.in_torch.methods import inner_loss, steps, value_and_gradients
from gradgate.references.bilevel.in_torch.mixed_mode import mixed_mode_grad
from gradgate.references.bilevel.in_torch.remat import remat as rematerialised
from gradgate.references.bilevel.options import check_flag
from gradgate.references.bilevel.problem import BilevelProblem
from gradgate.references.contract import Tree


def mixflow_drop_in(problem: BilevelProblem, *, remat: bool = False) -> tuple[torch.Tensor, Tree]:
    """Loss and meta-gradient of a user's own loop over steps, which takes the gradient of L by `mixed_mode_grad`.

    Args:
        problem: any `BilevelProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.
        remat: True or False. True rematerialises the layers of the inner model one by one (block rematerialisation).

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        IllegalOption: `remat` is neither True nor False.

    Source:
        Listings 1 and 2, corrected, in Algorithm 2.

    Stores:
        θ_i and υ_i of every step and what the reverse pass through the update reads, some 2 to 8 times |θ| for each
        step; and the activations and tangents of one gradient of L.

    Computes:
        Per step, one gradient of L and one gradient with tangents, which costs about two more.

    Not for:
        T so large that the graphs of T updates do not fit in memory. Use `mixflow`, which keeps θ_i and υ_i alone.
    """
    gradient_of = mixed_mode_grad(inner_loss(problem, check_flag("remat", remat)))

    def outer(eta: Tree) -> torch.Tensor:
        carry = problem.init(eta)
        for x in steps(problem):
            carry = problem.update(gradient_of(carry[0], eta, x), *carry, eta, x)
        loss: torch.Tensor = (
            problem.outer_loss(carry[0], problem.y, block=rematerialised)
            if remat
            else problem.outer_loss(carry[0], problem.y)
        )
        return loss

    value, (grads,) = value_and_gradients(outer, problem.params)
    return value, grads
