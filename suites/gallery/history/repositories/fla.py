# /// script
# dependencies = ["triton==3.7.1"]
#
# [tool.gradgate]
# home = "https://github.com/fla-org/flash-linear-attention"
# framework = "torch"
# judges = "torch"
# limit = 1200
# notes = "kernels of Triton, in its interpreter, with a release that has block pointers; a flat layout"
# ///
"""flash-linear-attention: normalised linear attention, a gated norm with a linear layer, and a penalty of logits."""

import importlib
import importlib.util
import sys
import types
from typing import Any

import torch
from torch.nn import functional

import gradgate
from gradgate import integers, normal


def of(module):
    """A module of the library. Its packages are not run, because they import all models and layers."""
    for name in ("fla", "fla.ops", "fla.modules", f"fla.{module}".rpartition(".")[0]):
        if name not in sys.modules:
            package = types.ModuleType(name)
            package.__path__ = list(importlib.util.find_spec(name).submodule_search_locations)
            package.__dict__["__version__"] = "0"  # a module reads it
            sys.modules[name] = package
    return importlib.import_module(f"fla.{module}")


def attention(q, k, v):
    """Linear attention whose outputs are divided by the sum of the weights; (B, T, heads, K) each."""
    return of("ops.linear_attn.fused_recurrent").fused_recurrent_linear_attn(q, k, v, normalize=True)[0]


def plain_attention(q, k, v):
    """The reference for `attention`."""
    weights = q.shape[-1] ** -0.5 * torch.einsum("bihd,bjhd->bhij", q, k).tril()
    return torch.einsum("bhij,bjhd->bihd", weights / (weights.sum(-1, keepdim=True) + 1e-10), v)


def gated(x, g, scale, weight):
    """RMS norm, a gate and a linear layer."""
    return of("modules.fused_norm_gate").rms_norm_swish_gate_linear(x, g, scale, None, weight, None, eps=1e-5)


def plain_gated(x, g, scale, weight):
    """The reference for `gated`."""
    y = x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * scale
    return functional.linear(y * g * g.sigmoid(), weight)


def penalised(logits, labels):
    """Cross entropy; the largest logit of a token has a penalty, which is in the gradient only."""
    loss = functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    return of("modules.l2warp").l2_warp(loss, logits, 0.5)


def plain_penalised(logits, labels):
    """The reference for `penalised`."""
    penalty = 0.25 * logits.amax(-1).square().mean()
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten()) + penalty - penalty.detach()


CONSTANT = "its backward pass counts what it computes as constants, so its second derivative is wrong"
OUTSIDE = "the sum from the last token back takes in what its block pointers load behind the tensor, unpadded"
HOW: dict[str, Any] = {"dtypes": ("float32",), "devices": ("interpreter",), "framework": "torch"}
positive = gradgate.uniform("B T H K", 0.1, 1.0)
normalised = gradgate.Pair(
    attention,
    reference=plain_attention,
    inputs={"q": positive, "k": positive, "v": normal("B T H K")},
    dims={"B": (1,), "T": (3, 1), "H": (1, 2), "K": (4,)},
    expected={"autograd": CONSTANT, "gradient_exact": OUTSIDE, "memory_safe": OUTSIDE},
    **HOW,
)
norm = gradgate.Pair(
    gated,
    reference=plain_gated,
    inputs={"x": normal("T D"), "g": normal("T D"), "scale": normal("D"), "weight": normal("V D")},
    dims={"T": (3, 1), "D": (8, 16), "V": (4,)},
    expected={"autograd": CONSTANT},
    **HOW,
)
penalty = gradgate.Pair(
    penalised,
    reference=plain_penalised,
    inputs={"logits": normal("B T V"), "labels": integers("B T", below="V")},
    dims={"B": (2, 1), "T": (3, 1), "V": (5, 2)},
    expected={"autograd": CONSTANT},
)
