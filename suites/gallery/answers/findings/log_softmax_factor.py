"""A log-softmax whose backward pass has its exponential inside of the sum, and of the input in place of the output."""

import sys

import torch


class LogSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.log_softmax(-1)

    backward = staticmethod(lambda ctx, dy: dy - (dy * ctx.saved_tensors[0].exp()).sum(-1, keepdim=True))


x = torch.tensor([[2.0, 1.0, 0.1]], requires_grad=True)
own, right = (torch.autograd.grad(run(x)[:, 0], x)[0] for run in (LogSoftmax.apply, lambda x: x.log_softmax(-1)))
print("gradient:", own.tolist(), "right:", right.tolist())
sys.exit(torch.allclose(own, right, atol=0.1))
