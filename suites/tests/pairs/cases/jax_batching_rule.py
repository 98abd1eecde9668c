# Source: jax-ml/jax#5832 (and #14150): the gradient of an argument that is not batched, in a custom rule under vmap.
# Own code.
"""A product with a weight; its backward pass has a batching rule of its own, which sums where the weight is shared."""

import jax
import jax.numpy as jnp

from gradgate import Pair, normal


def plain(x, w):
    return x @ w


def build(sums):
    @jax.custom_batching.custom_vmap
    def pull(x, w, g):
        return g @ w.T, jnp.outer(x, g)

    @pull.def_vmap
    def rule(size, batched, x, w, g):
        x, g = (v if b else jnp.broadcast_to(v, (size, *v.shape)) for v, b in ((x, batched[0]), (g, batched[2])))
        dx = jax.vmap(lambda g, w: g @ w.T, in_axes=(0, 0 if batched[1] else None))(g, w)
        if sums and not batched[1]:
            return (dx, x.T @ g), (True, False)
        return (dx, x[:, :, None] * g[:, None, :]), (True, True)

    @jax.custom_vjp
    def product(x, w):
        return x @ w

    product.defvjp(lambda x, w: (product(x, w), (x, w)), lambda kept, g: pull(*kept, g))
    return product


def declare(function, name):
    return Pair(
        function,
        reference=plain,
        name=name,
        inputs={"x": normal("D"), "w": normal("D O")},
        dims={"D": (4, 1), "O": (3, 1)},
        composes=("jit", "vmap"),
    )


batching_bug = declare(build(True), "batching_bug")
batching_twin = declare(build(False), "batching_twin")
