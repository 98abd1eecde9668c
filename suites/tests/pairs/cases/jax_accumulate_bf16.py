# Source: mlnomadpy/flaxchat#6 (and AI-Hypercomputer/maxtext#5039): gradients of microbatches are accumulated in the
# dtype of the parameters, bfloat16, and small contributions are lost. Own code.
"""A least-squares loss whose backward pass accumulates the gradient over microbatches."""

import functools

import jax
import jax.numpy as jnp

from gradgate import Pair, normal


def plain(w, x, y):
    return jnp.sum((x @ w - y) ** 2)


def build(wide):
    @functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
    def loss(w, x, y, micro=1):
        return plain(w, x, y)

    def forward(w, x, y, micro):
        return plain(w, x, y), (w, x, y)

    def backward(micro, kept, g):
        w, x, y = kept
        short = -len(x) % micro
        x = jnp.pad(x, ((0, short), (0, 0))).reshape(-1, micro, x.shape[1])
        y = jnp.pad(y, ((0, short), (0, 0))).reshape(-1, micro, y.shape[1])
        dtype = jnp.promote_types(w.dtype, jnp.float32) if wide else w.dtype

        def body(total, given):
            return total + jax.grad(plain)(w, *given).astype(dtype), None

        total, _ = jax.lax.scan(body, jnp.zeros(w.shape, dtype), (x, y))
        return (g * total).astype(w.dtype), None, None

    loss.defvjp(forward, backward)
    return loss


declare = functools.partial(
    Pair,
    reference=plain,
    inputs={
        "w": normal("D O", scale="D**-0.5"),
        "x": normal("B D", gradient=False),
        "y": normal("B O", gradient=False),
    },
    dims={"B": (16, 1, 3, 250), "D": (4, 1), "O": (2, 1)},
    options={"micro": (1, 4)},
    composes=("jit",),
    accumulates="float32",
)
accumulate_bug = declare(build(False), name="accumulate_bug")
accumulate_twin = declare(build(True), name="accumulate_twin")
