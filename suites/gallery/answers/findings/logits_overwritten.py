"""A loss whose backward pass writes the gradient into the logits: a second backward pass starts from the gradient."""

import sys

import torch


class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x.detach()
        return x.logsumexp(-1)

    backward = staticmethod(lambda ctx, dy: ctx.x.copy_(ctx.x.softmax(-1) * dy[:, None]))


loss = Loss.apply(logits := torch.tensor([[2.0, 1.0, 0.1]], requires_grad=True)).sum()
first, second = (torch.autograd.grad(loss, logits, retain_graph=True)[0].clone() for _ in range(2))
print("first:", first.tolist(), "second:", second.tolist())
sys.exit(torch.equal(first, second))
