"""The step of Moonwalk's second phase, with the vector-inverse-Jacobian product in closed form or by a general way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradgate.references.contract import IllegalOption, Tree
from gradgate.references.invertible.layer import Step, Vjp
from gradgate.references.invertible.layers import vijp_by_solve, vijp_of_inverse

WAYS = ("closed", "inverse", "solve")
Advance = Callable[[Any, Tree, Any, Any, Tree], Step]
"""(layer, its parameters, x_{i−1}, h_{i−1}, what phase 1 handed over or None) -> (x_i, h_i, g_i)."""


def advance_by(way: Any, vjp: Vjp, vmap: Callable[..., Any] | None = None) -> Advance:
    """One layer's step, with vijp computed in one of WAYS.

    Raises:
        IllegalOption: `way` is none of them.
    """
    if way not in WAYS:
        raise IllegalOption(f"vijp must be {', '.join(WAYS[:-1])} or {WAYS[-1]}, not {way!r}")
    if way == "closed":
        return lambda layer, p, x, h, handed: layer.advance(vjp, p, x, h, handed)

    def general(layer: Any, p: Tree, x: Any, h: Any, handed: Tree) -> Step:
        h = vijp_of_inverse(vjp, layer, p, x, h) if way == "inverse" else vijp_by_solve(vmap, vjp, layer, p, x, h)  # type: ignore[arg-type]
        y, pull = vjp(lambda p: layer(p, x), p)
        return y, h, pull(h)[0]

    return general
