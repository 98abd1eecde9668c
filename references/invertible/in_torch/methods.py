"""Gradients of chains of invertible layers in PyTorch: backprop, forward mode, reversing backprop, and Moonwalk.

In the code, x_i is ``x``, h_i = ∂J/∂x_i is ``h``, g_i = ∂J/∂θ_i is ``dp``. Every method is written with `torch.func`,
so that `torch.func.vmap` over the parameters and a further derivative work.

In the sections Stores and Computes, a number is one array element of the problem's dtype, and L is the number of
layers, n the numbers of one sample, d the parameters of one layer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from gradgate.references.backends import leaves, tree_map
from gradgate.references.contract import Tree, check_integer
from gradgate.references.invertible.chain import retreats
from gradgate.references.invertible.in_torch.phases import (
    components,
    gathered,
    input_gradient_forward,
    input_gradient_reverse,
    links,
    stacked,
    walk,
)
from gradgate.references.invertible.inverse_products import advance_by
from gradgate.references.invertible.problem import InvertibleProblem

vjp: Callable[..., Any] = torch.func.vjp  # their annotations allow for a third value, which is not used here
jvp: Callable[..., Any] = torch.func.jvp


def backprop(problem: InvertibleProblem) -> tuple[torch.Tensor, Tree]:
    """Loss and gradient by reverse-mode differentiation of the whole loss.

    Args:
        problem: any `InvertibleProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.
            Nothing is inverted.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        UsageError: a parameter or the input has another shape than the Spec gives.

    Source:
        The baseline of the paper, §3.1.

    Stores:
        Mx + Mθ numbers per layer: what its VJPs by x and by θ need. The sum grows linearly with L.

    Computes:
        One evaluation and one VJP of every layer and of the head. FLOPs grow linearly with L and with d.

    Not for:
        Chains whose activations do not fit in memory. Use `reversible` or `moonwalk_mixed`.
    """
    problem.check_shapes()
    grads, loss = torch.func.grad_and_value(problem.loss)(problem.params)
    return loss, grads


def forward(problem: InvertibleProblem, *, tangents: int = 1) -> tuple[torch.Tensor, Tree]:
    """Loss and exact gradient by one JVP per parameter.

    Args:
        problem: any `InvertibleProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.
            Nothing is inverted.
        tangents: how many JVPs are pushed forward together, an integer of at least 1.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        IllegalOption: `tangents` is not an integer of at least 1.
        UsageError: a parameter or the input has another shape than the Spec gives.

    Source:
        §3.2.

    Stores:
        The activations of one layer and `tangents` tangents of them, and `tangents`·P numbers for the directions, P
        being the number of parameters.

    Computes:
        P JVPs and ⌈P/`tangents`⌉ + 1 evaluations of every layer and of the head. P grows like d·L, so FLOPs grow like
        L² and like d².

    Not for:
        More than a few thousand parameters. Use `moonwalk` where reverse mode is not possible.
    """
    tangents = check_integer("tangents", tangents, 1)
    problem.check_shapes()
    flat = torch.cat([leaf.reshape(-1) for leaf in leaves(problem.params)])

    def loss(theta: torch.Tensor) -> torch.Tensor:
        return problem.loss(_like(theta, problem.params))

    found = components(loss, flat, flat.numel(), tangents, lambda unit: unit)
    return problem.loss(problem.params), _like(found, problem.params)


def projected_forward(problem: InvertibleProblem, *, seed: int = 0) -> tuple[torch.Tensor, Tree]:
    """The loss, and an unbiased random estimate of the gradient from a single JVP: (∇J·u) u, u standard normal.

    E[u uᵀ] = I makes the estimate unbiased. Its mean squared error is (P + 1)·‖∇J‖², where P is the number of
    parameters.

    Args:
        problem: any `InvertibleProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.
            Nothing is inverted.
        seed: seeds u: an integer of at least 0.

    Returns:
        The loss, a scalar, and the estimate, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        IllegalOption: `seed` is not an integer of at least 0.
        UsageError: a parameter or the input has another shape than the Spec gives.

    Source:
        §3.3, Eq. 5, with a normal u in place of the printed one of unit length.

    Stores:
        The activations and tangents of one layer, and u, P numbers for P parameters.

    Computes:
        One evaluation and one JVP of every layer and of the head. FLOPs grow linearly with L.

    Not for:
        Optimisers that cannot stand an error of that size, about √P times the gradient itself.
    """
    direction = random_direction(problem, seed)
    loss, slope = jvp(problem.loss, (problem.params,), (direction,))
    return loss, tree_map(lambda u: slope * u, direction)


def random_direction(problem: InvertibleProblem, seed: int) -> Tree:
    """Standard normal numbers, a tree like ``problem.params`` with the same shapes, dtypes and devices.

    PyTorch's global generator is left alone.

    Args:
        problem: any InvertibleProblem.
        seed: an integer of at least 0.

    Returns:
        u.

    Raises:
        IllegalOption: `seed` is not an integer of at least 0.
        UsageError: a parameter or the input has another shape than the Spec gives.
    """
    rng = np.random.default_rng(check_integer("seed", seed, 0))  # torch.func.vmap forbids PyTorch's own
    problem.check_shapes()
    return tree_map(
        lambda leaf: torch.from_numpy(rng.standard_normal(leaf.shape)).to(leaf.device, leaf.dtype), problem.params
    )


def reversible(problem: InvertibleProblem) -> tuple[torch.Tensor, Tree]:
    """Loss and gradient by backprop that rebuilds each layer's input from its output by the inverse.

    Args:
        problem: any `InvertibleProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.
            Every layer must have an inverse.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        NotInvertible: a layer has no inverse; the message names it.
        UsageError: a parameter or the input has another shape than the Spec gives.

    Source:
        RevBackprop in the paper (Gomez et al., 2017; MacKay et al., 2018).

    Stores:
        Mx + Mθ numbers of one layer, whatever L is. Besides these it holds the gradient, P numbers.

    Computes:
        One evaluation of every layer forward; going back, one inverse and one VJP of every layer, and the VJP evaluates
        the layer again. An additive coupling needs no second evaluation, and ψ no VJP but a second inverse. FLOPs grow
        linearly with L.

    Not for:
        Layers with an ill-conditioned inverse, such as tanh near saturation: the digits it loses are lost to all layers
        below. Use `moonwalk_mixed`.
    """
    problem.check_shapes()
    params = problem.params
    x = problem.body(params, problem.x)
    (d_head, h), loss = torch.func.grad_and_value(problem.head_loss, argnums=(0, 1))(params["head"], x)
    parts = [dp for _, dp in retreats(vjp, links(problem), x, h)]
    return loss, stacked(problem, reversed(parts), d_head)


def moonwalk(problem: InvertibleProblem, *, tangents: int = 1) -> tuple[torch.Tensor, Tree]:
    """Loss and exact gradient without reverse mode through more than one layer: h_0 by JVPs, then `walk`.

    Without batch norm, one JVP gives the same component of h_0 for every sample of the batch, so n JVPs are enough.
    With batch norm, the samples depend on each other, and each of the batch·n numbers takes a JVP.

    Args:
        problem: any `InvertibleProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.
        tangents: how many JVPs are pushed forward together, an integer of at least 1.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        IllegalOption: `tangents` is not an integer of at least 1.
        UsageError: a parameter or the input has another shape than the Spec gives.

    Source:
        Algorithm 1, §4.1.

    Stores:
        The activations of one layer and `tangents` tangents of them, and h_0, batch·n numbers, whatever L is. Besides
        these it holds the gradient, P numbers.

    Computes:
        n JVPs and ⌈n/`tangents`⌉ evaluations of every layer (with batch norm batch·n JVPs), then one evaluation and one
        VJP of every layer in `walk`, where ψ takes a second evaluation in place of the VJP. FLOPs grow linearly with L,
        and like n³ at most.

    Not for:
        Large inputs: the number of JVPs is n. Use `moonwalk_mixed`.
    """
    tangents = check_integer("tangents", tangents, 1)
    problem.check_shapes()
    return gathered(problem, walk(problem, input_gradient_forward(problem, tangents)))


def moonwalk_mixed(problem: InvertibleProblem, *, vijp: str = "closed") -> tuple[torch.Tensor, Tree]:
    """Loss and exact gradient: h_0 by reverse mode with the parameters held constant, then `walk`.

    Where a tanh is so flat that its derivative is below 2^-12, or 0, dividing by it would lose 12 bits, or all.
    There phase 1 hands its own h_i over to `walk`, with ``closed`` only.

    Args:
        problem: any `InvertibleProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.
        vijp: how h_i is found from h_{i−1}: ``closed``, by each layer's own formula; ``inverse``, as the VJP of its
            inverse; ``solve``, from its whole Jacobian by a linear solve. The last two are for checks.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        IllegalOption: `vijp` is none of these.
        NotInvertible: `vijp` is ``inverse`` and a layer has no inverse; the message names it.
        UsageError: a parameter or the input has another shape than the Spec gives.

    Source:
        Algorithm 1, §4.2.

    Stores:
        Mx numbers per layer: what its VJP by x needs. The sum grows linearly with L. Then Mθ numbers of one layer. For
        a convolution with ReLU and batch norm, Mx is one number per output: the ReLU's output, which shows its mask.

    Computes:
        Two evaluations and two VJPs of every layer: one of each in phase 1, by x alone, and one of each in `walk`,
        where ψ takes a second evaluation in place of the VJP. ``inverse`` adds an inverse and its VJP per layer,
        ``solve`` a VJP per number that a layer puts out. FLOPs grow linearly with L.

    Not for:
        Chains whose Jacobian is nearly singular: h_0 then holds too few digits of h_L. Use `backprop`.
    """
    advance = advance_by(vijp, torch.func.vjp, torch.func.vmap)
    problem.check_shapes()
    h, handed = input_gradient_reverse(problem)
    return gathered(problem, walk(problem, h, advance, handed))


def _like(flat: torch.Tensor, tree: Tree) -> Tree:
    """The leaves of `tree`, in order of their names, cut from a vector."""
    pieces = iter(torch.split(flat, [leaf.numel() for leaf in leaves(tree)]))

    def filled(part: Tree) -> Tree:
        return {
            key: filled(part[key]) if isinstance(part[key], dict) else next(pieces).reshape(part[key].shape)
            for key in sorted(part)
        }

    return filled(tree)
