# /// script
# dependencies = ["einops==0.8.2", "einx==0.1.3", "beartype==0.22.9", "frozendict==2.4.6"]
#
# [tool.gradgate]
# home = "https://github.com/lucidrains/ring-attention-pytorch"
# framework = "torch"
# judges = "torch"
# no-deps = true
# notes = "flash attention in plain PyTorch, as one machine of the ring runs it; a flat layout"
# ///
"""ring-attention-pytorch: its flash attention, as one machine runs it, against plain attention."""

import warnings
from typing import Any

import torch

import gradgate
from gradgate import mask, normal

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it names autocast in an old way
    from ring_attention_pytorch import ring_attention, ring_flash_attention


def flash(q, k, v, causal=False):
    """Flash attention in buckets of 2; (B, T, heads, D) each."""
    return ring_flash_attention.ring_flash_attn(q, k, v, None, causal, 2)


def hidden_keys(q, k, v, hidden):
    """As `flash`, with a mask of the keys that are not seen; the first key always is."""
    return ring_flash_attention.ring_flash_attn(q, k, v, ~but_the_first(hidden), False, 2)


def clamped(q, k, v, causal=False):
    """As `flash`, with a soft bound of the scores."""
    run = ring_flash_attention.ring_flash_attn
    return run(q, k, v, None, causal, 2, softclamp_qk_sim=True, softclamp_value=2.0)


def default(q, k, v, causal=False):
    """Attention without buckets, which the library compares with."""
    return ring_attention.default_attention(q, k, v, None, causal)


def plain(q, k, v, causal=False, hidden=None, bound=None):
    """The reference of all."""
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
    if bound is not None:
        scores = bound * (scores / bound).tanh()
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
    if hidden is not None:
        scores = scores.masked_fill(but_the_first(hidden)[:, None, None], -torch.inf)
    return torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v)


def plain_hidden(q, k, v, hidden):
    """The reference of `hidden_keys`."""
    return plain(q, k, v, hidden=hidden)


def plain_clamped(q, k, v, causal=False):
    """The reference of `clamped`."""
    return plain(q, k, v, causal, bound=2.0)


def but_the_first(hidden):
    """A mask without its first key."""
    return torch.cat([torch.zeros_like(hidden[:, :1]), hidden[:, 1:]], 1)


QKV = {name: normal("B T 2 D") for name in "qkv"}
HOW: dict[str, Any] = {"dims": {"B": (1, 2), "T": (4, 1, 6), "D": (4, 1)}, "dtypes": ("float32",)}
BOTH = {"causal": (False, True)}
tiled = gradgate.Pair(flash, reference=plain, inputs=QKV, options=BOTH, name="flash", **HOW)
hidden = gradgate.Pair(hidden_keys, reference=plain_hidden, inputs={**QKV, "hidden": mask("B T")}, **HOW)
bounded = gradgate.Pair(clamped, reference=plain_clamped, inputs=QKV, options=BOTH, **HOW)
usual = gradgate.Pair(default, reference=plain, inputs=QKV, options=BOTH, **HOW)
