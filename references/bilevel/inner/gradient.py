"""The gradient of the inner loss as plain evaluation of a bilevel problem takes it, in each backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradgate.references.backends import leaves, tree_map
from gradgate.references.contract import Tree

STEP = 2.0**-300
"""h of a complex step: its square is far below every roundoff, so that the quotient's only error is rounding."""


def gradient(backend: str, loss: Callable[[Tree], Any], theta: Tree) -> Tree:
    """∇ loss at theta: by reverse mode in JAX and PyTorch, by complex steps in NumPy.

    Args:
        loss: theta -> scalar; under NumPy analytic in the numbers of theta, and defined on complex ones.
        theta: tree of real arrays.

    Cost: in NumPy one evaluation in complex numbers per number in theta, in a loop.
    """
    if backend == "jax":
        import jax

        return jax.grad(loss)(theta)
    if backend == "torch":
        import torch

        return torch.func.grad(loss)(theta)
    return _complex_steps(loss, theta)


# L(θ + ih e_k) = L(θ) + ih ∂L/∂θ_k − O(h²): its imaginary part over h is the derivative, and nothing is subtracted
# (Squire & Trapp, 1998).
def _complex_steps(loss: Callable[[Tree], Any], theta: Tree) -> Tree:
    import numpy as np

    def widened(leaf: Any) -> Any:
        return np.array(leaf, dtype=np.result_type(leaf.dtype, np.complex64))

    work = tree_map(widened, theta)
    found = tree_map(lambda leaf: np.zeros_like(leaf), theta)
    for moved, slopes in zip(leaves(work), leaves(found), strict=True):
        for place in np.ndindex(moved.shape):
            moved[place] += 1j * STEP
            slopes[place] = loss(work).imag / STEP
            moved[place] = moved[place].real
    return found
