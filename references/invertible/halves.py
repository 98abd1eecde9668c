"""A coupling's formulas between halves, written once for the Spec's couplings and for a user's own functions.

One half is moved by a function of the other: y2 = x2·e^s(x1) + t(x1), and x1 stays. An additive coupling has no s.

∂y/∂x = (identity, 0; F', e^s), where F' is the derivative of y2 by x1. So h_x2 = h_y2·e^s and h_x1 = h_y1 + F'ᵀ h_y2.
Read the other way, h_y2 = h_x2·e^−s and h_y1 = h_x1 − F'ᵀ h_y2: no solve is needed. F'ᵀ h_y2 is the VJP of (t, s) for
the cotangents h_y2 and h_y2·x2·e^s. The same VJP gives the gradient, so each step runs the function once.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gradgate.references.contract import Tree, UsageError

Functions = Callable[[Tree, Any], tuple[Any, ...]]
"""(parameters, x1) -> (t,) of an additive coupling, (t, s) of an affine one; both have the shape of x2."""
Found = tuple[Any, Any, Any, Tree]
"""The moved half, the cotangents of the half that stays and of the moved one, and the gradient."""


ROLES = {"F": ("second", "first"), "G": ("first", "second")}
"""A coupling's function -> the half that it reads, and the half that it moves."""


def check_shape(found: Any, like: Sequence[int], axis: int, affine: bool, name: str) -> None:
    """Check what a coupling's function returned.

    Args:
        found: what it returned.
        like: the shape of the half that it moves.
        axis: the one that is split.
        affine: whether it returns a shift and a log-scale.
        name: ``F`` or ``G``, and perhaps of which layer.

    Raises:
        UsageError: it is no array of the right shape; says which function, which shape, and which is wanted.
    """
    wanted = list(like)
    wanted[axis] *= 1 + affine
    got = getattr(found, "shape", None)
    if got is None or tuple(got) != tuple(wanted):
        told = f"a {type(found).__name__}" if got is None else f"shape {tuple(got)}"
        parts = f", the shift t and then the log-scale s' along axis {axis}" if affine else ""
        reads, moves = ROLES[name[0]]
        raise UsageError(
            f"{name} returned {told}; legal: shape {tuple(wanted)}{parts}, because {name[0]} reads the {reads} half "
            f"and moves the {moves} one, which has shape {tuple(like)}"
        )


@contextlib.contextmanager
def of_half(name: str, half: Sequence[int], whole: Sequence[int], axis: int) -> Iterator[None]:
    """Adds to an exception which function of a coupling raises it, and what that function was given."""
    try:
        yield
    except Exception as error:
        error.add_note(
            f"raised by {name}, which was given the {ROLES[name[0]][0]} half, of shape {tuple(half)}, of an input of "
            f"shape {tuple(whole)} that is split along axis {axis}"
        )
        raise


def moved(xp: Any, found: tuple[Any, ...], x2: Any) -> Any:
    """x2 -> y2."""
    shift, *scale = found
    return (x2 * xp.exp(scale[0]) if scale else x2) + shift


def log_scale(found: tuple[Any, ...], x2: Any) -> Any:
    """log |det ∂y2/∂x2| of every sample along axis 0: the sum of its s; zeros of an additive coupling."""
    _, *scale = found
    each = (scale[0] if scale else x2).reshape(x2.shape[0], -1)
    return (each if scale else each[:, :0]).sum(1)


def check_samples(dim: int, shape: Sequence[int], name: str) -> None:
    """Raise UsageError if a coupling splits the axis of the samples, so that no sample has a determinant."""
    if dim in (0, -len(shape)):
        raise UsageError(f"{name} splits axis 0, and a log-determinant is of each entry of axis 0; split another axis")


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
    x2, h2, pull = opened(xp, vjp, functions, p, x1, y2, h2)
    dp, d1 = pull()
    return x2, h1 + d1, h2, dp


def opened(
    xp: Any, vjp: Callable[..., Any], functions: Functions, p: Tree, x1: Any, y2: Any, h2: Any
) -> tuple[Any, Any, Callable[[], tuple[Tree, Any]]]:
    """The first part of `retreat`, after which y2 is not needed: x2, the cotangent of x2, and the rest.

    The rest is a function that returns the gradient, and what is added to the cotangent of x1.
    """
    found, pull = vjp(functions, p, x1)
    shares: tuple[Any, ...] = (h2,)
    if len(found) > 1:
        shares = (h2, h2 * (y2 - found[0]))
        h2 = h2 * xp.exp(found[1])
    return restored(xp, found, y2), h2, functools.partial(pull, shares)
