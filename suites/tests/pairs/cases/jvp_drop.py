# Source: https://github.com/pytorch/pytorch/issues/192985
# (named in #193279: a custom jvp that is dropped, so forward mode is wrong)
# Mechanism: the reverse rule is right and the forward-mode rule of the same Function is wrong.
"""sin with both rules by hand."""

import torch

from gradgate import Pair, normal


class Bug(torch.autograd.Function):
    generate_vmap_rule = True
    sign = -1.0

    @staticmethod
    def forward(x):
        return torch.sin(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        return g * torch.cos(ctx.saved_tensors[0])

    @staticmethod
    def jvp(ctx, t):
        return -t * torch.cos(ctx.saved_tensors[0])


class Twin(Bug):
    @staticmethod
    def jvp(ctx, t):
        return t * torch.cos(ctx.saved_tensors[0])


def declared(cls, name):
    return Pair(
        lambda x: cls.apply(x),
        reference=lambda x: torch.sin(x),
        inputs={"x": normal("T H")},
        dims={"T": (3, 1), "H": (4, 1)},
        composes=("second_order", "vmap"),
        name=name,
        framework="torch",
    )


jvp_bug = declared(Bug, "jvp_bug")
jvp_twin = declared(Twin, "jvp_twin")
