"""Attention, scans, sums, convolutions and dropout of PyTorch, with handwritten backward passes."""

from __future__ import annotations

from typing import Any

import torch

from gradgate import Pair, normal, uniform

KEPT = 0.75
"""Share of the numbers that dropout keeps."""


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, causal: bool, block: int) -> Any:
        scale, places = q.shape[-1] ** -0.5, torch.arange(len(k))
        outs, sums = [], []
        for start in range(0, len(q), block):
            scores = q[start : start + block] @ k.T * scale
            if causal:
                rows = start + torch.arange(len(scores))
                scores = scores.masked_fill(places > rows[:, None], -torch.inf)
            lse = torch.logsumexp(scores, -1, keepdim=True)
            outs.append((scores - lse).exp() @ v)
            sums.append(lse)
        out, lse = torch.cat(outs), torch.cat(sums)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.causal, ctx.block = causal, block
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, do: Any) -> Any:
        q, k, v, out, lse = ctx.saved_tensors
        scale, places = q.shape[-1] ** -0.5, torch.arange(len(k))
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        delta = (do * out).sum(-1, keepdim=True)
        for start in range(0, len(q), ctx.block):
            stop = start + ctx.block
            scores = q[start:stop] @ k.T * scale
            if ctx.causal:
                rows = start + torch.arange(len(scores))
                scores = scores.masked_fill(places > rows[:, None], -torch.inf)
            p = (scores - lse[start:stop]).exp()
            ds = p * (do[start:stop] @ v.T - delta[start:stop]) * scale
            dq[start:stop] = ds @ k
            dk += ds.T @ q[start:stop]
            dv += p.T @ do[start:stop]
        return dq, dk, dv, None, None


def attention(q: Any, k: Any, v: Any, causal: bool = False, block: int = 4) -> Any:
    """Attention of (N, D) queries, keys and values, `block` rows at a time, which keeps no N×N matrix."""
    return _Attention.apply(q, k, v, causal, block)


def plain_attention(q: Any, k: Any, v: Any, causal: bool = False) -> Any:
    """Attention of (N, D) queries, keys and values."""
    scores = q @ k.T / q.shape[-1] ** 0.5
    if causal:
        later = torch.ones_like(scores, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    return torch.softmax(scores, -1) @ v


attending = Pair(
    attention,
    plain_attention,
    inputs={"q": normal("N D"), "k": normal("N D"), "v": normal("N D")},
    dims={"N": (4, 1, 7, 18), "D": (3, 8)},
    options={"causal": (False, True), "block": (4, 1, 16)},
    regimes={"confident": lambda given: given | {"q": 10 * given["q"]}},
    disclaims=("second_order",),
)


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Any, b: Any, start: Any, chunk: int) -> Any:
        states, kept, h = [], [], start
        for t in range(len(a)):
            if t % chunk == 0:
                kept.append(h)
            h = a[t] * h + b[t]
            states.append(h)
        ctx.save_for_backward(a, b, *kept)
        ctx.chunk = chunk
        return torch.stack(states), h.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dstates: Any, dlast: Any) -> Any:
        a, b, *kept = ctx.saved_tensors
        da, db, carry = torch.empty_like(a), torch.empty_like(b), dlast
        for number in reversed(range(len(kept))):
            first = number * ctx.chunk
            before, h = [], kept[number]
            for t in range(first, min(first + ctx.chunk, len(a))):
                before.append(h)
                h = a[t] * h + b[t]
            for t in reversed(range(first, first + len(before))):
                carry = carry + dstates[t]
                da[t] = carry * before[t - first]
                db[t] = carry
                carry = carry * a[t]
        return da, db, carry, None


def recurrence(a: Any, b: Any, start: Any, chunk: int = 4) -> Any:
    """h_t = a_t·h_{t−1} + b_t: all states and the last; keeps one state for every chunk."""
    return _Recurrence.apply(a, b, start, chunk)


def plain_recurrence(a: Any, b: Any, start: Any) -> Any:
    """h_t = a_t·h_{t−1} + b_t: all states and the last."""
    states, h = [], start
    for t in range(len(a)):
        h = a[t] * h + b[t]
        states.append(h)
    return torch.stack(states), h


