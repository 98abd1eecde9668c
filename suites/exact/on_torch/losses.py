"""Derivatives of losses whose decomposition rounds a constant, such as 2/n, to a float."""

from __future__ import annotations

from typing import Any

import numpy as np
from flint import arb

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_torch.activations import chosen
from gradgate.suites.exact.on_torch.rules import number, numbers

MEAN = 1
"""PyTorch's number for the reduction that divides by the count."""


def _apart(x: Any, y: Any) -> Any:
    return balls.whole(np.subtract(*np.broadcast_arrays(x, y)))


def _reduced(slope: Any, grad: Any, reduction: int) -> Any:
    return slope * grad / arb(slope.size) if reduction == MEAN else slope * grad


@numbers("mse_loss_backward")
def mse_loss_backward(grad: Any, x: Any, y: Any, reduction: int) -> Any:
    """The derivative of the squares."""
    return _reduced(_apart(x, y) * 2, grad, reduction)


@numbers("smooth_l1_loss_backward")
def smooth_l1_loss_backward(grad: Any, x: Any, y: Any, reduction: int, beta: float) -> Any:
    """The derivative of a loss that is quadratic for |d| < beta, and |d| less a constant above."""
    d = _apart(x, y)
    near = balls.compare("lt", balls.elementwise(abs, d), number(beta))
    return _reduced(
        chosen(near, d / number(beta), chosen(balls.compare("gt", d, arb(0)), arb(1), arb(-1))), grad, reduction
    )


@numbers("huber_loss_backward")
def huber_loss_backward(grad: Any, x: Any, y: Any, reduction: int, delta: float) -> Any:
    """The derivative of a loss that is quadratic for |d| ≤ delta, and delta·|d| less a constant above."""
    d, bound = _apart(x, y), number(delta)
    far = chosen(balls.compare("gt", d, arb(0)), bound, -bound)
    return _reduced(chosen(balls.compare("le", balls.elementwise(abs, d), bound), d, far), grad, reduction)
