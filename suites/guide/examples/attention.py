"""Causal attention in blocks of queries, in JAX and in PyTorch: the residuals do not grow with T × T."""

# ruff: noqa: D102

import functools

import jax
import jax.numpy as jnp
import torch

import gradgate
from gradgate import normal


def plain_jax(q, k, v):
    """softmax(q kᵀ / √D, causal) v. q, k, v: (T, D)."""
    scores = q @ k.T * q.shape[1] ** -0.5
    return jax.nn.softmax(jnp.where(jnp.tril(jnp.ones_like(scores, bool)), scores, -jnp.inf), axis=1) @ v


def in_jax(q, k, v, *, block=16):
    """As `plain_jax`, `block` queries at a time; the backward pass computes their scores again."""
    tokens, width = q.shape
    short = -tokens % block
    blocks = jnp.pad(q, ((0, short), (0, 0))).reshape(-1, block, width)
    places = jnp.arange(tokens + short).reshape(-1, block)

    @jax.checkpoint
    def rows(given):
        q, place = given
        seen = jnp.arange(tokens)[None, :] <= place[:, None]
        return jax.nn.softmax(jnp.where(seen, q @ k.T * width**-0.5, -jnp.inf), axis=1) @ v

    return jax.lax.map(rows, (blocks, places)).reshape(-1, width)[:tokens]


def plain_torch(q, k, v):
    """As `plain_jax`."""
    scores = q @ k.T * q.shape[1] ** -0.5
    future = torch.ones_like(scores, dtype=torch.bool).triu(1)
    return scores.masked_fill(future, -torch.inf).softmax(-1) @ v


class Blocks(torch.autograd.Function):
    """As `plain_torch`. It keeps q, k and v; exp(scores - logsumexp) would lose digits."""

    @staticmethod
    def forward(ctx, q, k, v, block):
        out = torch.empty_like(v)
        for start in range(0, len(q), block):
            out[start : start + block] = _scores(q, k, start, block).softmax(-1) @ v
        ctx.save_for_backward(q, k, v)
        ctx.block = block
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dout):
        q, k, v = ctx.saved_tensors
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for start in range(0, len(q), ctx.block):
            here = slice(start, start + ctx.block)
            p = _scores(q, k, start, ctx.block).softmax(-1)
            dp = dout[here] @ v.T
            ds = p * (dp - (p * dp).sum(-1, keepdim=True)) * q.shape[1] ** -0.5
            dq[here] = ds @ k
            dk += ds.T @ q[here]
            dv += p.T @ dout[here]
        return dq, dk, dv, None


def _scores(q, k, start, block):
    rows = q[start : start + block]
    future = torch.arange(len(k)) > torch.arange(start, start + len(rows))[:, None]
    return (rows @ k.T * q.shape[1] ** -0.5).masked_fill(future, -torch.inf)


def in_torch(q, k, v, *, block=16):
    """As `plain_torch`, `block` queries at a time."""
    return Blocks.apply(q, k, v, block)


declared = functools.partial(
    gradgate.Pair,
    inputs={name: normal("T D") for name in "qkv"},
    dims={"T": (1, 5, 33), "D": (1, 8)},
    options={"block": (1, 16, 64)},
    regimes={"peaked": lambda given: given | {"q": 30 * given["q"]}},
)
attention_jax = declared(
    in_jax,
    reference=plain_jax,
    framework="jax",
    composes=("jit", "vmap", "second_order"),
    claims=[gradgate.grows("temp_bytes", T=1, at={"D": 8}), gradgate.grows("residual_bytes", T=1)],
)
attention_torch = declared(
    in_torch,
    reference=plain_torch,
    framework="torch",
    disclaims=("second_order", "vmap"),
    claims=[gradgate.grows("residual_bytes", T=1)],
)
