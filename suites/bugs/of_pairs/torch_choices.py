"""The functions of `choices` as pairs of PyTorch, and two that decide in Python: by `if`, and in a loop."""

from __future__ import annotations

from typing import Any

import torch

from gradgate import Pair, normal
from gradgate.suites.bugs.of_pairs import choices


def rescaled(x: Any) -> Any:
    """The numbers scaled to a norm of 3 if theirs is larger, by Python's `if`."""
    size = (x * x).sum().sqrt()
    if size > 3:
        return 3 * x / size
    return x * 1


def plain_rescaled(x: Any) -> Any:
    """The numbers scaled to a norm of 3 if theirs is larger."""
    size = (x * x).sum().sqrt()
    return torch.where(size > 3, 3 * x / size, x)


def leaky_sum(x: Any) -> Any:
    """The state h = clip(0.7·h + x) after all rows of x."""
    h = torch.zeros_like(x[0])
    for row in x:
        h = torch.clamp(0.7 * h + row, -1.5, 1.5)
    return h


def plain_leaky_sum(x: Any) -> Any:
    """The state h = clip(0.7·h + x) after all rows of x."""
    h = torch.zeros_like(x[0])
    for row in x:
        h = 0.7 * h + row
        h = (abs(h + 1.5) - abs(h - 1.5)) / 2
    return h


globals().update(choices.pairs("torch"))
branching = Pair(rescaled, plain_rescaled, inputs={"x": normal("T H")}, dims={"T": (2, 1, 3), "H": (3, 1, 4)})
looping = Pair(leaky_sum, plain_leaky_sum, inputs={"x": normal("T H")}, dims={"T": (3, 1, 5), "H": (2, 1)})
