"""The mean of a transposed convolution is no product of means: 9 weights over 4 steps count, and borders are cut."""

import sys

import torch

x, weight = torch.randn(4, 3, 32, 32), torch.randn(3, 16, 3, 3)
cotangent = torch.randn(4, 16)


def right(weight):
    return torch.nn.functional.conv_transpose2d(x, weight, None, 2, 1, 1).mean((2, 3))


weight.requires_grad_()
product = x.mean((2, 3)) @ weight.mean((2, 3))  # wrong by a factor of 9 / 4, but small beside the tolerance of a test
grads = [torch.autograd.grad(out, weight, cotangent)[0] for out in (product, right(weight))]
slope = (grads[0] * grads[1]).sum() / grads[1].square().sum()
print("error:", (product - right(weight)).abs().max().item(), "slope, which should be 1:", slope.item())
sys.exit(torch.allclose(grads[0], grads[1], rtol=0.1))