recurring = Pair(
    recurrence,
    plain_recurrence,
    inputs={"a": uniform("T H", 0.3, 1.0), "b": normal("T H"), "start": normal("H")},
    dims={"T": (4, 1, 3, 11), "H": (2, 5)},
    options={"chunk": (4, 1, 3, 100)},
)


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, rate: Any, reverse: bool) -> Any:
        w = torch.exp(-rate)
        y = x * w
        y = y.flip(0).cumsum(0).flip(0) if reverse else y.cumsum(0)
        ctx.save_for_backward(x, rate)
        ctx.reverse = reverse
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Any) -> Any:
        x, rate = ctx.saved_tensors
        summed = dy.cumsum(0) if ctx.reverse else dy.flip(0).cumsum(0).flip(0)
        w = torch.exp(-rate)
        return summed * w, -(summed * x * w).sum(0), None


def weighted_sum(x: Any, rate: Any, reverse: bool = False) -> Any:
    """Cumulative sums of x·exp(−rate) along axis 0, from either end."""
    return _WeightedSum.apply(x, rate, reverse)


def plain_weighted_sum(x: Any, rate: Any, reverse: bool = False) -> Any:
    """Cumulative sums of x·exp(−rate) along axis 0, from either end."""
    y = x * torch.exp(-rate)
    return y.flip(0).cumsum(0).flip(0) if reverse else y.cumsum(0)


cumulative = Pair(
    weighted_sum,
    plain_weighted_sum,
    inputs={"x": normal("T H"), "rate": normal("H", scale=0.5)},
    dims={"T": (5, 1, 0, 24), "H": (3, 1)},
    options={"reverse": (False, True)},
)


class _ShortConvolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, bias: Any) -> Any:
        y = bias.expand_as(x).clone()
        for lag in range(min(len(weight), len(x))):
            y[lag:] += weight[lag] * x[: len(x) - lag]
        ctx.save_for_backward(x, weight)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Any) -> Any:
        x, weight = ctx.saved_tensors
        dx, dweight = torch.zeros_like(x), torch.zeros_like(weight)
        for lag in range(min(len(weight), len(x))):
            dx[: len(x) - lag] += weight[lag] * dy[lag:]
            dweight[lag] = (dy[lag:] * x[: len(x) - lag]).sum(0)
        return dx, dweight, dy.sum(0)


def short_convolution(x: Any, weight: Any, bias: Any) -> Any:
    """Causal convolution of each of C channels with K taps: (T, C), (K, C), (C,) -> (T, C)."""
    return _ShortConvolution.apply(x, weight, bias)


def plain_short_convolution(x: Any, weight: Any, bias: Any) -> Any:
    """Causal convolution of each of C channels with K taps."""
    padded = torch.cat([torch.zeros_like(weight), x])[1:]
    windows = torch.stack([padded[len(weight) - 1 - lag :][: len(x)] for lag in range(len(weight))])
    return (windows * weight[:, None]).sum(0) + bias


convolved = Pair(
    short_convolution,
    plain_short_convolution,
    inputs={"x": normal("T C"), "weight": normal("K C"), "bias": normal("C")},
    dims={"T": (5, 1, 2, 17), "C": (3, 1), "K": (4, 1)},
    disclaims=("second_order",),
)


class _DropoutLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any) -> Any:
        ctx.state = torch.get_rng_state()
        keep = torch.rand(x.shape, dtype=torch.float32) < KEPT
        ctx.save_for_backward(x, weight)
        return (x * keep / KEPT) @ weight.T

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Any) -> Any:
        x, weight = ctx.saved_tensors
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(ctx.state)
            keep = torch.rand(x.shape, dtype=torch.float32) < KEPT
        return dy @ weight * keep / KEPT, dy.T @ (x * keep / KEPT)


def dropout_linear(x: Any, weight: Any) -> Any:
    """Dropout and a matrix; the mask is drawn again in the backward pass, from the same state of the generator."""
    return _DropoutLinear.apply(x, weight)


def plain_dropout_linear(x: Any, weight: Any) -> Any:
    """Dropout and a matrix."""
    keep = torch.rand(x.shape, dtype=torch.float32) < KEPT
    return (x * keep / KEPT) @ weight.T


dropped = Pair(
    dropout_linear,
    plain_dropout_linear,
    inputs={"x": normal("T H"), "weight": normal("V H", scale="H**-0.5")},
    dims={"T": (3, 1, 12), "H": (8, 20), "V": (4, 2)},
    random=True,
)
