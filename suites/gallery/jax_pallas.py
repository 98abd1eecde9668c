# /// script
# dependencies = []
#
# [tool.gradgate]
# home = "https://github.com/jax-ml/jax"
# framework = "jax"
# judges = "jax"
# seconds = 200
# limit = 1500
# notes = "the Pallas kernels that JAX ships, for GPUs and TPUs; their bodies are run in JAX's interpreter"
# ///
"""The Pallas kernels with a backward pass that JAX ships, for GPUs and TPUs, against plain JAX."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.gpu import attention, layer_norm, rms_norm
from jax.experimental.pallas.ops.tpu import flash_attention

import gradgate
from gradgate import normal

WHERE: dict[str, Any] = {"framework": "jax", "dtypes": ("float32",)}
ROWS = {"B": (1, 2), "T": (1, 3), "H": (1, 8, 33)}
TILE = attention.BlockSizes(16, 16, 16, 16, 16, 16)
NORMED = {"x": normal("B T H"), "weight": normal("H"), "bias": normal("H")}


def normed_by_rms(x, weight, bias):
    """RMS norm with a weight and a bias, for a GPU; x: (B, T, H)."""
    return rms_norm.rms_norm(x, weight, bias, interpret=True)


def plain_rms_norm(x, weight, bias):
    """The reference for `normed_by_rms`."""
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * weight + bias


def normed(x, weight, bias):
    """Layer norm, for a GPU; x: (B, T, H)."""
    return layer_norm.layer_norm(x, weight, bias, interpret=True)


def plain_layer_norm(x, weight, bias):
    """The reference for `normed`."""
    apart = x - jnp.mean(x, -1, keepdims=True)
    return apart * jax.lax.rsqrt(jnp.mean(apart * apart, -1, keepdims=True) + 1e-5) * weight + bias


def attention_on_gpu(q, k, v, causal=False):
    """Softmax attention in tiles of 16, for a GPU; q, k, v: (B, T, H, D)."""
    return attention.mha(q, k, v, None, sm_scale=q.shape[-1] ** -0.5, causal=causal, block_sizes=TILE, interpret=True)


def plain_attention(q, k, v, causal=False):
    """The reference for `attention_on_gpu`."""
    scores = jnp.einsum("bthd,bshd->bhts", q, k) * q.shape[-1] ** -0.5
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), v)


def attention_on_tpu(q, k, v, causal=False):
    """Softmax attention in tiles of 128, for a TPU; q, k, v: (B, H, T, D)."""
    return flash_attention.flash_attention(q, k, v, causal=causal, sm_scale=q.shape[-1] ** -0.5)


def plain_attention_on_tpu(q, k, v, causal=False):
    """The reference for `attention_on_tpu`."""
    turned = (x.transpose(0, 2, 1, 3) for x in (q, k, v))
    return plain_attention(*turned, causal).transpose(0, 2, 1, 3)


rms = gradgate.Pair(normed_by_rms, reference=plain_rms_norm, name="pallas_rms_norm", inputs=NORMED, dims=ROWS, **WHERE)
layer = gradgate.Pair(normed, reference=plain_layer_norm, name="pallas_layer_norm", inputs=NORMED, dims=ROWS, **WHERE)
gpu = gradgate.Pair(
    attention_on_gpu,
    reference=plain_attention,
    name="pallas_attention_gpu",
    inputs={name: normal("B T 1 D") for name in "qkv"},
    options={"causal": (False, True)},
    dims={"B": (1, 2), "T": (1, 16, 48), "D": (8, 16)},
    **WHERE,
)
tpu = gradgate.Pair(
    attention_on_tpu,
    reference=plain_attention_on_tpu,
    name="pallas_attention_tpu",
    inputs={name: normal("1 1 T 8") for name in "qkv"},
    options={"causal": (False, True)},
    dims={"T": (128,)},
    **WHERE,
)
