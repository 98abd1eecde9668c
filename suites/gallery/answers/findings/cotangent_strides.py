"""A backward kernel that reads the cotangent as if it were contiguous: that of a slice or of a sum is not."""

import os
import sys

os.environ["TRITON_INTERPRET"] = "1"
import torch
import triton
import triton.language as tl


@triton.jit
def scale(dy, dx, n, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    tl.store(dx + place, 2 * tl.load(dy + place, mask=place < n), mask=place < n)


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, dy):
        scale[(1,)](dy, dx := torch.empty(dy.shape), dy.numel(), BLOCK=8)
        return dx


x = torch.ones(8, requires_grad=True)
weights = torch.tensor([[1.0, 7.0]] * 8, requires_grad=True)[:, 0]
(own,) = torch.autograd.grad(Twice.apply(x), x, weights)
print("gradient:", own.tolist(), "right: 2 everywhere")
sys.exit(bool((own == 2).all()))
