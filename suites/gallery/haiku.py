# /// script
# dependencies = ["dm-haiku==0.0.17", "jmp==0.0.4"]
#
# [tool.gradgate]
# home = "https://github.com/google-deepmind/dm-haiku"
# framework = "jax"
# seconds = 120
# ///
"""Haiku 0.0.17: hk.remat and hk.layer_stack around transformed modules, and its layer norm, against plain JAX."""

import haiku as hk
import jax
import jax.numpy as jnp

import gradgate
from gradgate import normal

ALL = ("jit", "vmap", "second_order")


def layer(x):
    """A residual layer of Haiku, without biases."""
    first = jnp.tanh(hk.Linear(x.shape[-1], with_bias=False, name="first")(x))
    return x + jnp.sin(hk.Linear(x.shape[-1], with_bias=False, name="second")(first))


def remat(w, x):
    """Layers under hk.remat. w: (L, 2, H, H); x: (T, H)."""
    run = hk.without_apply_rng(hk.transform(lambda x: hk.remat(layer)(x)))
    for first, second in w:
        x = run.apply({"first": {"w": first}, "second": {"w": second}}, x)
    return x


def stacked(w, x):
    """The layers as an hk.layer_stack of hk.remat."""
    run = hk.without_apply_rng(hk.transform(lambda x: hk.layer_stack(len(w), name="stack")(hk.remat(layer))(x)))
    names = sorted(run.init(jax.random.key(0), x))
    return run.apply({names[0]: {"w": w[:, 0]}, names[1]: {"w": w[:, 1]}}, x)


def plain(w, x):
    """The reference of the layers."""
    for first, second in w:
        x = x + jnp.sin(jnp.tanh(x @ first) @ second)
    return x


def norm(x, scale, offset):
    """hk.LayerNorm."""
    run = hk.without_apply_rng(hk.transform(lambda x: hk.LayerNorm(-1, True, True, eps=2.0**-10, name="n")(x)))
    return run.apply({"n": {"scale": scale, "offset": offset}}, x)


def plain_norm(x, scale, offset):
    """The reference for `norm`."""
    mean = jnp.mean(x, -1, keepdims=True)
    variance = jnp.mean((x - mean) ** 2, -1, keepdims=True)
    return (x - mean) / jnp.sqrt(variance + 2.0**-10) * scale + offset


WEIGHTS = {"w": normal("L 2 H H", scale="H**-0.5"), "x": normal("T H")}
SIZES = {"T": (3, 1), "H": (2, 1), "L": (2, 1)}
KEPT = gradgate.at_most("residual_bytes", of_reference=0.7, at={"T": 64, "H": 32, "L": 8})
checkpointed = gradgate.Pair(
    remat,
    reference=plain,
    inputs=WEIGHTS,
    dims=SIZES,
    composes=ALL,
    name="haiku_remat",
    claims=[KEPT],
)
stack = gradgate.Pair(
    stacked,
    reference=plain,
    inputs=WEIGHTS,
    dims=SIZES,
    composes=ALL,
    name="haiku_layer_stack",
    claims=[KEPT],
)
layer_norm = gradgate.Pair(
    norm,
    reference=plain_norm,
    dims={"T": (3, 1), "H": (4, 2)},
    composes=ALL,
    name="haiku_layer_norm",
    inputs={"x": normal("T H"), "scale": normal("H"), "offset": normal("H")},
    regimes={"far": lambda given: given | {"x": given["x"] + 1000}},
    dtypes=("float64", "float32"),
)
