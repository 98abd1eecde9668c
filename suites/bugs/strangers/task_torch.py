"""The task that exploits are tried on, in PyTorch."""

from __future__ import annotations

from typing import Any

import torch

from gradgate import Pair, normal


def plain(x: Any, w: Any) -> Any:
    """tanh(x)·w. x: (T, H); w: (H,)."""
    return torch.tanh(x) * w


task = Pair(
    None,
    reference=plain,
    inputs={"x": normal("T H"), "w": normal("H")},
    dims={"T": (3, 1, 16), "H": (4, 1, 12)},
    dtypes=("float64", "float32"),
    name="gate",
)
