# /// script
# dependencies = ["memory-efficient-attention-pytorch==0.1.6", "einops==0.8.2"]
#
# [tool.gradgate]
# home = "https://github.com/lucidrains/memory-efficient-attention-pytorch"
# framework = "torch"
# no-deps = true
# seconds = 240
# notes = "flash attention is judged in float32, the only dtype in which both of its passes run"
# ///
"""memory-efficient-attention-pytorch 0.1.6: flash attention and attention in chunks against plain attention."""

import warnings

import torch
from memory_efficient_attention_pytorch.flash_attention import FlashAttentionFunction
from memory_efficient_attention_pytorch.memory_efficient_attention import memory_efficient_attention

import gradgate
from gradgate import mask, normal


def flash(q, k, v, causal=False, rows=2, columns=3):
    """Flash attention in plain PyTorch; q, k, v: (B, 2, T, D)."""
    return FlashAttentionFunction.apply(q, k, v, None, causal, rows, columns)


def flash_masked(q, k, v, seen, rows=2, columns=3):
    """The same with a mask of keys; seen: (B, T). The first key is always seen."""
    return FlashAttentionFunction.apply(q, k, v, first_seen(seen), False, rows, columns)


def chunked(q, k, v, causal=False, rows=2, columns=3):
    """Attention in chunks, each under a checkpoint."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.utils.checkpoint")
        return memory_efficient_attention(q, k, v, causal=causal, q_bucket_size=rows, k_bucket_size=columns)


def first_seen(seen):
    """A mask in which the first key is seen."""
    return torch.cat([torch.ones_like(seen[:, :1]), seen[:, 1:]], 1)


def plain(q, k, v, causal=False):
    """The reference for `flash`."""
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
    return scores.softmax(-1) @ v


def plain_chunked(q, k, v, causal=False):
    """The reference for `chunked`: 1e-8 is added to the sum of the weights, after the largest is scaled to 1."""
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
    weights = (scores - scores.amax(-1, keepdim=True).detach()).exp()
    return weights @ v / (weights.sum(-1, keepdim=True) + 1e-8)


def plain_masked(q, k, v, seen):
    """The reference for `flash_masked`."""
    scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~first_seen(seen)[:, None, None], -torch.inf)
    return scores.softmax(-1) @ v


WIDE = "the first maximum, -1.8e308 in float64, is put into a float32 tensor, which raises"
QKV = {name: normal("B 2 T D") for name in "qkv"}
SIZES = {"B": (1, 2), "T": (5, 1, 3, 8), "D": (4, 1)}
TILES = {"rows": (2, 1, 64), "columns": (3, 1, 64)}
PEAKED = {"peaked": lambda given: given | {"q": 30 * given["q"]}}
AT = {"B": 1, "T": 128, "D": 4}
flash_pair = gradgate.Pair(
    flash,
    reference=plain,
    name="flash_attention",
    inputs=QKV,
    dims=SIZES,
    regimes=PEAKED,
    options={"causal": (False, True), **TILES},
    dtypes=("float32",),
    expected={"gradient_exact": WIDE},
    claims=[gradgate.at_most("residual_bytes", of_reference=0.1, at=AT)],
)
masked_pair = gradgate.Pair(
    flash_masked,
    reference=plain_masked,
    name="flash_attention_masked",
    inputs={**QKV, "seen": mask("B T")},
    dims=SIZES,
    options=TILES,
    dtypes=("float32",),
    expected={"gradient_exact": WIDE},
)
chunked_pair = gradgate.Pair(
    chunked,
    reference=plain_chunked,
    name="memory_efficient_attention",
    inputs=QKV,
    dims=SIZES,
    regimes=PEAKED,
    options={"causal": (False, True), **TILES},
    by_backward=True,
)
