"""`linear_attention` compared with other code: ``python asv_bench/peers/linear_attention.py [--framework jax|torch]``.

The script measures causal attention with the feature map elu(x) + 1, in float32. If a peer is not installed, its row
says so.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import warnings
from typing import Any

import sequences
from sequences import Row

CHUNK = 64


def in_torch(args: argparse.Namespace) -> str:
    """The table of PyTorch."""
    import torch
    from torch.utils.checkpoint import checkpoint

    from gradgate.in_torch import linear_attention

    def features(x: Any) -> Any:
        return torch.nn.functional.elu(x) + 1

    def matrix(q: Any, k: Any, v: Any) -> Any:
        w = torch.tril(features(q) @ features(k).mT)
        return w @ v / w.sum(-1, keepdim=True)

    def prefix_sums(q: Any, k: Any, v: Any) -> Any:
        q, k, v = features(q), features(k), torch.cat([v, torch.ones_like(v[..., :1])], -1)
        out = torch.einsum("...ldm,...lm->...ld", torch.cumsum(v[..., :, None] * k[..., None, :], -3), q)
        return out[..., :-1] / out[..., -1:]

    def chunk(state: Any, q: Any, k: Any, v: Any) -> Any:
        q, k, v = features(q), features(k), torch.cat([v, torch.ones_like(v[..., :1])], -1)
        out = torch.tril(q @ k.mT) @ v + q @ state
        return state + k.mT @ v, out[..., :-1] / out[..., -1:]

    def checkpointed_chunks(q: Any, k: Any, v: Any) -> Any:
        state, outs = q.new_zeros((*q.shape[:-2], q.shape[-1], v.shape[-1] + 1)), []
        for first in range(0, q.shape[-2], CHUNK):
            here = (x[..., first : first + CHUNK, :] for x in (q, k, v))
            state, out = checkpoint(chunk, state, *here, use_reentrant=False)
            outs.append(out)
        return torch.cat(outs, -2)

    torch.set_num_threads(1)  # a second thread would wait on a busy machine
    torch.manual_seed(0)
    inputs = [torch.randn(1, args.heads, args.length, args.width) for _ in range(3)]
    rows = [
        Row("gradgate linear_attention", lambda q, k, v: linear_attention(q, k, v, chunk=CHUNK)),
        Row("torch.utils.checkpoint, each chunk", checkpointed_chunks),
        Row("torch.utils.checkpoint, whole", lambda q, k, v: checkpoint(matrix, q, k, v, use_reentrant=False)),
        _performer_pytorch(features),
        Row("plain autograd, prefix sums", prefix_sums),
        Row("plain autograd, matrix", matrix),
    ]
    title = (
        f"PyTorch {torch.__version__}, {args.heads} heads, length {args.length}, width {args.width}, float32, "
        f"{torch.get_num_threads()} thread; performer-pytorch {sequences.version('performer-pytorch')}"
    )
    return sequences.table(title, rows, sequences.of_torch(rows, inputs, args.repeats))


def _performer_pytorch(features: Any) -> Row:
    """The attention of performer-pytorch without its CUDA code."""
    name = "performer-pytorch, without CUDA"
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            peer = importlib.import_module("performer_pytorch.performer_pytorch")
    except ImportError as error:
        return Row(name, None, f"not installed: {error}")

    def function(q: Any, k: Any, v: Any) -> Any:
        # Its chunk_size is the number of chunks.
        return peer.causal_linear_attention_noncuda(features(q), features(k), v, chunk_size=q.shape[-2] // CHUNK)

    return Row(name, function)


def in_jax(args: argparse.Namespace) -> str:
    """The table of JAX."""
    import jax
    import jax.numpy as jnp

    from gradgate.in_jax import linear_attention

    def features(x: Any) -> Any:
        return jax.nn.elu(x) + 1

    def matrix(q: Any, k: Any, v: Any) -> Any:
        w = jnp.tril(features(q) @ features(k).mT)
        return w @ v / w.sum(-1, keepdims=True)

    def prefix_sums(q: Any, k: Any, v: Any) -> Any:
        q, k, v = features(q), features(k), jnp.concatenate([v, jnp.ones_like(v[..., :1])], -1)
        out = jnp.einsum("...ldm,...lm->...ld", jnp.cumsum(v[..., :, None] * k[..., None, :], -3), q)
        return out[..., :-1] / out[..., -1:]

    @jax.checkpoint
    def chunk(state: Any, xs: Any) -> Any:
        q, k, v = xs
        q, k, v = features(q), features(k), jnp.concatenate([v, jnp.ones_like(v[..., :1])], -1)
        out = jnp.tril(q @ k.mT) @ v + q @ state
        return state + k.mT @ v, out[..., :-1] / out[..., -1:]

    def checkpointed_chunks(q: Any, k: Any, v: Any) -> Any:
        def cut(x: Any) -> Any:
            return jnp.moveaxis(x.reshape(*x.shape[:-2], -1, CHUNK, x.shape[-1]), -3, 0)

        start = jnp.zeros((*q.shape[:-2], q.shape[-1], v.shape[-1] + 1))
        _, out = jax.lax.scan(chunk, start, (cut(q), cut(k), cut(v)))
        return jnp.moveaxis(out, 0, -3).reshape(v.shape)

    keys = jax.random.split(jax.random.key(0), 3)
    inputs = [jax.random.normal(key, (1, args.heads, args.length, args.width)) for key in keys]
    rows = [
        Row("gradgate linear_attention", lambda q, k, v: linear_attention(q, k, v, chunk=CHUNK)),
        Row("jax.checkpoint, each chunk", checkpointed_chunks),
        Row("jax.checkpoint, whole", jax.checkpoint(matrix)),
        Row("plain autodiff, prefix sums", prefix_sums),
        Row("plain autodiff, matrix", matrix),
    ]
    title = f"JAX {jax.__version__}, {args.heads} heads, length {args.length}, width {args.width}, float32"
    return sequences.table(title, rows, sequences.of_jax(rows, inputs, args.repeats))


if __name__ == "__main__":
    sequences.main(__doc__, {"torch": in_torch, "jax": in_jax}, length=2048, heads=4, width=64)
