# /// script
# dependencies = []
#
# [tool.gradgate]
# home = "https://github.com/pytorch/pytorch"
# framework = "torch"
# judges = "torch"
# seconds = 120
# notes = "derivatives that PyTorch itself writes by hand, on a CPU"
# ///
"""PyTorch 2.13.0, torch.nn.functional: norms and attention against their formulas in elementary operations."""

import torch
from torch.nn import functional

import gradgate
from gradgate import normal

ROWS = {"T": (3, 2, 17), "H": (8, 2, 33)}
EPSILON = 1e-5


def batch_norm(x, weight, bias):
    """Batch norm of tanh(x) in training; x: (T, H)."""
    return functional.batch_norm(x.tanh(), None, None, weight, bias, True, eps=EPSILON)


def plain_batch_norm(x, weight, bias):
    """The reference for `batch_norm`."""
    x = x.tanh()
    away = x - x.mean(0)
    return away / (away.square().mean(0) + EPSILON).sqrt() * weight + bias


def layer_norm(x, weight, bias):
    """Layer norm; x: (T, H)."""
    return functional.layer_norm(x, weight.shape, weight, bias, EPSILON)


def plain_layer_norm(x, weight, bias):
    """The reference for `layer_norm`."""
    away = x - x.mean(-1, keepdim=True)
    return away / (away.square().mean(-1, keepdim=True) + EPSILON).sqrt() * weight + bias


def group_norm(x, weight, bias):
    """Group norm with two groups; x: (B, H, T)."""
    return functional.group_norm(x, 2, weight, bias, EPSILON)


def plain_group_norm(x, weight, bias):
    """The reference for `group_norm`."""
    grouped = x.reshape(len(x), 2, -1)
    away = grouped - grouped.mean(-1, keepdim=True)
    normed = (away / (away.square().mean(-1, keepdim=True) + EPSILON).sqrt()).reshape(x.shape)
    return normed * weight[:, None] + bias[:, None]


def attention(q, k, v, causal=False):
    """Attention; q, k, v: (B, 2, T, H)."""
    return functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


def plain_attention(q, k, v, causal=False):
    """The reference for `attention`."""
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
    return scores.softmax(-1) @ v


AFFINE = {"x": normal("T H"), "weight": normal("H"), "bias": normal("H")}
batch = gradgate.Pair(
    batch_norm,
    reference=plain_batch_norm,
    name="torch_batch_norm",
    inputs=AFFINE,
    dims=ROWS,
    expected={"layouts": "its backward pass reads a weight that is not contiguous as if it were contiguous"},
)
layer = gradgate.Pair(
    layer_norm,
    reference=plain_layer_norm,
    name="torch_layer_norm",
    inputs=AFFINE,
    dims=ROWS,
    claims=[gradgate.at_most("residual_bytes", of_reference=0.5, at={"T": 64, "H": 64})],
)
group = gradgate.Pair(
    group_norm,
    reference=plain_group_norm,
    name="torch_group_norm",
    dims={"B": (1, 3), "T": (3, 5), "H": (4, 2, 8)},
    inputs={"x": normal("B H T"), "weight": normal("H"), "bias": normal("H")},
)
attended = gradgate.Pair(
    attention,
    reference=plain_attention,
    name="torch_attention",
    options={"causal": (False, True)},
    inputs={name: normal("B 2 T H") for name in "qkv"},
    dims={"B": (1, 2), "T": (1, 5, 33), "H": (8, 1)},
    claims=[gradgate.at_most("residual_bytes", of_reference=0.1, at={"B": 1, "T": 256, "H": 8})],
)
