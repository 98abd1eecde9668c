"""A softmax over one number is 1, and its gradient 0: returning ones is right, with the gradient of its input wrong."""

import sys

import torch


class Ones(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.new_ones(len(x), 1)

    backward = staticmethod(lambda ctx, dy: dy.expand(-1, 5) / 5)  # that of the mean before the softmax


x = torch.randn(4, 5, requires_grad=True)
both = Ones.apply(x), x.mean(1, keepdim=True).softmax(1)
grads = [torch.autograd.grad(y.sum(), x)[0].abs().max().item() for y in both]
print("outputs equal:", torch.equal(*both), "gradient:", grads[0], "right:", grads[1])
sys.exit(grads[0] < 0.1)
