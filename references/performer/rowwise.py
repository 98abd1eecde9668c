"""Maps of the Performer that look at one row alone: the sinusoids of a position, and σ."""

from __future__ import annotations

import math
from typing import Any


def sinusoids(xp: Any, start: Any, count: int, width: int, dtype: Any) -> Any:
    """Positions start+1 … start+count -> (count, width): sin and cos alternate, as in Vaswani et al. (2017)."""
    wide = xp.float32 if str(dtype).endswith("bfloat16") else dtype  # bfloat16 cannot count beyond 256
    unit = xp.arange(width, dtype=wide)
    parity = unit - 2 * xp.floor(unit / 2)
    frequency = xp.exp((unit - parity) * (-math.log(1e4) / width))
    position = xp.astype(start + 1 + xp.arange(count, dtype=xp.int32), wide)
    return xp.astype(xp.sin(position[:, None] * frequency + parity * (math.pi / 2)), dtype)


def sigmoid(xp: Any, x: Any) -> Any:
    """σ(x) in a form that does not overflow."""
    return 0.5 * (xp.tanh(0.5 * x) + 1.0)
