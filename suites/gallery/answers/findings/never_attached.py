"""A function that calls its kernel itself: autograd never sees the class with a backward pass that stands beside it."""

import sys

import torch


class Loss:  # it should be a torch.autograd.Function, and be called by its method apply
    def forward(self, x):
        return x.detach().logsumexp(-1)  # stands for a kernel, which writes through pointers

    def backward(self, dy, x):
        return x.softmax(-1) * dy[:, None]


x = torch.tensor([[2.0, 1.0, 0.1]], requires_grad=True)
loss = Loss().forward(x)
print("loss:", loss.tolist(), "has a gradient:", loss.requires_grad)
sys.exit(loss.requires_grad)
