"""A backward pass that writes the gradient into the cotangent: whoever else gets this cotangent gets the gradient."""

import sys

import torch


class Half(torch.autograd.Function):
    forward = staticmethod(lambda ctx, x: x / 2)
    backward = staticmethod(lambda ctx, dy: dy.mul_(0.5))


x = torch.ones(4, requires_grad=True)
weights = torch.arange(1.0, 5.0)
(own,) = torch.autograd.grad(x * 1 + Half.apply(x), x, weights.clone())
print("gradient of x + x/2:", own.tolist(), "right:", (1.5 * weights).tolist())
sys.exit(torch.equal(own, 1.5 * weights))
