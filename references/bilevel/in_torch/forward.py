"""Meta-gradients in PyTorch by forward mode in η: one JVP of the whole inner loop per number of η (§2.3)."""

from __future__ import annotations

import torch
from torch.utils import _pytree

from gradgate.references.bilevel.in_torch.methods import gradient, jvp, steps
from gradgate.references.bilevel.problem import BilevelProblem
from gradgate.references.contract import Tree
from gradgate.references.errors import check_integer


def forward_mode(problem: BilevelProblem, *, tangents: int = 1) -> tuple[torch.Tensor, Tree]:
    """Loss and meta-gradient by one JVP through all inner steps per number of η; no step is stored.

    Args:
        problem: any `BilevelProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.
        tangents: how many JVPs are pushed forward together, an integer of at least 1.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        IllegalOption: `tangents` is not an integer of at least 1.

    Source:
        §2.3 ("forward-mode differentiation").

    Stores:
        θ, υ and `tangents` tangents of them of one step, (1 + `tangents`)·(|θ| + |υ|) numbers; the activations of one
        gradient of L and as many tangents of them; and `tangents`·|η| numbers for the directions. Nothing grows with T.

    Computes:
        |η| JVPs of the T inner steps, which cost about two gradients of L a step, and ⌈|η|/`tangents`⌉ + 1 runs of
        them. So FLOPs grow like |η|·T·|θ|.

    Not for:
        More than a few numbers of η: from two numbers on, `mixflow` computes less. What is left is the memory over T.
    """
    tangents = check_integer("tangents", tangents, 1)
    flat, structure = _pytree.tree_flatten(problem.params)
    # PyTorch adds the missing tangent of a constant factor as a ZeroTensor, whose shape it computes in Python: 0.2 ms
    # for each product, with a tangent of zeros 0.01 ms. So the hyperparameters of the update have tangents of zeros.
    numbers = {
        name: leaf
        for name, leaf in problem.data.items()
        if isinstance(leaf, torch.Tensor) and not leaf.ndim and leaf.is_floating_point()
    }
    still = {name: torch.zeros_like(leaf) for name, leaf in numbers.items()}

    def run(numbers: dict[str, torch.Tensor], *leaves: torch.Tensor) -> torch.Tensor:
        known = problem._replace(data={**problem.data, **numbers})
        eta = _pytree.tree_unflatten(list(leaves), structure)
        carry = known.init(eta)
        for x in steps(known):
            carry = known.update(gradient(known.inner_loss, carry[0], eta, x), *carry, eta, x)
        loss: torch.Tensor = known.outer_loss(carry[0], known.y)
        return loss

    def whole(row: torch.Tensor) -> list[torch.Tensor]:
        """The leaves of a tree like η, of all its numbers in a row."""
        return [part.reshape(leaf.shape) for part, leaf in zip(row.split(sizes), flat, strict=True)]

    def slope(unit: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = jvp(run, (numbers, *flat), (still, *whole(unit)))[1]
        return found

    sizes = [leaf.numel() for leaf in flat]
    slopes = []
    for chosen in torch.arange(sum(sizes), device=flat[0].device).split(tangents):
        units = flat[0].new_zeros(len(chosen), sum(sizes))
        units[range(len(chosen)), chosen] = 1
        slopes.append(torch.func.vmap(slope)(units) if len(chosen) > 1 else slope(units[0])[None])
    return run(numbers, *flat), _pytree.tree_unflatten(whole(torch.cat(slopes)), structure)
