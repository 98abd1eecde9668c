# /// script
# dependencies = ["einops==0.8.2"]
#
# [tool.gradgate]
# home = "https://github.com/lucidrains/memory-efficient-attention-pytorch"
# framework = "torch"
# judges = "torch"
# no-deps = true
# notes = "attention in chunks under checkpoints, and flash attention in plain PyTorch; a flat layout"
# ///
"""memory-efficient-attention-pytorch: attention in chunks, and flash attention, against plain attention."""

import inspect
import warnings
from typing import Any

import torch
from memory_efficient_attention_pytorch import memory_efficient_attention as library

import gradgate
from gradgate import mask, normal


def chunked(q, k, v, causal=False, seen=None, rows=2, columns=3):
    """Attention in chunks of queries and keys; without the eps that some versions add to the sum of the weights."""
    run = library.memory_efficient_attention if inspect.ismodule(library) else library
    eps = {"eps": 0.0} if "eps" in inspect.signature(run).parameters else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library does not say how it checkpoints
        return run(q, k, v, mask=seen, causal=causal, q_bucket_size=rows, k_bucket_size=columns, **eps)


def in_large_chunks(q, k, v, causal=False):
    """As `chunked`, in chunks of 32 queries and keys."""
    return chunked(q, k, v, causal, rows=32, columns=32)


def hidden_keys(q, k, v, hidden):
    """As `chunked`, with a mask of the keys that are not seen; the first key always is."""
    return chunked(q, k, v, seen=but_the_first(hidden))


def flash(q, k, v, causal=False):
    """Flash attention in tiles of 2 queries and 3 keys."""
    from memory_efficient_attention_pytorch.flash_attention import FlashAttentionFunction

    return FlashAttentionFunction.apply(q, k, v, None, causal, 2, 3)


def cosine_flash(q, k, v):
    """Flash attention with a scale, for queries and keys of length 1."""
    from memory_efficient_attention_pytorch.cosine_sim_flash_attention import FlashAttentionFunction

    q, k = torch.nn.functional.normalize(q, dim=-1), torch.nn.functional.normalize(k, dim=-1)
    return FlashAttentionFunction.apply(q, k, v, None, 4, False, 2, 3)


def plain(q, k, v, causal=False, hidden=None, scale=None):
    """The reference of all."""
    scores = q @ k.mT * (scale or q.shape[-1] ** -0.5)
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
    if hidden is not None:
        scores = scores.masked_fill(but_the_first(hidden)[:, None, None], -torch.inf)
    return scores.softmax(-1) @ v


def plain_cosine(q, k, v):
    """The reference of `cosine_flash`."""
    q, k = torch.nn.functional.normalize(q, dim=-1), torch.nn.functional.normalize(k, dim=-1)
    return plain(q, k, v, scale=4)


def plain_hidden(q, k, v, hidden):
    """The reference of `hidden_keys`."""
    return plain(q, k, v, hidden=hidden)


def but_the_first(hidden):
    """A mask without its first key."""
    return torch.cat([torch.zeros_like(hidden[:, :1]), hidden[:, 1:]], 1)


QKV = {name: normal("B 2 T D") for name in "qkv"}
SIZES = {"B": (1, 2), "T": (5, 1, 3, 16), "D": (4, 1)}
BOTH, CAUSAL = {"causal": (False, True)}, {"causal": (True,)}
PEAKED = {"peaked": lambda given: given | {"q": 30 * given["q"], "k": 30 * given["k"]}}
CHUNKED: dict[str, Any] = {"reference": plain, "inputs": QKV, "dims": SIZES, "by_backward": True}
LONG = [{"B": 1, "T": 128, "D": 1}]
full = gradgate.Pair(chunked, name="full", **CHUNKED)
causal = gradgate.Pair(chunked, options=CAUSAL, name="causal", **CHUNKED)
large = gradgate.Pair(in_large_chunks, options=CAUSAL, measured=LONG, name="large", **CHUNKED)
peaked = gradgate.Pair(chunked, options=BOTH, regimes=PEAKED, name="peaked", **CHUNKED)
hidden = gradgate.Pair(
    hidden_keys, reference=plain_hidden, inputs={**QKV, "hidden": mask("B T")}, dims=SIZES, by_backward=True
)
FLASH: dict[str, Any] = {"reference": plain, "inputs": QKV, "dims": SIZES, "options": BOTH, "dtypes": ("float32",)}
tiled = gradgate.Pair(flash, name="flash", **FLASH)
softened = gradgate.Pair(flash, name="softened", approximates=gradgate.within(1e-8), **FLASH)
cosine = gradgate.Pair(
    cosine_flash,
    reference=plain_cosine,
    inputs=QKV,
    dims=SIZES,
    dtypes=("float32",),
    expected={"autograd": "it makes no graph of its gradient, and the normalisation of queries and keys makes one"},
    name="cosine",
)
