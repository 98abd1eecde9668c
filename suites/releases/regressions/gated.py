"""The programs as pairs: the gate compares their bytes under two releases.

A pair is measured with its gradient. So that a gradient adds nothing to the program that a thread is about, a pair is
scaled by a factor, and only the factor gets a gradient.

JAX before 0.8 is older than gradgate's range, and lacks one name that gradgate uses. It is added here.
"""

# mypy: ignore-errors

import jax
import jax.numpy as jnp
from jax import lax

import gradgate
from gradgate import integers, mask, normal

if not hasattr(jax, "enable_x64"):
    from jax import experimental

    jax.enable_x64 = experimental.enable_x64


def conditional(scale, weight, inputs, flags):
    """A scan that updates its carry under a condition. scale: (); weight: (W, W); inputs: (T, W); flags: (T,)."""

    def step(weight, given):
        x, flag = given
        return lax.cond(flag, lambda w: w - 0.1 * jnp.tanh(w @ x)[:, None] * x, lambda w: w, weight), None

    return scale * lax.scan(step, weight, (inputs, flags))[0]


def selected(scale, weight, inputs, flags):
    """As `conditional`, with a selection in place of the condition."""

    def step(weight, given):
        x, flag = given
        return jnp.where(flag, weight - 0.1 * jnp.tanh(weight @ x)[:, None] * x, weight), None

    return scale * lax.scan(step, weight, (inputs, flags))[0]


def gathered(scale, a, b, phase, first, second):
    """Gathered rows, multiplied with a phase and summed. a, b, phase: (L, M, N); first, second: (K,), int32."""
    turned = jnp.exp(1j * (phase[:, second] - phase[:, first]))
    return scale * (a[:, first] * jnp.conj(b[:, second]) * turned).sum(0).real


def cosines(scale, a, b, phase, first, second):
    """As `gathered`, in real numbers."""
    return scale * (a[:, first] * b[:, second] * jnp.cos(phase[:, second] - phase[:, first])).sum(0)


def ragged(x, up, sizes):
    """A ragged product. x: (T, W); up: (G, W, H); sizes: (G,), int32."""
    return lax.ragged_dot(x, up, sizes)


def dense(x, up, sizes):
    """As `ragged`, as a sum over all groups with a mask."""
    ends = jnp.cumsum(sizes)
    place = jnp.arange(len(x))[:, None]
    belongs = (place >= ends - sizes) & (place < ends)
    return jnp.einsum("tw,gwh,tg->th", x, up, belongs.astype(x.dtype))


def segments(x, index):
    """Sums over segments, mapped over columns. x: (T, W); index: (T,), int32."""
    return jax.vmap(lambda column: jax.ops.segment_sum(column, index, 64), in_axes=1, out_axes=0)(x)


def chosen(x, index):
    """As `segments`, as a product with a matrix of zeros and ones."""
    return ((index[:, None] == jnp.arange(64)).astype(x.dtype).T @ x).T


scan_with_a_condition = gradgate.Pair(
    conditional,
    reference=selected,
    inputs={
        "scale": normal(""),
        "weight": normal("W W", scale="W**-0.5", gradient=False),
        "inputs": normal("T W", gradient=False),
        "flags": mask("T", share=0.5),
    },
    dims={"W": (2, 64), "T": (3, 16)},
    dtypes=("float32",),
)
sum_of_gathered_products = gradgate.Pair(
    gathered,
    reference=cosines,
    inputs={
        "scale": normal(""),
        **{name: normal("L M N", gradient=False) for name in ("a", "b", "phase")},
        **{name: integers("K", below="M") for name in ("first", "second")},
    },
    dims={"L": (2, 20), "M": (3, 50), "N": (2, 20), "K": (2, 20)},
    dtypes=("float32",),
)
experts = gradgate.Pair(
    ragged,
    reference=dense,
    inputs={"x": normal("T W"), "up": normal("G W H", scale="W**-0.5"), "sizes": integers("G", below="G")},
    dims={"T": (64, 512), "G": (2, 8), "W": (16, 64), "H": (16, 64)},
    dtypes=("float32",),
)
segment_sums = gradgate.Pair(
    segments,
    reference=chosen,
    inputs={"x": normal("T W"), "index": integers("T", below="64")},
    dims={"T": (16, 512), "W": (2, 64)},
    dtypes=("float32",),
)
