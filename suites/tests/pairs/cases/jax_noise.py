# Source: none; own code.
"""A right function: multiplicative noise from a key, drawn in the dtype of the input."""

import jax
import jax.numpy as jnp

from gradgate import Pair, key, normal


@jax.custom_vjp
def noisy(x, key):
    return x * jnp.exp(0.1 * jax.random.normal(key, x.shape, x.dtype))


noisy.defvjp(
    lambda x, key: (noisy(x, key), key),
    lambda key, g: (g * jnp.exp(0.1 * jax.random.normal(key, g.shape, g.dtype)), None),
)


def plain(x, key):
    n = jax.random.normal(key, x.shape, x.dtype)
    return x * jnp.exp(0.05 * n) * jnp.exp(0.05 * n)


with_noise = Pair(
    noisy,
    reference=plain,
    name="with_noise",
    inputs={"x": normal("T"), "key": key()},
    dims={"T": (5, 1)},
    composes=("jit",),
)
