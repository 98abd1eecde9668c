# Source: jax-ml/jax#9675: a donated argument silently stops being donated, a memory regression. Own code.
"""One step of gradient descent with momentum, in place or not."""

import functools

import jax
import jax.numpy as jnp

from gradgate import Pair, normal


def step(w, m, x):
    g = jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w) ** 2))(w)
    m = 0.9 * m + g
    return w - 0.1 * m, m


def plain(w, m, x):
    m = 0.9 * m + jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w) ** 2))(w)
    return w - 0.1 * m, m


@functools.partial(jax.jit, donate_argnums=(0, 1))
def in_place(w, m, x):
    return step(w, m, x)


@jax.jit
def copied(w, m, x):
    return step(w, m, x)


declare = functools.partial(
    Pair,
    reference=plain,
    inputs={"w": normal("D O"), "m": normal("D O"), "x": normal("B D", gradient=False)},
    dims={"B": (3, 1), "D": (4, 1), "O": (2, 1)},
    donates=("w", "m"),
)
donation_bug = declare(copied, name="donation_bug")
donation_twin = declare(in_place, name="donation_twin")
