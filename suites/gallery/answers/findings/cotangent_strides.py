"""A backward kernel that reads the cotangent as if it were contiguous: that of a slice or of a sum is not."""

import sys

import torch


class Twice(torch.autograd.Function):
    forward = staticmethod(lambda ctx, x: 2 * x)

    @staticmethod
    def backward(ctx, dy):
        return 2 * torch.as_strided(dy, dy.shape, (1,))  # what a kernel reads that has a pointer and no strides


x = torch.ones(4, requires_grad=True)
weights = torch.tensor([[1.0, 7.0]] * 4)[:, 0]
(own,) = torch.autograd.grad(Twice.apply(x), x, weights)
print("gradient:", own.tolist(), "right:", (2 * weights).tolist())
sys.exit(torch.equal(own, 2 * weights))
