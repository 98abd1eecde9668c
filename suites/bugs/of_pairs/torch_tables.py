"""Losses, tables, routing and solvers of PyTorch, with handwritten backward passes, and plain references."""

from __future__ import annotations

from typing import Any

import torch

from gradgate import Pair, integers, normal

IGNORED = -1
"""A label that does not count in the loss."""


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, labels: Any, reduction: str, chunk: int) -> Any:
        kept = labels != IGNORED
        share = 1 / kept.sum().clamp_min(1).to(x.dtype) if reduction == "mean" else x.new_ones(())
        dx, dweight, total = torch.zeros_like(x), torch.zeros_like(weight), x.new_zeros(())
        for start in range(0, len(x), chunk):
            rows = slice(start, start + chunk)
            logits = x[rows] @ weight.T
            lse = torch.logsumexp(logits, -1)
            here = kept[rows]
            target = labels[rows].clamp_min(0).long()[:, None]
            total += ((lse - logits.gather(1, target)[:, 0]) * here).sum()
            d = torch.softmax(logits, -1)
            d.scatter_add_(1, target, -torch.ones_like(target, dtype=d.dtype))
            d = d * here[:, None] * share
            dx[rows] = d @ weight
            dweight += d.T @ x[rows]
        ctx.save_for_backward(dx, dweight)
        return total * share

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Any) -> Any:
        dx, dweight = ctx.saved_tensors
        return dx * dy, dweight * dy, None, None, None


def cross_entropy(x: Any, weight: Any, labels: Any, reduction: str = "mean", chunk: int = 4) -> Any:
    """Cross entropy of x @ weight.T, `chunk` rows at a time; the gradient is computed in the forward pass."""
    return _CrossEntropy.apply(x, weight, labels, reduction, chunk)


def plain_cross_entropy(x: Any, weight: Any, labels: Any, reduction: str = "mean") -> Any:
    """Cross entropy of x @ weight.T; without any label, the mean is 0."""
    picked = torch.log_softmax(x @ weight.T, -1).gather(1, labels.clamp_min(0).long()[:, None])[:, 0]
    losses = torch.where(labels != IGNORED, -picked, torch.zeros_like(picked))
    return losses.sum() / (labels != IGNORED).sum().clamp_min(1) if reduction == "mean" else losses.sum()


entropy = Pair(
    cross_entropy,
    plain_cross_entropy,
    inputs={"x": normal("T H"), "weight": normal("V H"), "labels": integers("T", low=-1, below="V")},
    dims={"T": (3, 1, 10), "H": (2, 9), "V": (3, 1, 30)},
    options={"reduction": ("mean", "sum"), "chunk": (4, 1, 64)},
    regimes={"confident": lambda given: given | {"x": 50 * given["x"]}},
    disclaims=("second_order",),
)


class _RowsCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Any, labels: Any) -> Any:
        p = torch.softmax(logits, -1)
        ctx.save_for_backward(p, labels)
        at = labels.long()[:, None]
        return (torch.logsumexp(logits, -1, keepdim=True) - logits.gather(1, at))[:, 0]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Any) -> Any:
        p, labels = ctx.saved_tensors
        at = labels.long()[:, None]
        d = p.scatter_add(1, at, -torch.ones_like(at, dtype=p.dtype))
        return d * dy[:, None], None


def rows_cross_entropy(logits: Any, labels: Any) -> Any:
    """The cross entropy of every row: (T, V), (T,) -> (T,)."""
    return _RowsCrossEntropy.apply(logits, labels)


def plain_rows_cross_entropy(logits: Any, labels: Any) -> Any:
    """The cross entropy of every row."""
    return -torch.log_softmax(logits, -1).gather(1, labels.long()[:, None])[:, 0]


