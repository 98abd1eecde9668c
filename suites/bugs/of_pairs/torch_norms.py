"""Pointwise functions, norms and softmax of PyTorch, with handwritten backward passes, and plain references."""

from __future__ import annotations

from typing import Any

import torch

from gradgate import Pair, integers, mask, normal


class _SiluGate(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any, gate: Any) -> Any:
        return x * torch.sigmoid(x) * gate

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        x, gate = ctx.saved_tensors
        s = torch.sigmoid(x)
        dx = dy * gate * s * (1 + x * (1 - s))
        dgate = dy * x * s
        return dx, dgate


def silu_gate(x: Any, gate: Any) -> Any:
    """SiLU(x)·gate, which keeps only its inputs."""
    return _SiluGate.apply(x, gate)


def plain_silu_gate(x: Any, gate: Any) -> Any:
    """SiLU(x)·gate."""
    return torch.nn.functional.silu(x) * gate


gated = Pair(
    silu_gate,
    plain_silu_gate,
    inputs={"x": normal("T H"), "gate": normal("T H")},
    dims={"T": (3, 1, 0, 20), "H": (5, 1, 8)},
    composes=("compile", "vmap", "second_order"),
    regimes={"large": lambda given: given | {"x": 30 * given["x"]}},
)


class _LogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, dim: int) -> Any:
        top = x.amax(dim, keepdim=True)
        y = (x - top).exp().sum(dim, keepdim=True).log() + top
        ctx.save_for_backward(x, y)
        ctx.dim = dim
        return y.squeeze(dim)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Any) -> Any:
        x, y = ctx.saved_tensors
        return (x - y).exp() * dy.unsqueeze(ctx.dim), None


def logsumexp(x: Any, dim: int = -1) -> Any:
    """The logarithm of Σ exp x along `dim`."""
    return _LogSumExp.apply(x, dim)


def plain_logsumexp(x: Any, dim: int = -1) -> Any:
    """The logarithm of Σ exp x along `dim`."""
    return torch.logsumexp(x, dim)


summed = Pair(
    logsumexp,
    plain_logsumexp,
    inputs={"x": normal("T H")},
    dims={"T": (4, 1, 19), "H": (6, 1, 33)},
    options={"dim": (-1, 0)},
    regimes={"confident": lambda given: given | {"x": 200 * given["x"]}},
    disclaims=("second_order",),
)


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(x: Any, weight: Any, eps: float) -> Any:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * weight

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, weight, ctx.eps = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        x, weight = ctx.saved_tensors
        return (*_RmsNormBackward.apply(x, weight, dy, ctx.eps), None)


class _RmsNormBackward(torch.autograd.Function):
    @staticmethod
    def forward(x: Any, weight: Any, dy: Any, eps: float) -> Any:
        r = torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
        g = dy * weight
        dx = r * g - x * r**3 * (g * x).mean(-1, keepdim=True)
        return dx, (dy * x * r).sum(0)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, weight, dy, ctx.eps = inputs
        ctx.save_for_backward(x, weight, dy)

    @staticmethod
    def backward(ctx: Any, u: Any, v: Any) -> Any:
        """The derivative of ⟨u, dx⟩ + ⟨v, dweight⟩, by hand."""
        x, weight, dy = ctx.saved_tensors
        r = torch.rsqrt((x * x).mean(-1, keepdim=True) + ctx.eps)
        g, m = dy * weight, x.shape[-1]
        p = (g * x).mean(-1, keepdim=True)
        ux, ug = (u * x).sum(-1, keepdim=True), (u * g).sum(-1, keepdim=True)
        q = (dy * v * x).sum(-1, keepdim=True)
        dr = ug - 3 * r**2 * p * ux + q  # with respect to r, as a separate variable
        dx = -u * r**3 * p - ux * r**3 * g / m + dy * v * r - dr * r**3 * x / m
        dg = u * r - ux * r**3 * x / m
        return dx, (dg * dy).sum(0), dg * weight + v * x * r, None


def rms_norm(x: Any, weight: Any, eps: float = 1e-6) -> Any:
    """RMSNorm over the last axis, with a handwritten derivative and second derivative."""
    return _RmsNorm.apply(x, weight, eps)


def plain_rms_norm(x: Any, weight: Any, eps: float = 1e-6) -> Any:
    """RMSNorm over the last axis."""
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight


normed = Pair(
    rms_norm,
    plain_rms_norm,
    inputs={"x": normal("T H"), "weight": normal("H", mean=1.0, scale=0.3)},
    dims={"T": (3, 1, 17), "H": (4, 2, 31)},
    options={"eps": (1e-6, 0.5)},
    composes=("second_order", "compile"),
)


class _AddLayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, residual: Any, weight: Any, bias: Any) -> Any:
        h = x + residual
        centred = h - h.mean(-1, keepdim=True)
        r = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + 1e-5)
        ctx.save_for_backward(h, r, weight)
        return centred * r * weight + bias, h

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Any, dh: Any) -> Any:
        h, r, weight = ctx.saved_tensors
        hat = (h - h.mean(-1, keepdim=True)) * r
        g = dy * weight
        dx = r * (g - g.mean(-1, keepdim=True) - hat * (g * hat).mean(-1, keepdim=True)) + dh
        dweight = (dy * hat).sum(0)
        dbias = dy.sum(0)
        return dx, dx, dweight, dbias


def add_layer_norm(x: Any, residual: Any, weight: Any, bias: Any) -> Any:
    """(LayerNorm(x + residual)·weight + bias, x + residual)."""
    return _AddLayerNorm.apply(x, residual, weight, bias)


