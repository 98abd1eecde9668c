# Source: https://github.com/RobinBruegger/RevTorch/issues/1 and https://github.com/pytorch/pytorch/issues/25340
# Mechanism: the output is an attribute of ctx instead of a saved tensor: a cycle, never freed if backward is never
# called.
"""A reversible additive coupling that keeps its output alone."""

import torch
from torch.autograd.function import once_differentiable

from gradgate import Pair, at_most, normal


def plain(a, b, w):
    """a, b: (T, H); w: (H, H)."""
    c = a + torch.tanh(b @ w)
    return c, b + torch.sin(c)


class Bug(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b, w):
        c = a + torch.tanh(b @ w)
        d = b + torch.sin(c)
        ctx.c, ctx.d = c, d
        ctx.save_for_backward(w)
        return c, d

    @staticmethod
    @once_differentiable
    def backward(ctx, gc, gd):
        (w,) = ctx.saved_tensors
        return Bug.invert(ctx.c, ctx.d, w, gc, gd)

    @staticmethod
    def invert(c, d, w, gc, gd):
        b = d - torch.sin(c)
        gc = gc + gd * torch.cos(c)
        t = torch.tanh(b @ w)
        inner = gc * (1 - t * t)
        return gc, gd + inner @ w.T, b.T @ inner


class Twin(Bug):
    @staticmethod
    def forward(ctx, a, b, w):
        c = a + torch.tanh(b @ w)
        d = b + torch.sin(c)
        ctx.save_for_backward(c, d, w)
        return c, d

    @staticmethod
    @once_differentiable
    def backward(ctx, gc, gd):
        c, d, w = ctx.saved_tensors
        return Bug.invert(c, d, w, gc, gd)


def declared(cls, name):
    return Pair(
        lambda a, b, w: cls.apply(a, b, w),
        reference=plain,
        inputs={"a": normal("T H"), "b": normal("T H"), "w": normal("H H", scale="H**-0.5")},
        dims={"T": (4, 1, 16), "H": (3, 1)},
        claims=[at_most("residual_bytes", of_reference=1)],
        name=name,
        framework="torch",
    )


leak_bug = declared(Bug, "leak_bug")
leak_twin = declared(Twin, "leak_twin")
