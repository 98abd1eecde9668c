"""The loops through a chain of layers: Moonwalk's phases and reversing. One implementation serves every chain.

A chain is an iterable of (key, layer, parameters) in order. It is a Spec's chain, one unit of its stacked blocks within
`jax.lax.scan`, or a list of a user's own layers.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any

from gradgate.references.contract import Tree
from gradgate.references.invertible.inverse_products import Advance
from gradgate.references.invertible.layer import Chained, Vjp

Link = tuple[Any, Chained, Tree]
"""A key, a layer and its parameters."""
Walk = Generator[tuple[Any, Tree], None, tuple[Any, Any]]
"""Yields (key, gradient) of one layer after the other, and returns the last x and h."""


def pushed(vjp: Vjp, chain: Iterable[Link], x: Any) -> tuple[Any, dict[Any, Tree]]:
    """x_0 -> x_L, and by key what each layer's `pull_x` needs."""
    kept = {}
    for key, layer, p in chain:
        x, kept[key] = layer.push(vjp, p, x)
    return x, kept


def pulled(chain: Sequence[Link], kept: dict[Any, Tree], h: Any) -> tuple[Any, dict[Any, Tree]]:
    """h_L -> h_0, and by key what phase 1 hands over to phase 2, which takes the place of what was kept."""
    handed = {}
    for key, layer, p in reversed(chain):
        needed = kept.pop(key)
        handed[key] = layer.handed(needed, h)
        h = layer.pull_x(p, needed, h)
        del needed
    return h, handed


def advances(advance: Advance, chain: Iterable[Link], x: Any, h: Any, handed: Mapping[Any, Tree] | None = None) -> Walk:
    """Moonwalk's phase 2: from x_0 and h_0 forward."""
    given = handed or {}
    for key, layer, p in chain:
        x, h, dp = advance(layer, p, x, h, given.get(key))
        yield key, dp
        del dp
    return x, h


def retreats(vjp: Vjp, chain: Sequence[Link], x: Any, h: Any) -> Walk:
    """Reversing: from x_L and h_L back."""
    for key, layer, p in reversed(chain):
        x, h, dp = layer.retreat(vjp, p, x, h)
        yield key, dp
        del dp
    return x, h


def finished(walk: Walk) -> tuple[Any, Any, dict[Any, Tree]]:
    """All of a walk: the last x and h, and by key every gradient."""
    found: dict[Any, Tree] = {}
    while True:
        try:
            key, dp = next(walk)
        except StopIteration as end:
            x, h = end.value
            return x, h, found
        found[key] = dp
