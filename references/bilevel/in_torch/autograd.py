"""The baseline that PyTorch users write: autograd through inner steps, each in `torch.utils.checkpoint` (A.3)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree
from torch.utils.checkpoint import checkpoint

from gradgate.references.bilevel.in_torch.methods import Carry, steps
from gradgate.references.bilevel.options import check_flag
from gradgate.references.bilevel.problem import BilevelProblem
from gradgate.references.contract import NotComposable, Tree

_kept = functools.partial(checkpoint, use_reentrant=False)


def autograd_checkpoint(problem: BilevelProblem, *, remat: bool = False) -> tuple[torch.Tensor, Tree]:
    """Loss and meta-gradient by ``torch.autograd.grad`` with a recorded graph, each inner step in a checkpoint.

    Args:
        problem: any `BilevelProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.
        remat: True or False. True puts every layer of the inner model into a checkpoint too.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        IllegalOption: `remat` is neither True nor False.
        NotComposable: a parameter is inside a torch.func transform or requires a gradient.

    Source:
        Listing 2's "default implementation": Algorithm 1 with the checkpoints of §4.

    Stores:
        θ_i and υ_i of every step, T·(|θ| + |υ|) numbers; and all that the reverse pass through one ∇L_i reads, which
        grows with layers times activations, even with `remat`.

    Computes:
        As `truncated_bptt`: per step, two gradients of L and the VJP of one, which costs about two gradients more.

    Not for:
        A further derivative, torch.func, or inner models of many layers. Use `mixflow`.
    """
    check_flag("remat", remat)
    _refuse_transforms(problem)
    block: dict[str, Any] = {"block": _block} if remat else {}
    flat, structure = _pytree.tree_flatten(problem.params)
    leaves = [leaf.detach().clone().requires_grad_() for leaf in flat]
    with torch.enable_grad():
        eta = _pytree.tree_unflatten(leaves, structure)
        carry = problem.init(eta)
        for x in steps(problem):
            carry = _kept(_step, problem, carry, eta, x, block)
        loss = problem.outer_loss(carry[0], problem.y, **block)
    grads = torch.autograd.grad(loss, leaves, materialize_grads=True)
    return loss.detach(), _pytree.tree_unflatten(list(grads), structure)


def _step(problem: BilevelProblem, carry: Carry, eta: Tree, x: Tree, block: dict[str, Any]) -> Carry:
    """One step of Algorithm 1, recorded."""
    flat, structure = _pytree.tree_flatten(carry[0])
    flat = [leaf if leaf.requires_grad else leaf.detach().requires_grad_() for leaf in flat]
    theta = _pytree.tree_unflatten(flat, structure)
    grads = torch.autograd.grad(problem.inner_loss(theta, eta, x, **block), flat, create_graph=True)
    return problem.update(_pytree.tree_unflatten(list(grads), structure), theta, carry[1], eta, x)


def _refuse_transforms(problem: BilevelProblem) -> None:
    """Raise NotComposable if a tensor of the problem is inside a torch.func transform or requires a gradient."""
    for leaf in _pytree.tree_leaves((problem.params, problem.data)):
        if isinstance(leaf, torch.Tensor) and (
            leaf.requires_grad or torch._C._functorch.is_functorch_wrapped_tensor(leaf)
        ):
            raise NotComposable(
                "autograd_checkpoint runs torch.autograd.grad, which neither torch.func.vmap nor a further derivative "
                "can follow; use mixflow, or detach the parameters"
            )


def _block(layer: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A layer in a checkpoint."""
    return functools.partial(_kept, layer)
