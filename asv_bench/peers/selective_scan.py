"""`selective_scan` compared with other code: ``python asv_bench/peers/selective_scan.py [--framework jax|torch]``.

The script measures the recurrence of Mamba 1 in float32, with step sizes delta: the decays are exp(delta·A). If a peer
is not installed, its row says so.
"""

from __future__ import annotations

import argparse
import importlib
from typing import Any

import sequences
from sequences import Row


def in_torch(args: argparse.Namespace) -> str:
    """The table of PyTorch."""
    import torch
    from torch.utils.checkpoint import checkpoint

    from gradgate.in_torch import selective_scan

    def run(h: Any, A: Any, b: Any, c: Any, x: Any, delta: Any) -> tuple[Any, Any]:
        ys = []
        for t in range(x.shape[1]):
            h = torch.exp(delta[:, t, :, None] * A) * h + (delta[:, t] * x[:, t])[..., None] * b[:, t, None, :]
            ys.append((h * c[:, t, None, :]).sum(-1))
        return h, torch.stack(ys, 1)

    def start(x: Any) -> Any:
        return x.new_zeros(x.shape[0], x.shape[2], args.state)

    def loop(A: Any, b: Any, c: Any, x: Any, delta: Any) -> Any:
        return run(start(x), A, b, c, x, delta)[1]

    def chunks(A: Any, b: Any, c: Any, x: Any, delta: Any) -> Any:
        h, size, ys = start(x), round(args.length**0.5), []
        for first in range(0, args.length, size):
            here = (leaf[:, first : first + size] for leaf in (b, c, x, delta))
            h, y = checkpoint(run, h, A, *here, use_reentrant=False)
            ys.append(y)
        return torch.cat(ys, 1)

    def ours(**options: Any) -> Any:
        return lambda A, b, c, x, delta: selective_scan(A, b, c, x, delta=delta, **options)

    torch.set_num_threads(1)  # a second thread would wait on a busy machine
    torch.manual_seed(0)
    shape = (1, args.length)
    inputs = [
        -torch.rand(args.channels, args.state) - 0.5,
        torch.randn(*shape, args.state),
        torch.randn(*shape, args.state),
        torch.randn(*shape, args.channels),
        torch.rand(*shape, args.channels),
    ]
    rows = [
        Row("gradgate selective_scan", ours()),
        Row("gradgate selective_scan, associative", ours(associative=True)),
        Row("gradgate selective_scan, one chunk, associative", ours(associative=True, chunk=args.length)),
        Row("torch.utils.checkpoint, chunks of √length", chunks),
        _mambapy(),
        Row("plain autograd, a loop", loop),
    ]
    title = (
        f"PyTorch {torch.__version__}, batch 1, length {args.length}, {args.channels} channels, state {args.state}, "
        f"float32, {torch.get_num_threads()} thread; mambapy {sequences.version('mambapy')}"
    )
    return sequences.table(title, rows, sequences.of_torch(rows, inputs, args.repeats))


def _mambapy() -> Row:
    """The parallel scan of mambapy, with the operations around it as in its Mamba block."""
    name = "mambapy pscan"
    try:
        pscan = importlib.import_module("mambapy.pscan").pscan
    except ImportError as error:
        return Row(name, None, f"not installed: {error}")

    def function(A: Any, b: Any, c: Any, x: Any, delta: Any) -> Any:
        decay = (delta[..., None] * A).exp()
        states = pscan(decay, (delta * x)[..., None] * b[:, :, None, :])
        return (states @ c[..., None])[..., 0]

    return Row(name, function)


def in_jax(args: argparse.Namespace) -> str:
    """The table of JAX."""
    import jax
    import jax.numpy as jnp

    from gradgate.in_jax import selective_scan

    def time_first(*leaves: Any) -> tuple[Any, ...]:
        return tuple(jnp.moveaxis(leaf, 1, 0) for leaf in leaves)

    def token(A: Any, h: Any, xs: Any) -> Any:
        b, c, x, delta = xs
        h = jnp.exp(delta[..., None] * A) * h + (delta * x)[..., None] * b[:, None, :]
        return h, (h * c[:, None, :]).sum(-1)

    def loop(A: Any, b: Any, c: Any, x: Any, delta: Any) -> Any:
        start = jnp.zeros((x.shape[0], x.shape[2], args.state))
        _, y = jax.lax.scan(lambda h, xs: token(A, h, xs), start, time_first(b, c, x, delta))
        return jnp.moveaxis(y, 0, 1)

    def chunks(A: Any, b: Any, c: Any, x: Any, delta: Any) -> Any:
        size = round(args.length**0.5)
        if args.length % size:
            raise SystemExit("--length must be divisible by its rounded square root: chunks have equal length here")

        @jax.checkpoint
        def chunk(h: Any, xs: Any) -> Any:
            return jax.lax.scan(lambda h, xs: token(A, h, xs), h, xs)

        cut = jax.tree.map(lambda leaf: leaf.reshape(-1, size, *leaf.shape[1:]), time_first(b, c, x, delta))
        _, y = jax.lax.scan(chunk, jnp.zeros((x.shape[0], x.shape[2], args.state)), cut)
        return jnp.moveaxis(y.reshape(-1, *y.shape[2:]), 0, 1)

    def prefix(A: Any, b: Any, c: Any, x: Any, delta: Any) -> Any:
        decay = jnp.exp(delta[..., None] * A)
        drive = (delta * x)[..., None] * b[:, :, None, :]
        _, h = jax.lax.associative_scan(lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (decay, drive), axis=1)
        return (h * c[:, :, None, :]).sum(-1)

    def ours(**options: Any) -> Any:
        return lambda A, b, c, x, delta: selective_scan(A, b, c, x, delta=delta, **options)

    keys, shape = jax.random.split(jax.random.key(0), 5), (1, args.length)
    inputs = [
        -jax.random.uniform(keys[0], (args.channels, args.state)) - 0.5,
        jax.random.normal(keys[1], (*shape, args.state)),
        jax.random.normal(keys[2], (*shape, args.state)),
        jax.random.normal(keys[3], (*shape, args.channels)),
        jax.random.uniform(keys[4], (*shape, args.channels)),
    ]
    rows = [
        Row("gradgate selective_scan", ours()),
        Row("gradgate selective_scan, associative", ours(associative=True)),
        Row("jax.checkpoint, chunks of √length", chunks),
        Row("plain autodiff, jax.lax.associative_scan", prefix),
        Row("plain autodiff, jax.lax.scan", loop),
    ]
    title = (
        f"JAX {jax.__version__}, batch 1, length {args.length}, {args.channels} channels, state {args.state}, float32"
    )
    return sequences.table(title, rows, sequences.of_jax(rows, inputs, args.repeats))


if __name__ == "__main__":
    sequences.main(__doc__, {"torch": in_torch, "jax": in_jax}, length=1024, channels=128, state=16)
