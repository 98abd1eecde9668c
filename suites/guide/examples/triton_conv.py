"""A causal convolution of width 3 with SiLU, in Triton: the backward pass recomputes what is before SiLU."""

import torch
import triton
import triton.language as tl
from torch.nn import functional

import gradgate
from gradgate import normal

TILE = 4


@triton.jit
def _before_silu(x, w, t, d, T, step_t, step_d, D):
    total = tl.zeros(t.shape, tl.float32)
    for j in range(3):
        slot = t - j
        there = (slot >= 0) & (slot < T)
        row = tl.load(x + slot * step_t + d * step_d, mask=there, other=0.0).to(tl.float32)
        total += row * tl.load(w + j * D + d).to(tl.float32)
    return total


@triton.jit
def _forward(x, w, y, last, T, D, step_t, step_d, TILE: tl.constexpr):
    d = tl.program_id(1)
    t = tl.program_id(0) * TILE + tl.arange(0, TILE)
    z = _before_silu(x, w, t, d, T, step_t, step_d, D)
    tl.store(y + t * D + d, z * tl.sigmoid(z), mask=t < T)
    tl.store(last + d + 0 * t, z, mask=t == T - 1)


@triton.jit
def _dz(x, w, dy, dlast, t, d, T, D, step_t, step_d, up_t, up_d):
    z = _before_silu(x, w, t, d, T, step_t, step_d, D)
    s = tl.sigmoid(z)
    upstream = tl.load(dy + t * up_t + d * up_d, mask=t < T, other=0.0).to(tl.float32)
    through_last = tl.load(dlast + d + 0 * t, mask=t == T - 1, other=0.0).to(tl.float32)
    return upstream * s * (1.0 + z * (1.0 - s)) + through_last


@triton.jit
def _backward(x, w, dy, dlast, dx, dw, T, D, step_t, step_d, up_t, up_d, TILE: tl.constexpr):
    d = tl.program_id(1)
    t = tl.program_id(0) * TILE + tl.arange(0, TILE)
    total = tl.zeros([TILE], tl.float32)
    for j in range(3):
        dz = _dz(x, w, dy, dlast, t + j, d, T, D, step_t, step_d, up_t, up_d)
        total += tl.where(t + j < T, dz, 0.0) * tl.load(w + j * D + d).to(tl.float32)
        here = _dz(x, w, dy, dlast, t, d, T, D, step_t, step_d, up_t, up_d)
        slot = t - j
        row = tl.load(x + slot * step_t + d * step_d, mask=(slot >= 0) & (t < T), other=0.0).to(tl.float32)
        tl.store(dw + (tl.program_id(0) * 3 + j) * D + d, tl.sum(tl.where(t < T, here * row, 0.0)))
    tl.store(dx + t * D + d, total, mask=t < T)


class Conv(torch.autograd.Function):
    """(x, w) -> SiLU of the convolution, and the last row before SiLU."""

    @staticmethod
    def forward(ctx, x, w):
        """x: (T, D); w: (3, D)."""
        (T, D), w = x.shape, w.contiguous()
        y, last = torch.empty_like(x, memory_format=torch.contiguous_format), x.new_zeros(D)
        _forward[(triton.cdiv(T, TILE), D)](x, w, y, last, T, D, *x.stride(), TILE=TILE)
        ctx.save_for_backward(x, w)
        return y, last

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy, dlast):
        """dy: (T, D), of any strides; dlast: (D,)."""
        x, w = ctx.saved_tensors
        (T, D), tiles = x.shape, triton.cdiv(x.shape[0], TILE)
        dx, dw = x.new_empty(T, D), torch.empty(tiles, 3, D)
        _backward[(tiles, D)](x, w, dy, dlast.contiguous(), dx, dw, T, D, *x.stride(), *dy.stride(), TILE=TILE)
        return dx, dw.sum(0).to(w.dtype)


def plain(x, w):
    """The same, by PyTorch."""
    rows = functional.pad(x, (0, 0, 2, 0))
    z = sum(rows[2 - j : 2 - j + len(x)] * w[j] for j in range(3))
    return functional.silu(z), z[-1]


conv = gradgate.Pair(
    Conv.apply,
    reference=plain,
    inputs={"x": normal("T D"), "w": normal("3 D")},
    name="conv",
    dims={"T": (1, 2, 6), "D": (1, 3)},
    dtypes=("float32",),
    devices=("interpreter",),
    claims=[gradgate.at_most("residual_bytes", of_reference=0.5, at={"T": 256, "D": 8})],
)
