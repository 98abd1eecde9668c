"""RMSNorm in PyTorch with a handwritten backward pass that can be differentiated again."""

# ruff: noqa: D102, D103

import torch

import gradgate
from gradgate import normal, uniform

EPS = 1e-6


def plain(x, gain):
    """Root mean square norm, x / √(mean of x² + ε) · gain. x: (B, H); gain: (H,)."""
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS) * gain


class RMSNorm(torch.autograd.Function):
    """As `plain`. It keeps x and one number for each row."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, gain):
        r = torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS)
        return x * r * gain, r

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output[1])

    @staticmethod
    def backward(ctx, dy, dr):
        x, gain, r = ctx.saved_tensors
        g = dy * gain
        mean = ((g * x).sum(-1, keepdim=True) + dr) / x.shape[-1]
        return r * g - r**3 * x * mean, (dy * x * r).sum(0)


def rms_norm(x, gain):
    return RMSNorm.apply(x, gain)[0]


pair = gradgate.Pair(
    rms_norm,
    reference=plain,
    inputs={"x": normal("B H"), "gain": uniform("H", 0.5, 2)},
    dims={"B": (1, 3, 16), "H": (1, 31, 64)},
    regimes={"large": lambda given: given | {"x": 1e3 * given["x"]}},
    composes=("second_order", "vmap", "compile"),
    claims=[gradgate.at_most("residual_bytes", of_reference=0.5)],
    name="rms_norm",
)
