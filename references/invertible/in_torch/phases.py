"""The two phases of Moonwalk in PyTorch: the input's gradient h_0, and the walk from it forward through the chain.

In the code, x_i is ``x``, h_i = ∂J/∂x_i is ``h``, g_i = ∂J/∂θ_i is ``dp``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from gradgate.references.backends import tree_map
from gradgate.references.contract import Tree
from gradgate.references.invertible.chain import Link, advances, pulled, pushed
from gradgate.references.invertible.inverse_products import Advance, advance_by
from gradgate.references.invertible.problem import InvertibleProblem

with warnings.catch_warnings():  # PyTorch's first JVP loads rules that PyTorch itself calls deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    torch.func.jvp(torch.tanh, (torch.zeros(()),), (torch.ones(()),))

vjp: Callable[..., Any] = torch.func.vjp  # its annotations allow for a third value, which is not used here
CLOSED = advance_by("closed", torch.func.vjp)
Slope = Callable[[Callable[[torch.Tensor], torch.Tensor], torch.Tensor, torch.Tensor], torch.Tensor]
"""(function, x, direction) -> the JVP of the function at x along the direction."""


def input_gradient_reverse(problem: InvertibleProblem) -> tuple[torch.Tensor, dict[str, Tree]]:
    """h_0 by a backward pass by x alone, and what phase 1 hands over to phase 2.

    Each layer keeps what its own `pull_x` needs and no more. Autograd would keep the input of every convolution (which
    a VJP by x does not need), the ReLU's output, and what batch norm computes on its way. A reader's own layers, whose
    `pull_x` is not known, go through autograd.

    Args:
        problem: any InvertibleProblem.

    Returns:
        h_0, with the shape and dtype of ``problem.x``, and by the layer's name what its `advance` takes as ``handed``.

    Source:
        Algorithm 1, phase 1, §4.2.

    Stores:
        Mx numbers per layer. What is handed over takes their place.

    Computes:
        One evaluation and one VJP of every layer and of the head.
    """
    params, x = problem.params, problem.x
    if not problem.by_hand:
        h = torch.func.grad(lambda x: problem.head_loss(params["head"], problem.body(params, x)))(x)
        return h, {}
    chain = links(problem)
    x, kept = pushed(vjp, chain, x)
    h = torch.func.grad(lambda x: problem.head_loss(params["head"], x))(x)
    del x
    return pulled(chain, kept, h)


def links(problem: InvertibleProblem) -> list[Link]:
    """The problem's chain, by the names of its layers."""
    return [(layer.name, layer, p) for layer, p in problem.chain(problem.params)]


def input_gradient_forward(problem: InvertibleProblem, tangents: int) -> torch.Tensor:
    """h_0 by one JVP per number of a sample, or per number of the batch where batch norm joins the samples.

    Args:
        problem: any InvertibleProblem.
        tangents: how many JVPs are pushed forward together, at least 1.

    Returns:
        h_0, with the shape and dtype of ``problem.x``.

    Source:
        Algorithm 1, phase 1, §4.1.

    Stores:
        The activations of one layer, and `tangents` tangents of them.

    Computes:
        n JVPs of every layer and of the head; batch·n with batch norm.
    """
    x, params, coupled = problem.x, problem.params, problem.spec.coupled
    shape = x.shape if coupled else x.shape[1:]

    def losses(x: torch.Tensor) -> torch.Tensor:
        found = problem.head_losses(params["head"], problem.body(params, x))
        return found.sum() if coupled else found

    found = components(losses, x, shape.numel(), tangents, lambda unit: unit.reshape(shape).expand(x.shape))
    return (found if coupled else found.T).reshape(x.shape)


def walk(
    problem: InvertibleProblem, h: torch.Tensor, advance: Advance = CLOSED, handed: dict[str, Tree] | None = None
) -> Iterator[tuple[str, Tree]]:
    """Phase 2: from h_0 forward through the chain; each layer's gradient is yielded as soon as it exists.

    An optimiser that applies and drops each gradient never has more than one layer's in memory. It may overwrite the
    layer's parameters at once, and keep its own state, such as Adam's moments, by the layer's name: nothing here reads
    that layer's parameters again.

    Args:
        problem: any InvertibleProblem.
        h: h_0, like ``problem.x``.
        advance: one layer's step.
        handed: by the layer's name, what phase 1 handed over; None: nothing.

    Yields:
        (name, gradient) of every layer in order, such as ``block0[1].0_additive``; then (``head``, (loss, gradient)).

    Source:
        Algorithm 1.

    Stores:
        x_i and h_i, and Mθ numbers of one layer.

    Computes:
        One evaluation and one VJP of every layer (of ψ, two evaluations and no VJP).
    """
    x, _ = yield from advances(advance, links(problem), problem.x, h, handed)
    d_head, loss = torch.func.grad_and_value(problem.head_loss)(problem.params["head"], x)
    yield "head", (loss, d_head)


def gathered(problem: InvertibleProblem, handed_out: Iterator[tuple[str, Tree]]) -> tuple[torch.Tensor, Tree]:
    """All that `walk` yields for the problem, as the loss and a gradient like ``problem.params``."""
    *parts, (loss, d_head) = [part for _, part in handed_out]
    return loss, stacked(problem, iter(parts), d_head)


def stacked(problem: InvertibleProblem, parts: Iterator[Tree], d_head: Tree) -> Tree:
    """Gradients layer by layer, in order -> the tree of the parameters."""
    grads: dict[str, Any] = {}
    for block in problem.blocks:
        units = [{key: next(parts) for key in block.unit} for _ in range(problem.spec.layers)]
        grads[block.key] = tree_map(lambda *items: torch.stack(items), *units)
        grads |= {key: next(parts) for key in block.after}
    return {**grads, "head": d_head}


def components(
    function: Callable[[torch.Tensor], torch.Tensor],
    at: torch.Tensor,
    size: int,
    tangents: int,
    direction: Callable[[torch.Tensor], torch.Tensor],
    slope: Slope | None = None,
) -> torch.Tensor:
    """JVPs of `function` along the directions of the `size` unit vectors, stacked on axis 0.

    `tangents` of them are pushed forward together by `torch.func.vmap`; with `slope`, which computes one JVP, they are
    pushed one by one.
    """

    def derivative(number: torch.Tensor) -> torch.Tensor:
        unit = (torch.arange(size) == number).to(at.dtype)
        along = direction(unit.to(at.device))
        found: torch.Tensor = slope(function, at, along) if slope else torch.func.jvp(function, (at,), (along,))[1]
        return found

    found = []
    for first in range(0, size, tangents):
        numbers = torch.arange(first, min(first + tangents, size))
        found.append(torch.stack([*map(derivative, numbers)]) if slope else torch.func.vmap(derivative)(numbers))
    return torch.cat(found)
