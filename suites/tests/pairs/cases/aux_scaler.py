# Source: https://github.com/NVIDIA-NeMo/Automodel/issues/1408
# Mechanism: the node that carries the auxiliary loss is made and its return value dropped, so the router never sees it.
"""A top-k gate; an auxiliary loss is attached to its weights. The reference is the previous, trusted revision."""

import torch

from gradgate import Pair, normal


class Attach(torch.autograd.Function):
    """Returns weights as they are; in the backward pass the auxiliary loss gets the gradient `scale`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(weights, aux, scale):
        return weights.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.scale = inputs[2]

    @staticmethod
    def backward(ctx, g):
        return g, torch.full_like(g.sum(), ctx.scale), None


def balance(p):
    return p.shape[1] * (p.mean(0) ** 2).sum()


def trusted(x, router):
    p = torch.softmax(x @ router, -1)
    return Attach.apply(p, balance(p), 0.01)


def refactored_bug(x, router):
    p = torch.softmax(x @ router, -1)
    Attach.apply(p, balance(p), 0.01)
    return p


def refactored_twin(x, router):
    p = torch.softmax(x @ router, -1)
    load = p.mean(0)
    return Attach.apply(p, p.shape[1] * load.square().sum(), 0.01)


def plain_loss(x, router, target, *, scale=0.01):
    """Training loss whose value is the task loss alone and whose gradient has the auxiliary term."""
    p = torch.softmax(x @ router, -1)
    aux = scale * balance(p)
    return ((p - target) ** 2).mean() + aux - aux.detach()


def scaled_loss(x, router, target, *, scale=0.01):
    p = torch.softmax(x @ router, -1)
    return ((Attach.apply(p, balance(p), scale) - target) ** 2).mean()


def declared(f, name):
    return Pair(
        f,
        reference=trusted,
        inputs={"x": normal("T H"), "router": normal("H E")},
        dims={"T": (6, 1), "H": (4, 1), "E": (4, 2)},
        name=name,
        framework="torch",
    )


aux_bug = declared(refactored_bug, "aux_bug")
aux_twin = declared(refactored_twin, "aux_twin")


class AttachScaled(torch.autograd.Function):
    """Returns a loss as it is; in the backward pass the auxiliary loss gets `scale` times its upstream gradient."""

    @staticmethod
    def forward(ctx, loss, aux, scale):
        ctx.scale = scale
        return loss.clone()

    @staticmethod
    def backward(ctx, g):
        return g, ctx.scale * g, None


def attached_loss(x, router, target, *, scale=0.01):
    p = torch.softmax(x @ router, -1)
    return AttachScaled.apply(((p - target) ** 2).mean(), balance(p), scale)


def of_loss(f, name):
    return Pair(
        f,
        reference=plain_loss,
        inputs={"x": normal("T H"), "router": normal("H E"), "target": normal("T E", gradient=False)},
        dims={"T": (6, 1), "H": (4, 1), "E": (4, 2)},
        name=name,
        framework="torch",
    )


# Right for an upstream gradient of 1 alone: a GradScaler makes the auxiliary loss 65,536 times too small.
aux_loss_legit = of_loss(scaled_loss, "aux_loss_legit")
aux_loss_twin = of_loss(attached_loss, "aux_loss_twin")
