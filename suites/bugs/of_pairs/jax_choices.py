"""The functions of `choices` as pairs of JAX, and two that decide in control structures: `cond` and `scan`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from gradgate import Pair, normal
from gradgate.suites.bugs.of_pairs import choices


def rescaled(x: Any) -> Any:
    """The numbers scaled to a norm of 3 if theirs is larger, by `cond`."""
    size = jnp.sqrt((x * x).sum())
    return jax.lax.cond(size > 3, lambda x: 3 * x / jnp.sqrt((x * x).sum()), lambda x: x, x)


def plain_rescaled(x: Any) -> Any:
    """The numbers scaled to a norm of 3 if theirs is larger."""
    size = jnp.sqrt((x * x).sum())
    return jnp.where(size > 3, 3 * x / size, x)


def leaky_sum(x: Any) -> Any:
    """The state h = clip(0.7·h + x) after all rows of x."""
    return jax.lax.scan(lambda h, row: (jnp.clip(0.7 * h + row, -1.5, 1.5), None), jnp.zeros_like(x[0]), x)[0]


def plain_leaky_sum(x: Any) -> Any:
    """The state h = clip(0.7·h + x) after all rows of x."""
    h = jnp.zeros_like(x[0])
    for row in x:
        h = 0.7 * h + row
        h = (abs(h + 1.5) - abs(h - 1.5)) / 2
    return h


globals().update(choices.pairs("jax"))
branching = Pair(rescaled, plain_rescaled, inputs={"x": normal("T H")}, dims={"T": (2, 1, 3), "H": (3, 1, 4)})
looping = Pair(leaky_sum, plain_leaky_sum, inputs={"x": normal("T H")}, dims={"T": (3, 1, 5), "H": (2, 1)})
