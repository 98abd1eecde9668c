# Source: patrick-kidger/lineax#84 (and equinox's filter_custom_vjp, patrick-kidger/equinox#436): a rule that looks at
# which inputs are perturbed goes wrong when only some of them are. Own code.
"""A product whose rule skips the work for inputs that are not differentiated."""

import jax
import jax.numpy as jnp

from gradgate import Pair, normal


def build(both):
    @jax.custom_vjp
    def product(x, w):
        return x @ w

    def forward(x, w):
        need = (x.perturbed and w.perturbed,) * 2 if both else (x.perturbed, w.perturbed)
        return x.value @ w.value, (x.value, w.value, need)

    def backward(kept, g):
        x, w, (dx, dw) = kept
        return (g @ w.T if dx else jnp.zeros_like(x)), (x.T @ g if dw else jnp.zeros_like(w))

    class Static(tuple):
        pass

    def forward_static(x, w):
        out, (a, b, need) = forward(x, w)
        return out, (a, b, tuple(jnp.zeros(()) if n else None for n in need))

    def backward_static(kept, g):
        a, b, need = kept
        return backward((a, b, tuple(n is not None for n in need)), g)

    product.defvjp(forward_static, backward_static, symbolic_zeros=True)
    return lambda x, w: product(x, w)


def declare(function, name):
    return Pair(
        function,
        reference=lambda x, w: jnp.einsum("bd,do->bo", x, w),
        name=name,
        inputs={"x": normal("B D"), "w": normal("D O")},
        dims={"B": (3, 1), "D": (4, 1), "O": (2, 1)},
        composes=("jit", "vmap"),
    )


perturbed_bug = declare(build(True), "perturbed_bug")
perturbed_twin = declare(build(False), "perturbed_twin")
