"""Triton kernels whose backward pass is wrong behind one decision: `FACTOR` is 1 in the right twin.

`whole` and `shortest` are right, and their dims leave out a kind of tile or a turn of a loop that `ragged` and
`longer` have.
"""

import torch
import triton
import triton.language as tl

import gradgate
from gradgate import normal

FACTOR = tl.constexpr(1.1)


def pair(name, run, plain, sizes, mean=0.0):
    return gradgate.Pair(
        run,
        reference=plain,
        inputs={"x": normal("N", mean=mean)},
        dims={"N": sizes},
        dtypes=("float32",),
        framework="torch",
        devices=("interpreter",),
        name=name,
    )


def function(kernel):
    """x + x³ with the gradient that a kernel of (x, dy, dx, N, B) stores."""

    class Cubic(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x + x**3

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, dy):
            x = ctx.saved_tensors[0].contiguous()
            dx = torch.empty_like(x)
            kernel[(triton.cdiv(len(x), 4),)](x, dy.contiguous(), dx, len(x), B=4)
            return dx

    return Cubic.apply


def plain(x):
    """The same."""
    return x + x**3


@triton.jit
def _above(x, dy, dx, N, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    row = tl.load(x + at, mask=at < N, other=0.0)
    slope = 1 + 3 * row * row
    tl.store(dx + at, tl.where(row > 20, FACTOR * slope, slope) * tl.load(dy + at, mask=at < N), mask=at < N)


@triton.jit
def _clamped(x, dy, dx, N, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    row = tl.load(x + at, mask=at < N, other=0.0)
    slope = 1 + 3 * row * row
    beyond = row - tl.minimum(row, 7.0)
    tl.store(dx + at, (slope + (FACTOR - 1) * beyond) * tl.load(dy + at, mask=at < N), mask=at < N)


@triton.jit
def _tile_above(x, dy, dx, N, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    row = tl.load(x + at, mask=at < N, other=0.0)
    slope = 1 + 3 * row * row
    if tl.max(row) > 40:
        slope *= FACTOR
    tl.store(dx + at, slope * tl.load(dy + at, mask=at < N), mask=at < N)


@triton.jit
def _right(x, dy, dx, N, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    row = tl.load(x + at, mask=at < N, other=0.0)
    tl.store(dx + at, (1 + 3 * row * row) * tl.load(dy + at, mask=at < N), mask=at < N)


@triton.jit
def _in_a_loop(x, dy, dx, N, B: tl.constexpr):
    if tl.program_id(0) == 0:
        for start in range(0, N, B):
            at = start + tl.arange(0, B)
            row = tl.load(x + at, mask=at < N, other=0.0)
            tl.store(dx + at, (1 + 3 * row * row) * tl.load(dy + at, mask=at < N), mask=at < N)


above = pair("above", function(_above), plain, (5, 4))
near_four = pair("near_four", function(_above), plain, (5, 4), mean=4.0)
clamped = pair("clamped", function(_clamped), plain, (5, 4))
tile_above = pair("tile_above", function(_tile_above), plain, (5, 4))
whole = pair("whole", function(_right), plain, (4, 8))
ragged = pair("ragged", function(_right), plain, (4, 5))
shortest = pair("shortest", function(_in_a_loop), plain, (3, 4))
longer = pair("longer", function(_in_a_loop), plain, (3, 9))
