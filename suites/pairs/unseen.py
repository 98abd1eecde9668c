"""Inputs that take sides of decisions which no draw has taken: changes of what is drawn, each the name of a regime.

Only inputs drawn as `normal` are changed, because every number is possible there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

PREFIX = "unseen: "
"""What the names of these regimes begin with; no regime of a pair's own has such a name."""
CHANGES: dict[str, Callable[[Any], Any]] = {
    **{f"times {scale:g}": functools.partial(np.multiply, scale) for scale in (30.0, 1e3, 1e8, 1e-3, 1e-8)},
    "zeros": lambda x: 0 * x,
    "not negative": lambda x: np.maximum(x, 0),
    "negative": lambda x: -abs(x),
    "equal": lambda x: 0 * x + x.ravel()[:1].sum(),
    "sorted": lambda x: np.sort(x, axis=None).reshape(x.shape),
}
"""Name -> function of a drawn array."""


def names(pair: Any) -> Iterator[str]:
    """The regimes of a pair: each change of all its normal inputs, and of each alone if there are several."""
    leaves = [path for path, draw in pair.leaves.items() if draw.kind == "normal"]
    for change in CHANGES if leaves else ():
        yield f"{PREFIX}{change}"
        yield from (f"{PREFIX}{change} in {path}" for path in leaves if len(leaves) > 1)


def changed(pair: Any, regime: str, arrays: dict[str, Any]) -> dict[str, Any]:
    """Path -> array, changed as the regime's name says."""
    change, _, only = regime.removeprefix(PREFIX).partition(" in ")
    return {
        path: CHANGES[change](leaf) if pair.leaves[path].kind == "normal" and only in ("", path) else leaf
        for path, leaf in arrays.items()
    }
