# /// script
# dependencies = ["fla-core==0.6.0"]
#
# [tool.gradgate]
# home = "https://github.com/fla-org/flash-linear-attention"
# framework = "torch"
# no-deps = true
# seconds = 600
# limit = 1500
# notes = "kernels of Triton, judged in its interpreter"
# ///
"""Kernels of flash-linear-attention 0.6.0 against their recurrences in plain PyTorch, in Triton's interpreter."""

import torch
from torch.nn import functional

import gradgate
from gradgate import normal, uniform
from gradgate.suites.gallery import kernels
from gradgate.suites.judging.subject import Inapplicable

VERSION = "0.6.0"
SCALE = 0.25
HEADS = {"q": normal("1 T H K"), "k": normal("1 T H K"), "v": normal("1 T H K")}
SHORT = {"T": (1, 5), "H": (1, 2), "K": (16,)}
CHUNKED = {"T": (1, 17, 66), "H": (1, 2), "K": (16,)}
"""Numbers of tokens below and above the chunk length, 64."""
DECAY = uniform("1 T H K", low=-2.0, high=0.0)
"""Logarithms of gates."""


def of(module):
    """A module of ``fla.ops``."""
    return kernels("fla-core", VERSION, f"fla.ops.{module}", bare="fla")


def attention(q, k, v, decay=None):
    """Linear attention, token by token: s ← exp(decay)·s + k ⊗ v, out = scale·q·s. (B, T, H, K) each."""
    state, outputs = torch.zeros_like(k[:, 0, :, :, None] * v[:, 0, :, None, :]), []
    for t in range(q.shape[1]):
        if decay is not None:
            state = state * decay[:, t].exp()[..., None]
        state = state + k[:, t, :, :, None] * v[:, t, :, None, :]
        outputs.append((SCALE * q[:, t, :, :, None] * state).sum(-2))
    return torch.stack(outputs, 1)


def linear_recurrent(q, k, v):
    """Linear attention."""
    return of("linear_attn").fused_recurrent_linear_attn(q, k, v, scale=SCALE, normalize=False)[0]


def linear_chunk(q, k, v):
    """Linear attention in chunks."""
    return of("linear_attn").chunk_linear_attn(q, k, v, scale=SCALE, normalize=False)[0]


def gla_recurrent(q, k, v, g):
    """Gated linear attention."""
    return of("gla").fused_recurrent_gla(q, k, v, g, scale=SCALE)[0]


def gla_chunk(q, k, v, g):
    """Gated linear attention in chunks."""
    return of("gla").chunk_gla(q, k, v, g, scale=SCALE)[0]


def simple_gla_chunk(q, k, v, g):
    """Gated linear attention with one gate for each head, in chunks."""
    return of("simple_gla").chunk_simple_gla(q, k, v, g, scale=SCALE)[0]


def plain_simple_gla(q, k, v, g):
    """The reference for `simple_gla_chunk`."""
    return attention(q, k, v, g[..., None])


def retention_chunk(q, k, v):
    """Retention in chunks."""
    return of("retention").chunk_retention(q, k, v, scale=SCALE)[0]


def plain_retention(q, k, v):
    """The reference for `retention_chunk`: head h decays by the factor 1 − 2^(−5−h)."""
    decay = torch.log1p(-(2.0 ** (-5 - torch.arange(q.shape[2], dtype=q.dtype))))
    return attention(q, k, v, decay[None, None, :, None].expand(1, q.shape[1], -1, 1))


def hgrn_recurrent(x, g):
    """H ← exp(g)·h + x; (B, T, D)."""
    return of("hgrn").fused_recurrent_hgrn(x, g)[0]


def plain_hgrn(x, g):
    """The reference for `hgrn_recurrent`."""
    state, outputs = torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        state = state * g[:, t].exp() + x[:, t]
        outputs.append(state)
    return torch.stack(outputs, 1)


def delta_recurrent(q, k, v, beta):
    """The delta rule."""
    return of("delta_rule").fused_recurrent_delta_rule(q, functional.normalize(k, dim=-1), v, beta, scale=SCALE)[0]


def delta_chunk(q, k, v, beta):
    """The delta rule in chunks."""
    if q.dtype == torch.float32:
        raise Inapplicable("it takes bfloat16 only; a gradient in bfloat16 is judged only if it runs in float32, too")
    return of("delta_rule").chunk_delta_rule(q, functional.normalize(k, dim=-1), v, beta, scale=SCALE)[0]


def plain_delta(q, k, v, beta):
    """The reference for `delta_recurrent`: s ← s + k ⊗ β(v − k·s)."""
    k = functional.normalize(k, dim=-1)
    state, outputs = torch.zeros_like(k[:, 0, :, :, None] * v[:, 0, :, None, :]), []
    for t in range(q.shape[1]):
        news = beta[:, t, :, None] * (v[:, t] - (state * k[:, t, :, :, None]).sum(-2))
        state = state + k[:, t, :, :, None] * news[:, :, None]
        outputs.append((SCALE * q[:, t, :, :, None] * state).sum(-2))
    return torch.stack(outputs, 1)


def _pair(function, reference, inputs, dims, at=None, **how):
    """A pair whose kept bytes grow no faster than the number of tokens."""
    law = gradgate.grows("residual_bytes", T=1, sizes={"T": (256, 512, 1024, 2048, 4096)}, at=at or {"H": 1, "K": 64})
    return gradgate.Pair(
        function,
        reference=reference,
        inputs=inputs,
        dims=dims,
        dtypes=("float32",),
        framework="torch",
        devices=("interpreter",),
        claims=[law],
        **how,
    )


recurrent = _pair(linear_recurrent, attention, HEADS, SHORT)
chunk = _pair(linear_chunk, attention, HEADS, CHUNKED)
gated_recurrent = _pair(gla_recurrent, attention, {**HEADS, "g": DECAY}, SHORT)
gated_chunk = _pair(gla_chunk, attention, {**HEADS, "g": DECAY}, CHUNKED)
simple_chunk = _pair(simple_gla_chunk, plain_simple_gla, {**HEADS, "g": uniform("1 T H", low=-1.0, high=0.0)}, CHUNKED)
retention = _pair(retention_chunk, plain_retention, HEADS, CHUNKED)
hgrn = _pair(
    hgrn_recurrent,
    plain_hgrn,
    {"x": normal("1 T D"), "g": uniform("1 T D", low=-2.0, high=0.0)},
    {"T": (1, 5, 17), "D": (1, 8, 33)},
    at={"D": 64},
)
BETA = uniform("1 T H", low=0.1, high=0.9)
delta = _pair(
    delta_recurrent,
    plain_delta,
    {**HEADS, "beta": BETA},
    SHORT,
    expected={
        "autograd": "the results of its backward pass count as constants, so its second derivative is wrong; autograd "
        "raises no error, because k is normalised outside the kernel"
    },
)
delta_in_chunks = _pair(delta_chunk, plain_delta, {**HEADS, "beta": BETA}, CHUNKED)
