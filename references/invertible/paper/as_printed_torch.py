"""Errata of Moonwalk in PyTorch: what the paper prints, which must be refuted."""

from __future__ import annotations

import torch

from gradgate.references.backends import leaves, tree_map
from gradgate.references.contract import Tree
from gradgate.references.invertible.in_torch.methods import jvp, random_direction
from gradgate.references.invertible.problem import InvertibleProblem


def projected_forward_printed(problem: InvertibleProblem, *, seed: int = 0) -> tuple[torch.Tensor, Tree]:
    """The projection of the gradient on one random direction of unit length, (∇J·u) u.

    E[u uᵀ] = I/P for unit length: its mean is the gradient divided by the number of parameters P.

    Args:
        problem: any InvertibleProblem.
        seed: of u, at least 0.

    Raises:
        IllegalOption: `seed` is no integer of at least 0.

    Source: §3.3, Eq. 5, "for a unit-length tangent vector". Cost: as `projected_forward`; use that one.
    """
    direction = random_direction(problem, seed)
    length = torch.sqrt(torch.stack([torch.sum(u * u) for u in leaves(direction)]).sum())
    direction = tree_map(lambda u: u / length, direction)
    loss, slope = jvp(problem.loss, (problem.params,), (direction,))
    return loss, tree_map(lambda u: slope * u, direction)
