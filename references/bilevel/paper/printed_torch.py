"""Errata of MixFlow-MG in PyTorch: the listing as the paper prints it. It must be refuted or raise an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree

from gradgate.references.backends import tree_map
from gradgate.references.bilevel.in_torch.methods import steps
from gradgate.references.bilevel.problem import BilevelProblem
from gradgate.references.contract import Tree


def listing2_printed(problem: BilevelProblem, *, mistake: str = "trees") -> tuple[torch.Tensor, Tree]:
    """Loss and meta-gradient with the autograd function of Listing 2 for ∇L, with one of its mistakes as printed.

    Args:
        problem: any `BilevelProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.
        mistake: the mistake that is kept; the others are corrected. ``name``: the backward differentiates ``loss``, a
            name that is not defined. ``trees``: trees are saved as if they were tensors. ``integers``: the backward
            differentiates by every input.

    Returns:
        The loss, a scalar, and a gradient, a tree like ``problem.params`` with the same shapes and dtypes. With
        ``integers`` the gradient is right. With ``trees`` the second derivatives are missing, and nothing is raised.

    Raises:
        AssertionError: `mistake` is none of these.
        NameError: with ``name``.
        RuntimeError: with ``integers``, if an input holds integers.

    Source:
        Listing 2 in Algorithm 2, as printed.

    Stores:
        The values that the reverse pass through T updates reads, and also θ_i, η and the batch of every step.

    Computes:
        One call of the autograd function per leaf of θ and per step; each call computes as much as a step of `mixflow`.

    Not for:
        Anything except refuting the printed Listing 2. Use `mixflow`.
    """
    assert mistake in ("name", "trees", "integers")

    def inner(theta: Tree, eta: Tree, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = problem.inner_loss(theta, eta, {"inputs": inputs, "targets": targets})
        return loss

    eta = tree_map(lambda leaf: leaf.detach().clone().requires_grad_(), problem.params)
    theta, state = problem.init(eta)
    for x in steps(problem):
        arguments = theta, eta, x["inputs"], x["targets"]
        whole = mistake == "trees"
        grad = _listing2(inner, mistake)(*arguments) if whole else _of_leaves(inner, arguments, mistake)
        theta, state = problem.update(grad, theta, state, eta, x)
    loss = problem.outer_loss(theta, problem.y)
    flat, structure = _pytree.tree_flatten(eta)
    grads = torch.autograd.grad(loss, flat, materialize_grads=True)
    return loss.detach(), _pytree.tree_unflatten(list(grads), structure)


def _of_leaves(inner: Callable[..., torch.Tensor], arguments: tuple[Any, ...], mistake: str) -> Tree:
    """∇L by the listing, called once for each leaf of θ. The trees are flattened, so all inputs are tensors."""
    flat, structure = _pytree.tree_flatten(arguments)
    theta, shape = _pytree.tree_flatten(arguments[0])

    def by_leaf(place: int) -> torch.Tensor:
        rest = [leaf for i, leaf in enumerate(flat) if i != place]

        def of_leaf(leaf: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
            every = [*others[:place], leaf, *others[place:]]
            return inner(*_pytree.tree_unflatten(every, structure))

        found: torch.Tensor = _listing2(of_leaf, mistake)(flat[place], *rest)
        return found

    return _pytree.tree_unflatten([by_leaf(place) for place in range(len(theta))], shape)


def _listing2(inner: Callable[..., torch.Tensor], mistake: str) -> Callable[..., Any]:
    """``grad(inner)`` with respect to its first argument, as an autograd function."""

    class Gradient(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, theta: Any, *inputs: Any) -> Any:
            context.save_for_backward(theta, *inputs)
            return torch.func.grad(inner)(theta, *inputs)

        @staticmethod
        def backward(context: Any, v: Any) -> Any:
            theta, *inputs = context.saved_tensors
            differentiated = loss if mistake == "name" else inner  # type: ignore[name-defined]  # noqa: F821
            floating = [i for i, given in enumerate((theta, *inputs)) if given.is_floating_point()]
            places = tuple(range(len(inputs) + 1)) if mistake == "integers" else tuple(floating)
            by_inputs = torch.func.grad(differentiated, argnums=places)
            found = torch.func.jvp(lambda theta: by_inputs(theta, *inputs), (theta,), (v,))[1]
            return tuple(dict(zip(places, found, strict=True)).get(i) for i in range(len(inputs) + 1))

    return Gradient.apply
