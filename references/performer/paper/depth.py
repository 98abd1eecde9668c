"""Parallel time as depth: the longest chain of operations in which each needs a result of the one before it.

A sum of n terms, or a prefix sum over n tokens, is ⌈log₂ n⌉ operations deep, as on a machine without limits. The depth
of a scan, over layers or over slices, is the sum of the depths of its steps. See `state_space.paper.depth`.
"""

from __future__ import annotations

import functools
from typing import Any

from gradgate.references.performer.problem import PerformerSpec

FIRST = 64
"""Tokens, or tokens per slice, from which the doublings start."""
SLICES = 8
"""The number of slices of the sequence, to which one slice is added."""


def chain(method: str, length: int, **options: Any) -> int:
    """The longest chain of loss and gradient by a method in JAX.

    Args:
        method: name of a function of ``in_jax.methods``.
        length: L.
        options: options of the method.

    Cost: one trace.
    """
    from gradgate.references.draws import shapes
    from gradgate.references.performer.in_jax import methods
    from gradgate.references.state_space.paper.depth import of_jax

    spec = PerformerSpec(dtype="float32", length=length, layers=2, heads=2, head_width=4)
    return of_jax(functools.partial(getattr(methods, method), **options), (shapes(spec),))


def doubling(method: str, profile: str = "", **options: Any) -> float:
    """What a second doubling of L adds to the longest chain, over the first: 2 if linear, 1 if log L."""
    chains = [chain(method, factor * FIRST, **options) for factor in (1, 2, 4)]
    return (chains[2] - chains[1]) / (chains[1] - chains[0])


def doubling_chunk(profile: str = "") -> float:
    """The same for the chain of one slice of Algorithm 1, when C is doubled: 1 if it grows like log C."""
    one, two, four = (_slice_chain(factor * FIRST) for factor in (1, 2, 4))
    return (four - two) / (two - one)


def _slice_chain(chunk: int) -> int:
    """What one more slice adds."""
    short, long = (chain("slim", slices * chunk, chunk=chunk, prefix_sum="explicit") for slices in (SLICES, SLICES + 1))
    return long - short


doubling_full = functools.partial(doubling, "full")
doubling_slim = functools.partial(doubling, "slim", chunk=8, prefix_sum="explicit")
doubling_slim_at_1 = functools.partial(doubling, "slim", chunk=1, prefix_sum="explicit")
doubling_full_iterative = functools.partial(doubling, "full_iterative", prefix_sum="iterative")
