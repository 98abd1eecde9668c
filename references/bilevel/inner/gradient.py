"""The gradient of the inner loss in plain evaluation of a bilevel problem, in each backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradgate.references.backends import leaves, tree_map
from gradgate.references.contract import Tree

STEP = 2.0**-300
"""The h of a complex step: its square is far below every roundoff, so the quotient has no error but rounding."""


def gradient(backend: str, loss: Callable[[Tree], Any], theta: Tree) -> Tree:
    """∇ loss at theta: by reverse mode in JAX and PyTorch, by complex steps in NumPy.

    Args:
        loss: theta -> scalar; in NumPy it must be an analytic function that takes complex numbers.
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
