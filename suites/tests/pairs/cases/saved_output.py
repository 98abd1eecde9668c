# Source: https://github.com/pytorch/pytorch/issues/9391 (what autograd promises),
# https://github.com/chainer/chainer/issues/2353 and https://github.com/RobinBruegger/RevTorch/issues/1 (output kept as
# an attribute instead of save_for_backward)
# Mechanism: the backward pass reads its output from an attribute; an in-place change of the output (as by
# ReLU(inplace=True) after it) is not noticed, and the gradient is wrong without an error. A saved tensor would raise.
"""Sigmoid that keeps its output alone."""

import torch
from torch.autograd.function import once_differentiable

from gradgate import Pair, normal


def plain(x):
    return 1 / (1 + (-x).exp())


class Bug(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.sigmoid(x)
        ctx.y = y.detach()
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return g * ctx.y * (1 - ctx.y)


class Twin(Bug):
    @staticmethod
    def forward(ctx, x):
        y = torch.sigmoid(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y * (1 - y)


def declared(cls, name):
    return Pair(
        lambda x: cls.apply(x),
        reference=plain,
        inputs={"x": normal("T H")},
        dims={"T": (3, 1, 16), "H": (4, 1)},
        name=name,
        framework="torch",
    )


output_bug = declared(Bug, "output_bug")
output_twin = declared(Twin, "output_twin")
