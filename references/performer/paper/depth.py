"""Parallel time as depth: the longest chain of operations each of which needs a result of the one before it.

A sum of n terms, and a prefix sum over n tokens, is ⌈log₂ n⌉ operations deep, as on a machine without limits; the scan
over layers, and that over slices, are as deep as their steps one after another. See `state_space.paper.depth`.
"""

from __future__ import annotations

import functools
from typing import Any

from gradgate.references.performer.problem import PerformerSpec

FIRST = 64
"""Tokens, or tokens per slice, from which doublings are looked at."""
SLICES = 8
"""Slices of the sequence to which one more is added."""


def chain(method: str, length: int, **options: Any) -> int:
    """The longest chain of loss and gradient by a method in JAX.

    Args:
        method: name of a function of ``in_jax.methods``.
        length: L.
        options: of the method.

    Cost: a trace.
    """
    from gradgate.references.draws import shapes
    from gradgate.references.performer.in_jax import methods
    from gradgate.references.state_space.paper.depth import of_jax

    spec = PerformerSpec(dtype="float32", length=length, layers=2, heads=2, head_width=4)
    return of_jax(functools.partial(getattr(methods, method), **options), (shapes(spec),))


def doubling(method: str, profile: str = "", **options: Any) -> float:
    """What doubling L again adds to the longest chain, over what doubling it once adds: 2 if linear, 1 if log L."""
    chains = [chain(method, factor * FIRST, **options) for factor in (1, 2, 4)]
    return (chains[2] - chains[1]) / (chains[1] - chains[0])


def doubling_chunk(profile: str = "") -> float:
    """The same for the chain of one slice of Algorithm 1, when C is doubled: 1 if it grows like log C."""
    one, two, four = (_slice_chain(factor * FIRST) for factor in (1, 2, 4))
    return (four - two) / (two - one)


def _slice_chain(chunk: int) -> int:
    """What a slice more adds."""
    short, long = (chain("slim", slices * chunk, chunk=chunk, prefix_sum="explicit") for slices in (SLICES, SLICES + 1))
    return long - short


doubling_full = functools.partial(doubling, "full")
doubling_slim = functools.partial(doubling, "slim", chunk=8, prefix_sum="explicit")
doubling_slim_at_1 = functools.partial(doubling, "slim", chunk=1, prefix_sum="explicit")
doubling_full_iterative = functools.partial(doubling, "full_iterative", prefix_sum="iterative")
