"""What the cases of rules share: kinds of inputs, and small functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

A = torch.ops.aten
F = torch.nn.functional
INDEX = torch.tensor([[0, 2, 1], [2, 1, 0]])
MASK = torch.tensor([[True, False, True], [False, True, True]])


def r(*shape: int) -> tuple[str, tuple[int, ...]]:
    """Any numbers."""
    return "any", shape


def p(*shape: int) -> tuple[str, tuple[int, ...]]:
    """Numbers from 0.3 to 1.3."""
    return "positive", shape


def u(*shape: int) -> tuple[str, tuple[int, ...]]:
    """Numbers from −0.8 to 0.8."""
    return "unit", shape


def made(specs: Any, seed: int = 5) -> list[Any]:
    generator = np.random.default_rng(seed)
    draw: dict[str, Callable[[Any], Any]] = {
        "any": generator.standard_normal,
        "positive": lambda shape: 0.3 + generator.random(shape),
        "unit": lambda shape: 1.6 * generator.random(shape) - 0.8,
    }
    return [torch.from_numpy(np.asarray(draw[kind](shape))) for kind, shape in specs]


def symmetric(x: Any) -> Any:
    return x @ x.mT + 3 * torch.eye(x.shape[-1], dtype=x.dtype)


def parts(z: Any) -> Any:
    return torch.view_as_real(z)


def dropped(x: Any) -> Any:
    torch.manual_seed(3)
    return A.native_dropout(x, 0.25, True)[0]
