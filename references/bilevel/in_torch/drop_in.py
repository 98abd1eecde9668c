"""Listing 2 as a drop-in for `torch.func.grad` that works: trees, inputs of integers, and η's cotangent (A.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree

from gradgate.references.bilevel.in_torch.methods import (
    forward_over_reverse,
    gradient,
    inner_loss,
    steps,
    value_and_gradients,
)
from gradgate.references.bilevel.in_torch.remat import living
from gradgate.references.bilevel.in_torch.remat import remat as rematerialised
from gradgate.references.bilevel.options import check_flag
from gradgate.references.bilevel.problem import BilevelProblem
from gradgate.references.contract import Tree


class _Gradient(torch.autograd.Function):
    """∇L of the tensors of (θ, inputs), flattened, with the product by forward mode over reverse mode."""

    generate_vmap_rule = True

    @staticmethod
    def forward(inner: Any, structure: Any, *flat: torch.Tensor) -> tuple[torch.Tensor, ...]:
        theta, inputs = _pytree.tree_unflatten(list(flat), structure)
        found = gradient(lambda theta, eta, x: inner(theta, *inputs), theta, (), ())
        return tuple(_pytree.tree_leaves(found))

    @staticmethod
    def setup_context(context: Any, inputs: tuple[Any, ...], output: Any) -> None:
        context.inner, context.structure = inputs[:2]
        context.save_for_backward(*inputs[2:])

    @staticmethod
    def backward(context: Any, *v: torch.Tensor) -> Any:
        flat = list(living(context))
        theta, _ = _pytree.tree_unflatten(flat, context.structure)
        number = len(_pytree.tree_leaves(theta))
        places = [i for i, leaf in enumerate(flat) if i >= number and leaf.is_floating_point()]

        def chosen(theta: Tree, floats: list[torch.Tensor], _: Tree) -> torch.Tensor:
            given = dict(enumerate(flat)) | dict(zip(places, floats, strict=True))
            _, inputs = _pytree.tree_unflatten(list(given.values()), context.structure)
            loss: torch.Tensor = context.inner(theta, *inputs)
            return loss

        shape = _pytree.tree_structure(theta)
        direction = _pytree.tree_unflatten(list(v), shape)
        _, products = forward_over_reverse(chosen, theta, [flat[i] for i in places], (), ())
        by_theta, by_floats = products(direction)
        found = dict(enumerate(_pytree.tree_leaves(by_theta))) | dict(zip(places, by_floats, strict=True))
        return None, None, *(found.get(i) for i in range(len(flat)))


def fwdrev_grad(inner: Callable[..., torch.Tensor]) -> Callable[..., Tree]:
    """``torch.func.grad(inner)``, whose own products are by forward mode over reverse mode.

    Args:
        inner: (θ, inputs …) -> scalar. All that a derivative is to be taken by has to be an argument. Inputs are trees
            of tensors; those of integers or booleans have no cotangent.

    Returns:
        (θ, inputs …) -> a tree like θ.

    Source:
        Listing 2. As printed it names ``loss``, which nothing binds, saves trees as if they were tensors, and
        differentiates by every input.

    Stores:
        θ and the inputs until it is pulled back, and then what one product needs.

    Computes:
        One gradient, and pulled back one gradient with tangents.
    """

    def of(theta: Tree, *inputs: Any) -> Tree:
        flat, structure = _pytree.tree_flatten((theta, inputs))
        found = _Gradient.apply(inner, structure, *flat)
        return _pytree.tree_unflatten(list(found), _pytree.tree_structure(theta))

    return of


def mixflow_drop_in(problem: BilevelProblem, *, remat: bool = False) -> tuple[torch.Tensor, Tree]:
    """Loss and meta-gradient of a user's own loop over steps, whose gradient of L is by `fwdrev_grad`.

    Args:
        problem: any `BilevelProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.
        remat: True or False. True rematerialises the layers of the inner model one by one (block rematerialisation).

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        IllegalOption: `remat` is neither True nor False.

    Source:
        Listings 1 and 2, mended, in Algorithm 2.

    Stores:
        θ_i and υ_i of every step and what the reverse pass through the update reads, some 2 to 8 times |θ| for each
        step; and the activations and tangents of one gradient of L.

    Computes:
        Per step, one gradient of L and one gradient with tangents, which costs about two more.

    Not for:
        T so large that the graphs of T updates do not fit in memory. Use `mixflow`, which keeps θ_i and υ_i alone.
    """
    gradient_of = fwdrev_grad(inner_loss(problem, check_flag("remat", remat)))

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
