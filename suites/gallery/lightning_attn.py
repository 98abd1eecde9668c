# /// script
# dependencies = ["lightning-attn==0.0.5"]
#
# [tool.gradgate]
# home = "https://github.com/OpenNLPLab/lightning-attention"
# framework = "torch"
# no-deps = true
# seconds = 120
# limit = 1500
# notes = "kernels of Triton, judged in its interpreter, without lightning_attn_func, which refuses heads of 16"
# ///
"""Kernels of lightning-attn 0.0.5 against plain PyTorch, in Triton's interpreter."""

from typing import Any

import torch

import gradgate
from gradgate import normal, uniform
from gradgate.suites.gallery import kernels

VERSION = "0.0.5"
WHERE: dict[str, Any] = {"devices": ("interpreter",), "framework": "torch", "dtypes": ("float32",)}
SIZES = {"B": (1, 2), "T": (1, 3, 65), "D": (16,), "E": (16, 32)}
"""A block has 64 tokens, so 65 need two. `tl.arange` needs head sizes that are powers of two."""
HEADS = {"q": normal("B 2 T D"), "k": normal("B 2 T D", scale="D**-0.5"), "v": normal("B 2 T E")}


def of(module):
    """A module of ``lightning_attn.ops.triton``."""
    return kernels("lightning-attn", VERSION, f"lightning_attn.ops.triton.{module}", bare="lightning_attn")


def with_decay(q, k, v, decay):
    """Linear attention that forgets by exp(-decay) a token; q, k: (B, H, T, D), v: (B, H, T, E), decay: (H,)."""
    return of("lightning_attn2").lightning_attn2(q, k, v, decay)


def without_decay(q, k, v):
    """Linear attention; shapes as in `with_decay`."""
    return of("lightning_attn2_no_decay").lightning_attn2_no_decay(q, k, v)


def plain_with_decay(q, k, v, decay):
    """The reference for `with_decay`."""
    places = torch.arange(q.shape[-2])
    apart = (places[:, None] - places[None, :]).clamp(min=0).to(q.dtype)
    weights = torch.exp(-decay[:, None, None] * apart).tril()
    return (q @ k.mT * weights) @ v


def plain_without_decay(q, k, v):
    """The reference for `without_decay`."""
    return (q @ k.mT).tril() @ v


def norm(x):
    """RMS norm without a weight."""
    return of("srmsnorm")._SrmsNorm.apply(x, 1e-6)


decayed = gradgate.Pair(
    with_decay,
    reference=plain_with_decay,
    inputs={**HEADS, "decay": uniform("2", low=0.0, high=1.0, gradient=False)},
    dims=SIZES,
    **WHERE,
)
plain = gradgate.Pair(without_decay, reference=plain_without_decay, inputs=HEADS, dims=SIZES, **WHERE)
rms = gradgate.Pair(
    norm,
    reference=lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
    name="simple_rms_norm",
    inputs={"x": normal("T H")},
    dims={"T": (1, 3, 17), "H": (1, 8, 33)},
    expected={
        "layouts": "its backward pass reads the rows of x as if they were contiguous; only the forward pass copies them"
    },
    **WHERE,
)
