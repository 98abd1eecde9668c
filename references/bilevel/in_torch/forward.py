"""Meta-gradients in PyTorch by forward mode in η: one JVP of the whole inner loop per number of η (§2.3)."""

from __future__ import annotations

import torch
from torch.utils import _pytree

from gradgate.references.bilevel.in_torch.methods import gradient, jvp, steps
from gradgate.references.bilevel.problem import BilevelProblem
from gradgate.references.contract import Tree


def forward_mode(problem: BilevelProblem) -> tuple[torch.Tensor, Tree]:
    """Loss and meta-gradient by one JVP through all inner steps per number of η; no step is stored.

    Args:
        problem: any `BilevelProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Source:
        §2.3 ("forward-mode differentiation").

    Stores:
        θ, υ and their tangents of one step, 2·(|θ| + |υ|) numbers; the activations and tangents of one gradient of L;
        and |η| numbers for the direction. Nothing grows with T.

    Computes:
        |η| + 1 runs of the T inner steps; each but the last also pushes a tangent through every step, which costs
        about two gradients of L more. So FLOPs grow like |η|·T·|θ|.

    Not for:
        More than a few numbers of η: from two numbers on, `mixflow` computes less. What is left is the memory over T.
    """
    flat, structure = _pytree.tree_flatten(problem.params)
    # PyTorch adds the missing tangent of a constant factor as a ZeroTensor, whose shape it computes in Python: 0.2 ms
    # for each product, with a tangent of zeros 0.01 ms. So the hyperparameters of the update have tangents of zeros.
    numbers = {
        name: leaf for name, leaf in problem.data.items()
        if isinstance(leaf, torch.Tensor) and not leaf.ndim and leaf.is_floating_point()
    }  # fmt: skip
    still = {name: torch.zeros_like(leaf) for name, leaf in numbers.items()}

    def run(numbers: dict[str, torch.Tensor], *leaves: torch.Tensor) -> torch.Tensor:
        known = problem._replace(data={**problem.data, **numbers})
        eta = _pytree.tree_unflatten(list(leaves), structure)
        carry = known.init(eta)
        for x in steps(known):
            carry = known.update(gradient(known.inner_loss, carry[0], eta, x), *carry, eta, x)
        loss: torch.Tensor = known.outer_loss(carry[0], known.y)
        return loss

    def by_leaf(place: int) -> torch.Tensor:
        slopes = []
        for i in range(flat[place].numel()):
            units = [torch.zeros_like(leaf).reshape(-1) for leaf in flat]
            units[place][i] = 1
            direction = tuple(unit.reshape(leaf.shape) for unit, leaf in zip(units, flat, strict=True))
            slopes.append(jvp(run, (numbers, *flat), (still, *direction))[1])
        return torch.stack(slopes).reshape(flat[place].shape) if slopes else torch.zeros_like(flat[place])

    return run(numbers, *flat), _pytree.tree_unflatten([by_leaf(place) for place in range(len(flat))], structure)
