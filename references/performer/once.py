"""The activation of the feed-forward network, which keeps its input for the backward pass and nothing else.

Backprop through the formula of `problem.gelu`, operation by operation, keeps seven arrays of the size of its input. The
network is expansion·d_model wide, so these arrays would be more than half of all that a layer stores.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gradgate.references.contract import Backend


def gelu_once(backend: Backend, formula: Callable[[Any, Any], Any], xp: Any, x: Any) -> Any:
    """``formula(xp, x)``, the GELU in the form with tanh, with the same derivatives of every order.

    Args:
        backend: of `xp`; JAX computes the formula again in the backward pass, PyTorch has a custom rule.
        formula: `problem.gelu`.
        xp: Array API.
        x: any shape.

    Returns:
        An array shaped like x.

    Stores:
        x, once.
    """
    if backend == "jax":
        import jax

        return jax.checkpoint(functools.partial(formula, xp))(x)
    if backend == "torch":
        from gradgate.references.performer.gelu_torch import Gelu

        return Gelu.apply(x)
    return formula(xp, x)
