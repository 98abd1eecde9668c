"""The same mask in every dtype: JAX draws other bits if float64 is enabled."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def alike() -> Iterator[None]:
    """The scope in which `jax.random.bernoulli`, which dropout calls, gives in float64 the mask of float32.

    `bernoulli` compares uniform numbers with a probability, in the dtype of the probability. For a Python float that is
    float64 if float64 is enabled, and the bits differ. The truth in float64 would then be that of another function.
    """
    import jax
    import jax.numpy as jnp

    # What `bernoulli` calls, if it is there: other modules may have imported `bernoulli` itself.
    inside, name = jax.random.bernoulli.__globals__, "_bernoulli"
    if name not in inside:
        inside, name = vars(jax.random), "bernoulli"
    plain = inside[name]

    def bernoulli(key: Any, p: Any = 0.5, *rest: Any, **how: Any) -> Any:
        return plain(key, jnp.asarray(p).astype(jnp.float32), *rest, **how)

    inside[name] = bernoulli
    try:
        yield
    finally:
        inside[name] = plain
