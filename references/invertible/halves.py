"""A coupling's formulas between halves, written once for the Spec's couplings and for a user's own functions.

One half is moved by a function of the other: y2 = x2·e^s(x1) + t(x1), and x1 stays. An additive coupling has no s.

∂y/∂x = (identity, 0; F', e^s), where F' is the derivative of y2 by x1. So h_x2 = h_y2·e^s and h_x1 = h_y1 + F'ᵀ h_y2.
Read the other way, h_y2 = h_x2·e^−s and h_y1 = h_x1 − F'ᵀ h_y2: no solve is needed. F'ᵀ h_y2 is the VJP of (t, s) for
the cotangents h_y2 and h_y2·x2·e^s. The same VJP gives the gradient, so each step runs the function once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradgate.references.contract import Tree

Functions = Callable[[Tree, Any], tuple[Any, ...]]
"""(parameters, x1) -> (t,) of an additive coupling, (t, s) of an affine one; both have the shape of x2."""
Found = tuple[Any, Any, Any, Tree]
"""The moved half, the cotangents of the half that stays and of the moved one, and the gradient."""


def moved(xp: Any, found: tuple[Any, ...], x2: Any) -> Any:
    """x2 -> y2."""
    shift, *scale = found
    return (x2 * xp.exp(scale[0]) if scale else x2) + shift


def restored(xp: Any, found: tuple[Any, ...], y2: Any) -> Any:
    """y2 -> x2."""
    shift, *scale = found
    return (y2 - shift) * xp.exp(-scale[0]) if scale else y2 - shift


def advance(
    xp: Any, vjp: Callable[..., Any], functions: Functions, p: Tree, x1: Any, x2: Any, h1: Any, h2: Any
) -> Found:
    """Moonwalk's step: x and the cotangent of x -> y2, the cotangents of y, and the gradient."""
    found, pull = vjp(functions, p, x1)
    shares: tuple[Any, ...] = (h2,)
    if len(found) > 1:
        shares = (h2 * xp.exp(-found[1]), h2 * x2)
        h2 = shares[0]
    dp, d1 = pull(shares)
    return moved(xp, found, x2), h1 - d1, h2, dp


def retreat(
    xp: Any, vjp: Callable[..., Any], functions: Functions, p: Tree, x1: Any, y2: Any, h1: Any, h2: Any
) -> Found:
    """The step of reversing: y and the cotangent of y -> x2, the cotangents of x, and the gradient."""
    found, pull = vjp(functions, p, x1)
    shares: tuple[Any, ...] = (h2,)
    if len(found) > 1:
        shares = (h2, h2 * (y2 - found[0]))
        h2 = h2 * xp.exp(found[1])
    dp, d1 = pull(shares)
    return restored(xp, found, y2), h1 + d1, h2, dp