def plain_add_layer_norm(x: Any, residual: Any, weight: Any, bias: Any) -> Any:
    """(LayerNorm(x + residual)·weight + bias, x + residual)."""
    h = x + residual
    return torch.nn.functional.layer_norm(h, h.shape[-1:], weight, bias, 1e-5), h


added = Pair(
    add_layer_norm,
    plain_add_layer_norm,
    inputs={"x": normal("T H"), "residual": normal("T H"), "weight": normal("H", mean=1.0), "bias": normal("H")},
    dims={"T": (3, 1, 16), "H": (5, 3, 24)},
    disclaims=("second_order",),
)


class _GroupedNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, z: Any, weight: Any, groups: int, first: bool) -> Any:
        s = torch.sigmoid(z)
        silu = z * s
        h = x if first else x * silu
        parted = h.unflatten(-1, (groups, -1))
        r = torch.rsqrt((parted * parted).mean(-1, keepdim=True) + 1e-6)
        normed = (parted * r).flatten(-2)
        ctx.save_for_backward(x, z, weight, r)
        ctx.groups, ctx.first = groups, first
        return normed * weight * (silu if first else 1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Any) -> Any:
        x, z, weight, r = ctx.saved_tensors
        s = torch.sigmoid(z)
        silu, slope = z * s, s * (1 + z * (1 - s))
        h = (x if ctx.first else x * silu).unflatten(-1, (ctx.groups, -1))
        hat = h * r
        back = dy * silu if ctx.first else dy
        g = (back * weight).unflatten(-1, (ctx.groups, -1))
        dh = (r * (g - hat * (g * hat).mean(-1, keepdim=True))).flatten(-2)
        dweight = (back * hat.flatten(-2)).sum(0)
        dsilu = dy * hat.flatten(-2) * weight if ctx.first else dh * x
        return dh if ctx.first else dh * silu, dsilu * slope, dweight, None, None


def grouped_norm(x: Any, z: Any, weight: Any, groups: int = 1, gate_last: bool = True) -> Any:
    """RMSNorm of each group of channels, gated by SiLU(z) after the norm or before it."""
    return _GroupedNorm.apply(x, z, weight, groups, gate_last)


def plain_grouped_norm(x: Any, z: Any, weight: Any, groups: int = 1, gate_last: bool = True) -> Any:
    """RMSNorm of each group of channels, gated by SiLU(z) after the norm or before it."""
    gate = torch.nn.functional.silu(z)
    h = x if gate_last else x * gate
    parted = h.reshape(*h.shape[:-1], groups, -1)
    out = (parted / torch.sqrt((parted * parted).mean(-1, keepdim=True) + 1e-6)).reshape(h.shape) * weight
    return out * gate if gate_last else out


grouped = Pair(
    grouped_norm,
    plain_grouped_norm,
    inputs={"x": normal("T H"), "z": normal("T H"), "weight": normal("H", mean=1.0)},
    dims={"T": (3, 1, 9), "H": (4, 12)},
    options={"groups": (1, 2, 4), "gate_last": (True, False)},
)


class _MaskedSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, keep: Any) -> Any:
        masked = x.masked_fill(~keep, -1e30)
        y = (masked - masked.amax(-1, keepdim=True)).exp() * keep
        y = y / y.sum(-1, keepdim=True).clamp_min(1e-30)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        (y,) = ctx.saved_tensors
        return y * (dy - (dy * y).sum(-1, keepdim=True)), None


def masked_softmax(x: Any, keep: Any) -> Any:
    """Softmax over the kept entries of the last axis, 0 elsewhere; a row without kept entries is 0."""
    return _MaskedSoftmax.apply(x, keep)


def plain_masked_softmax(x: Any, keep: Any) -> Any:
    """Softmax over the kept entries of the last axis, 0 elsewhere; a row without kept entries is 0."""
    some = keep.any(-1, keepdim=True)
    weights = torch.softmax(torch.where(keep | ~some, x, -torch.inf), -1)
    return torch.where(some, weights, torch.zeros_like(weights))


masked = Pair(
    masked_softmax,
    plain_masked_softmax,
    inputs={"x": normal("T S"), "keep": mask("T S", share=0.7)},
    dims={"T": (4, 1, 0, 12), "S": (5, 1, 30)},
    regimes={"confident": lambda given: given | {"x": 20 * given["x"]}},
)


class _RaggedMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, lengths: Any) -> Any:
        keep = torch.arange(x.shape[1]) < lengths[:, None]
        ctx.save_for_backward(keep, lengths)
        return torch.where(keep[..., None], x, 0).sum(1) / lengths[:, None]

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        keep, lengths = ctx.saved_tensors
        dx = (dy / lengths[:, None])[:, None, :] * keep[..., None]
        return dx, None


def ragged_mean(x: Any, lengths: Any) -> Any:
    """The mean over the first `lengths` places of each sequence: (N, L, H) -> (N, H)."""
    return _RaggedMean.apply(x, lengths)


def plain_ragged_mean(x: Any, lengths: Any) -> Any:
    """The mean over the first `lengths` places of each sequence."""
    return torch.stack([row[: int(n)].mean(0) for row, n in zip(x, lengths, strict=True)])


ragged = Pair(
    ragged_mean,
    plain_ragged_mean,
    inputs={"x": normal("N L H"), "lengths": integers("N", low=1, below="L + 1")},
    dims={"N": (3, 1, 5), "L": (4, 1, 9), "H": (2, 6)},
)
