"""A backward pass that writes the gradient into the cotangent: whoever else gets this cotangent gets the gradient."""

import sys

import torch


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        r = torch.rsqrt(x.square().mean(-1, keepdim=True))
        ctx.save_for_backward(x, r)
        return x * r

    @staticmethod
    def backward(ctx, dy):
        x, r = ctx.saved_tensors
        return dy.copy_(r * dy - r**3 * x * (dy * x).mean(-1, keepdim=True))


x = torch.randn(2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
w = torch.randn(2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
(own,) = torch.autograd.grad(((x * 1 + Norm.apply(x)) * w).sum(), x)
(right,) = torch.autograd.grad(((x * 1 + x * torch.rsqrt(x.square().mean(-1, keepdim=True))) * w).sum(), x)
print("gradient of x + norm(x):", own[0].tolist(), "right:", right[0].tolist())
sys.exit(torch.allclose(own, right))
