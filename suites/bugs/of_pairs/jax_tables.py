"""Losses, tables, sorting, solvers and layers of JAX, with handwritten backward passes, and plain references."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from gradgate import Pair, integers, normal

IGNORED = -1
"""A label that does not count in the loss."""


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def cross_entropy(x: Any, weight: Any, labels: Any, reduction: str = "mean") -> Any:
    """Cross entropy of x @ weight.T, without the labels that are ignored."""
    return _cross_entropy_forward(x, weight, labels, reduction)[0]


def _cross_entropy_forward(x: Any, weight: Any, labels: Any, reduction: str) -> Any:
    logits = x @ weight.T
    lse, kept = jax.nn.logsumexp(logits, -1), labels != IGNORED
    picked = jnp.take_along_axis(logits, jnp.maximum(labels, 0)[:, None], 1)[:, 0]
    share = 1 / jnp.maximum(kept.sum(), 1).astype(x.dtype) if reduction == "mean" else jnp.ones((), x.dtype)
    return ((lse - picked) * kept).sum() * share, (x, weight, labels, share)


def _cross_entropy_backward(reduction: str, kept: Any, dy: Any) -> Any:
    x, weight, labels, share = kept
    p = jax.nn.softmax(x @ weight.T, -1)
    d = p - (jnp.arange(p.shape[1]) == labels[:, None])
    d = d * (labels != IGNORED)[:, None] * share * dy
    return d @ weight, d.T @ x, None


cross_entropy.defvjp(_cross_entropy_forward, _cross_entropy_backward)


def plain_cross_entropy(x: Any, weight: Any, labels: Any, reduction: str = "mean") -> Any:
    """Cross entropy of x @ weight.T; without any label, the mean is 0."""
    picked = jnp.take_along_axis(jax.nn.log_softmax(x @ weight.T, -1), jnp.maximum(labels, 0)[:, None], 1)[:, 0]
    losses = jnp.where(labels != IGNORED, -picked, 0)
    return losses.sum() / jnp.maximum((labels != IGNORED).sum(), 1) if reduction == "mean" else losses.sum()


entropy = Pair(
    cross_entropy,
    plain_cross_entropy,
    inputs={"x": normal("T H"), "weight": normal("V H"), "labels": integers("T", low=-1, below="V")},
    dims={"T": (3, 1, 10), "H": (2, 9), "V": (3, 1, 30)},
    options={"reduction": ("mean", "sum")},
    composes=("jit",),
    regimes={"confident": lambda given: given | {"x": 50 * given["x"]}},
)


@jax.custom_vjp
def embedding(table: Any, ids: Any, scale: Any) -> Any:
    """Rows of a table times a number."""
    return table[ids] * scale


embedding.defvjp(
    lambda table, ids, scale: (table[ids] * scale, (table, ids, scale)),
    lambda kept, dy: (
        jnp.zeros_like(kept[0]).at[kept[1]].add(dy * kept[2]),
        None,
        (dy * kept[0][kept[1]]).sum(),
    ),
)


def plain_embedding(table: Any, ids: Any, scale: Any) -> Any:
    """Rows of a table times a number, picked by a product with zeros and ones."""
    return (ids[:, None] == jnp.arange(len(table))).astype(table.dtype) @ table * scale


embedded = Pair(
    embedding,
    plain_embedding,
    inputs={"table": normal("V H"), "ids": integers("T", below="V"), "scale": normal("")},
    dims={"T": (5, 1, 0, 20), "V": (4, 1, 9), "H": (3, 1)},
    composes=("jit", "vmap"),
)


@jax.custom_vjp
def sorting(x: Any, weight: Any) -> Any:
    """(x sorted along its last axis times a weight of each rank, the order)."""
    order = jnp.argsort(x, -1)
    return jnp.take_along_axis(x, order, -1) * weight, order


def _sorting_forward(x: Any, weight: Any) -> Any:
    y, order = sorting(x, weight)
    return (y, order), (x, weight, order)


def _sorting_backward(kept: Any, cotangents: Any) -> Any:
    x, weight, order = kept
    dy, _ = cotangents
    inverse = jnp.argsort(order, -1)
    dx = jnp.take_along_axis(dy * weight, inverse, -1)
    return dx, (dy * jnp.take_along_axis(x, order, -1)).sum(0)


sorting.defvjp(_sorting_forward, _sorting_backward)


def plain_sorting(x: Any, weight: Any) -> Any:
    """(x sorted along its last axis times a weight of each rank, the order)."""
    return jnp.sort(x, -1) * weight, jnp.argsort(x, -1)


ordered = Pair(
    sorting,
    plain_sorting,
    inputs={"x": normal("T E"), "weight": normal("E")},
    dims={"T": (3, 1, 10), "E": (4, 1, 9)},
    composes=("jit",),
)


@jax.custom_vjp
def solve(A: Any, b: Any) -> Any:
    """Solves (A + 2·1) x = b, by the adjoint system."""
    return jnp.linalg.solve(A + 2 * jnp.eye(len(A), dtype=A.dtype), b)


def _solve_forward(A: Any, b: Any) -> Any:
    x = solve(A, b)
    return x, (A, x)


def _solve_backward(kept: Any, dx: Any) -> Any:
    A, x = kept
    db = jnp.linalg.solve((A + 2 * jnp.eye(len(A), dtype=A.dtype)).T, dx)
    return -db @ x.T, db


solve.defvjp(_solve_forward, _solve_backward)


def plain_solve(A: Any, b: Any) -> Any:
    """Solves (A + 2·1) x = b."""
    return jnp.linalg.solve(A + 2 * jnp.eye(len(A), dtype=A.dtype), b)


solved = Pair(
    solve,
    plain_solve,
    inputs={"A": normal("N N", scale="0.5*N**-0.5"), "b": normal("N M")},
    dims={"N": (3, 1, 8), "M": (2, 1)},
    dtypes=("float64", "float32"),
    composes=("jit",),
)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def layers(x: Any, weights: Any, keep_every: int = 1) -> Any:
    """Applies tanh layers to x; `weights` is a list of (matrix, bias). Every `keep_every`-th activation is kept."""
    return _layers_forward(x, weights, keep_every)[0]


def _layers_forward(x: Any, weights: Any, keep_every: int) -> Any:
    kept = []
    for number, (matrix, bias) in enumerate(weights):
        if number % keep_every == 0:
            kept.append(x)
        x = jnp.tanh(x @ matrix + bias)
    return x, (kept, weights)


def _layers_backward(keep_every: int, saved: Any, dy: Any) -> Any:
    kept, weights = saved
    grads: list[Any] = [None] * len(weights)
    for number in reversed(range(len(weights))):
        x = kept[number // keep_every]
        for matrix, bias in weights[number - number % keep_every : number]:
            x = jnp.tanh(x @ matrix + bias)
        matrix, bias = weights[number]
        dz = dy * (1 - jnp.tanh(x @ matrix + bias) ** 2)
        grads[number] = (x.T @ dz, dz.sum(0))
        dy = dz @ matrix.T
    return dy, grads


layers.defvjp(_layers_forward, _layers_backward)


def plain_layers(x: Any, weights: Any) -> Any:
    """Applies tanh layers to x."""
    for matrix, bias in weights:
        x = jnp.tanh(x @ matrix + bias)
    return x


layered = Pair(
    layers,
    plain_layers,
    inputs={"x": normal("T H"), "weights": [(normal("H H", scale="H**-0.5"), normal("H")) for _ in range(3)]},
    dims={"T": (3, 1, 12), "H": (4, 1, 10)},
    options={"keep_every": (1, 2, 3)},
    composes=("jit",),
)
