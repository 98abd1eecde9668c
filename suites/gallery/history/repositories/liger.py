# /// script
# dependencies = []
#
# [tool.gradgate]
# home = "https://github.com/linkedin/Liger-Kernel"
# framework = "torch"
# judges = "torch"
# limit = 1200
# notes = "kernels of Triton, in its interpreter; a src layout"
# ///
"""Liger-Kernel: cross entropy and rotary positions against plain PyTorch."""

from typing import Any

import torch
from torch.nn import functional

import gradgate
from gradgate import integers, normal


def cross_entropy(logits, labels, reduction="mean"):
    """Cross entropy. The kernel writes the gradient over the logits, hence the copy."""
    from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction

    return LigerCrossEntropyFunction.apply(logits.clone(), labels, None, -100, 0.0, 0.0, reduction)[0]


def plain_cross_entropy(logits, labels, reduction="mean"):
    """The reference for `cross_entropy`."""
    return functional.cross_entropy(logits, labels, reduction=reduction)


def rope(q, k, angles):
    """Rotary positions; q, k: (B, heads, T, 2·D), angles: (B, T, D). The gradient is written over the cotangent."""
    from liger_kernel.ops.rope import LigerRopeFunction

    both = torch.cat([angles, angles], -1)
    turned = LigerRopeFunction.apply(q.clone(), k.clone(), both.cos(), both.sin())
    return tuple(1.0 * leaf for leaf in turned)


def plain_rope(q, k, angles):
    """The reference for `rope`."""
    both, half = torch.cat([angles, angles], -1)[:, None], angles.shape[-1]

    def turned(x):
        return x * both.cos() + torch.cat([-x[..., half:], x[..., :half]], -1) * both.sin()

    return turned(q), turned(k)


RETAINED = "with retain_graph, a second backward pass reads what the first one has overwritten, without an error"
UNSEEN = "its backward pass writes where autograd cannot see it, so its second derivative is wrong"
HOW: dict[str, Any] = {"dtypes": ("float32",), "devices": ("interpreter",), "framework": "torch"}
INPUTS = {"logits": normal("T V"), "labels": integers("T", below="V")}
SIZES = {"T": (3, 1), "V": (5, 2)}
ce = gradgate.Pair(
    cross_entropy,
    reference=plain_cross_entropy,
    inputs=INPUTS,
    dims=SIZES,
    options={"reduction": ("none",)},
    expected={"autograd": RETAINED},
    **HOW,
)
rotary = gradgate.Pair(
    rope,
    reference=plain_rope,
    inputs={"q": normal("B 2 T 2*D"), "k": normal("B 1 T 2*D"), "angles": normal("B T D", gradient=False)},
    dims={"B": (2, 1), "T": (3,), "D": (4,)},
    expected={"autograd": UNSEEN},
    **HOW,
)
