# Source: https://github.com/pytorch/pytorch/issues/87979 (and #105682)
# Mechanism: the forward pass runs under bfloat16 autocast, its handwritten backward pass under float16 autocast.
"""A linear layer with tanh that computes its output again in its backward pass, under autocast too."""

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from gradgate import module_pair, normal


class Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, fixed):
        ctx.on = torch.is_autocast_enabled("cpu")
        ctx.dtype = torch.float16 if fixed else torch.get_autocast_dtype("cpu")
        ctx.save_for_backward(x, w)
        return torch.tanh(x @ w.T)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        with torch.autocast("cpu", dtype=ctx.dtype, enabled=ctx.on):
            y = torch.tanh(x @ w.T)
            d = g * (1 - y * y)
            dx, dw = d @ w, d.T @ x
        return dx.to(x.dtype), dw.to(w.dtype), None


class Plain(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.lin = nn.Linear(width, out, bias=False)

    def forward(self, x):
        return torch.tanh(self.lin(x))


class Bug(Plain):
    def forward(self, x):
        return Recomputed.apply(x, self.lin.weight, True)


class Twin(Plain):
    def forward(self, x):
        return Recomputed.apply(x, self.lin.weight, False)


def declared(cls, name):
    return module_pair(
        lambda H, P: cls(H, P),
        lambda H, P: Plain(H, P),
        inputs={"x": normal("T H")},
        dims={"T": (4, 1, 9), "H": (5, 1), "P": (3, 1)},
        name=name,
    )


amp_bug = declared(Bug, "amp_bug")
amp_twin = declared(Twin, "amp_twin")
