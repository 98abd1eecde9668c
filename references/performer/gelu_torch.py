"""GELU in the form with tanh as one function of autograd, which composes with `torch.func`."""

from __future__ import annotations

import math
from typing import Any

import torch

ROOT, CUBIC = math.sqrt(2 / math.pi), 0.044715


class Gelu(torch.autograd.Function):
    """x/2·(1 + tanh(√(2/π)·(x + 0.044715 x³))); it keeps x. Its derivative can be differentiated again."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        """The same operations in the same order as `problem.gelu`."""
        return 0.5 * x * (1.0 + torch.tanh(ROOT * (x + CUBIC * x * x * x)))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keeps x for both modes."""
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> torch.Tensor:
        """The cotangent times the slope."""
        return cotangent * slope(_living(ctx))

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor) -> torch.Tensor:
        """The tangent times the slope."""
        return tangent * slope(_living(ctx))


def slope(x: torch.Tensor) -> torch.Tensor:
    """The derivative: with t = tanh(u), (1 + t)/2 + x/2·(1 − t²)·u'."""
    square = x * x
    t = torch.tanh(ROOT * (x + CUBIC * square * x))
    inner = ROOT * (1.0 + CUBIC * (3.0 * square))  # 3 · CUBIC is no float
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner


def _living(ctx: Any) -> torch.Tensor:
    """The saved x, as the transforms that are still running see it.

    A VJP may be called after the level that recorded it has been left. What was saved there is then a dead wrapper. An
    operation unwraps it, but a further transform does not; so one operation is applied here, which copies nothing.
    """
    (x,) = ctx.saved_tensors
    found: torch.Tensor = x.view_as(x)
    return found