rowwise = Pair(
    rows_cross_entropy,
    plain_rows_cross_entropy,
    inputs={"logits": normal("T V"), "labels": integers("T", below="V")},
    dims={"T": (3, 1, 0, 11), "V": (4, 2, 40)},
    regimes={"confident": lambda given: given | {"logits": 40 * given["logits"]}},
)


class _Embedding(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Any, ids: Any, scale: Any, padding: int | None) -> Any:
        ctx.save_for_backward(table, ids, scale)
        ctx.padding = padding
        return table[ids.long()] * scale

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Any) -> Any:
        table, ids, scale = ctx.saved_tensors
        moved = dy * scale
        if ctx.padding is not None:
            moved = moved * (ids != ctx.padding)[:, None]
        dtable = torch.zeros_like(table).index_add(0, ids.long(), moved)
        return dtable, None, (dy * table[ids.long()]).sum(), None


def embedding(table: Any, ids: Any, scale: Any, padding: int | None = None) -> Any:
    """Rows of a table times a number; the row `padding` gets no gradient."""
    return _Embedding.apply(table, ids, scale, padding)


def plain_embedding(table: Any, ids: Any, scale: Any, padding: int | None = None) -> Any:
    """Rows of a table times a number; the row `padding` gets no gradient."""
    rows = table[ids.long()]
    if padding is not None:
        rows = torch.where((ids == padding)[:, None], rows.detach(), rows)
    return rows * scale


embedded = Pair(
    embedding,
    plain_embedding,
    inputs={"table": normal("V H"), "ids": integers("T", below="V"), "scale": normal("")},
    dims={"T": (5, 1, 0, 20), "V": (4, 1, 9), "H": (3, 1)},
    options={"padding": (None, 0)},
)


class _Routing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Any, k: int) -> Any:
        top, places = torch.topk(logits, k, -1)
        weights = torch.softmax(top, -1)
        ctx.save_for_backward(weights, places)
        ctx.experts = logits.shape[-1]
        ctx.mark_non_differentiable(places)
        return weights, places

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dweights: Any, _: Any) -> Any:
        weights, places = ctx.saved_tensors
        inner = (dweights * weights).sum(-1, keepdim=True)
        dtop = weights * (dweights - inner)
        return weights.new_zeros(*weights.shape[:-1], ctx.experts).scatter(-1, places, dtop), None


def routing(logits: Any, k: int = 2) -> Any:
    """The weights of the k best experts of each token, and the numbers of these experts."""
    return _Routing.apply(logits, k)


def plain_routing(logits: Any, k: int = 2) -> Any:
    """The weights of the k best experts of each token, and the numbers of these experts."""
    top, places = torch.topk(logits, k, -1)
    return torch.softmax(top, -1), places


routed = Pair(
    routing,
    plain_routing,
    inputs={"logits": normal("T E")},
    dims={"T": (3, 1, 16), "E": (4, 3, 12)},
    options={"k": (2, 1, 3)},
)


class _Solve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, A: Any, b: Any) -> Any:
        x = torch.linalg.solve(A + 2 * torch.eye(len(A), dtype=A.dtype), b)
        ctx.save_for_backward(A, x)
        return x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dx: Any) -> Any:
        A, x = ctx.saved_tensors
        db = torch.linalg.solve((A + 2 * torch.eye(len(A), dtype=A.dtype)).T, dx)
        return -db @ x.T, db


def solve(A: Any, b: Any) -> Any:
    """Solves (A + 2·1) x = b, by the adjoint system."""
    return _Solve.apply(A, b)


def plain_solve(A: Any, b: Any) -> Any:
    """Solves (A + 2·1) x = b."""
    return torch.linalg.solve(A + 2 * torch.eye(len(A), dtype=A.dtype), b)


solved = Pair(
    solve,
    plain_solve,
    inputs={"A": normal("N N", scale="0.5*N**-0.5"), "b": normal("N M")},
    dims={"N": (3, 1, 8), "M": (2, 1)},
    dtypes=("float64", "float32"),
)
