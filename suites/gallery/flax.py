# /// script
# dependencies = []
#
# [tool.gradgate]
# home = "https://github.com/google/flax"
# framework = "jax"
# judges = "flax"
# seconds = 200
# ///
"""Remat of nnx and linen, a scan over linen layers, and linen's norms, of flax 0.12.8, against plain JAX."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx

import gradgate
from gradgate import normal

ALL = ("jit", "vmap", "second_order")


class Layer(nn.Module):
    """A residual layer of linen, without biases."""

    @nn.compact
    def __call__(self, x, _=None):
        """x: (T, H)."""
        first = jnp.tanh(nn.Dense(x.shape[-1], use_bias=False)(x))
        return x + jnp.sin(nn.Dense(x.shape[-1], use_bias=False)(first)), None


def linen_remat(w, x, policy=None):
    """Layers under nn.remat. w: (L, 2, H, H); x: (T, H)."""
    chosen = getattr(jax.checkpoint_policies, policy) if policy else None
    layer = nn.remat(Layer, policy=chosen)()
    for first, second in w:
        x, _ = layer.apply({"params": {"Dense_0": {"kernel": first}, "Dense_1": {"kernel": second}}}, x)
    return x


def linen_scan(w, x):
    """The layers as nn.scan of nn.remat."""
    scanned = nn.scan(
        nn.remat(Layer, prevent_cse=False), variable_axes={"params": 0}, split_rngs={"params": True}, length=len(w)
    )
    params = {"Dense_0": {"kernel": w[:, 0]}, "Dense_1": {"kernel": w[:, 1]}}
    return scanned().apply({"params": params}, x, None)[0]


class Pieces(nnx.Module):
    """The same layer in nnx, whose call is under nnx.remat."""

    def __init__(self, w):
        self.first, self.second = nnx.Param(w[0]), nnx.Param(w[1])

    @nnx.remat
    def __call__(self, x):
        """x: (T, H)."""
        return x + jnp.sin(jnp.tanh(x @ self.first) @ self.second)


def nnx_remat(w, x):
    """The layers under nnx.remat."""
    for each in w:
        x = Pieces(each)(x)
    return x


def plain(w, x):
    """The reference of the layers."""
    for first, second in w:
        x = x + jnp.sin(jnp.tanh(x @ first) @ second)
    return x


def norm(x, scale, fast=True):
    """nn.LayerNorm without a bias."""
    module = nn.LayerNorm(epsilon=2.0**-10, use_bias=False, use_fast_variance=fast)
    return module.apply({"params": {"scale": scale}}, x)


def plain_norm(x, scale):
    """The reference for `norm`."""
    mean = jnp.mean(x, -1, keepdims=True)
    variance = jnp.mean((x - mean) ** 2, -1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 2.0**-10) * scale


def slow_norm(x, scale):
    """nn.LayerNorm with use_fast_variance=False."""
    return norm(x, scale, False)


WEIGHTS = {"w": normal("L 2 H H", scale="H**-0.5"), "x": normal("T H")}
SIZES = {"T": (3, 1), "H": (2, 1), "L": (2, 1)}
KEPT = gradgate.at_most("residual_bytes", of_reference=0.7, at={"T": 64, "H": 32, "L": 8})
linen = gradgate.Pair(
    linen_remat,
    reference=plain,
    inputs=WEIGHTS,
    dims=SIZES,
    composes=ALL,
    name="flax_linen_remat",
    claims=[KEPT],
    options={"policy": (None, "dots_saveable", "nothing_saveable", "everything_saveable")},
)
scanned = gradgate.Pair(
    linen_scan,
    reference=plain,
    inputs=WEIGHTS,
    dims=SIZES,
    composes=ALL,
    name="flax_linen_scan_of_remat",
    claims=[KEPT],
)
nnx_pair = gradgate.Pair(
    nnx_remat,
    reference=plain,
    inputs=WEIGHTS,
    dims=SIZES,
    composes=ALL,
    name="flax_nnx_remat",
    claims=[KEPT],
)
CANCELS = ("outputs", "stability", "gradient_float32")
FAR = {"far": lambda given: given | {"x": given["x"] + 1000}}
ROWS = {"T": (3, 1), "H": (4, 2)}
fast_norm = gradgate.Pair(
    norm,
    reference=plain_norm,
    inputs={"x": normal("T H"), "scale": normal("H")},
    dims=ROWS,
    composes=ALL,
    name="flax_layer_norm",
    regimes=FAR,
    dtypes=("float64", "float32"),
    expected=dict.fromkeys(CANCELS, "the variance is mean(x²) − mean(x)², which cancels far from 0"),
)
two_pass_norm = gradgate.Pair(
    slow_norm,
    reference=plain_norm,
    inputs={"x": normal("T H"), "scale": normal("H")},
    dims=ROWS,
    composes=ALL,
    name="flax_layer_norm_in_two_passes",
    regimes=FAR,
    dtypes=("float64", "float32"),
)
