"""Errata of Moonwalk in PyTorch: what the paper prints, which must be refuted."""

from __future__ import annotations

import torch

from gradgate.references.backends import leaves, tree_map
from gradgate.references.contract import Tree
from gradgate.references.invertible.in_torch.methods import jvp, random_direction
from gradgate.references.invertible.problem import InvertibleProblem


def projected_forward_printed(problem: InvertibleProblem, *, seed: int = 0) -> tuple[torch.Tensor, Tree]:
    """The loss, and the projection of the gradient on one random direction u of unit length: (∇J·u) u.

    E[u uᵀ] = I/P for unit length: the mean of the estimate is the gradient divided by the number of parameters P.

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
        §3.3, Eq. 5, as printed: "for a unit-length tangent vector".

    Stores:
        The activations and tangents of one layer, and u, P numbers for P parameters.

    Computes:
        One evaluation and one JVP of every layer and of the head. FLOPs grow linearly with L.

    Not for:
        Any use but refuting Eq. 5. Use `projected_forward`.
    """
    direction = random_direction(problem, seed)
    length = torch.sqrt(torch.stack([torch.sum(u * u) for u in leaves(direction)]).sum())
    direction = tree_map(lambda u: u / length, direction)
    loss, slope = jvp(problem.loss, (problem.params,), (direction,))
    return loss, tree_map(lambda u: slope * u, direction)
