# /// script
# dependencies = ["fairscale==0.4.13"]
#
# [tool.gradgate]
# home = "https://github.com/facebookresearch/fairscale"
# framework = "torch"
# no-deps = true
# seconds = 200
# notes = "checkpoint_wrapper refuses torch.autograd.grad, so it is judged by backward()"
# ///
"""fairscale 0.4.13: checkpoint_wrapper against the same modules without it."""

import warnings

import torch
from torch import nn
from torch.nn import functional

import gradgate
from gradgate import normal

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from fairscale.nn.checkpoint import checkpoint_wrapper


class Layers(nn.Module):
    """Layers with dropout; `scale` is a keyword."""

    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.2)

    def forward(self, x, scale=None):
        """(T, H) to the same."""
        return x + self.down(self.drop(functional.gelu(self.up(x)))) * (1.0 if scale is None else scale)


class Wrapped(nn.Module):
    """`Layers` under checkpoint_wrapper."""

    def __init__(self, plain, **how):
        super().__init__()
        self.inner = checkpoint_wrapper(plain, **how)

    def forward(self, x, scale=None):
        """(T, H) to the same."""
        return self.inner(x, scale=scale)


class Normed(nn.Module):
    """A linear layer and a batch norm, which checkpoint_wrapper keeps from updating its statistics twice."""

    def __init__(self, width):
        super().__init__()
        self.linear, self.norm = nn.Linear(width, width), nn.BatchNorm1d(width, affine=False)

    def forward(self, x):
        """(T, H) to the same."""
        return torch.tanh(self.norm(self.linear(x)))


class WrappedNormed(nn.Module):
    """`Normed` under checkpoint_wrapper."""

    def __init__(self, width):
        super().__init__()
        self.inner = checkpoint_wrapper(Normed(width))

    def forward(self, x):
        """(T, H) to the same."""
        return self.inner(x)


CHANGED = "the second run uses the weights and the mode that the module has then"
LATER = "the forward pass leaves running statistics alone; the second run, in the backward pass, updates them"
X = {"x": normal("T H"), "scale": normal("H")}
SIZES = {"T": (3, 1, 17), "H": (4, 1)}
LAW = gradgate.at_most("residual_bytes", of_reference=0.3, at={"T": 64, "H": 32})
WITHIN = {name: f"inner.{name}" for name in ("up", "down")}
wrapper = gradgate.module_pair(
    lambda H: Wrapped(Layers(H)),
    lambda H: Layers(H),
    X,
    SIZES,
    WITHIN,
    name="fairscale_checkpoint_wrapper",
    random=True,
    by_backward=True,
    claims=[LAW],
    expected={"module_protocol": CHANGED},
)
offloaded = gradgate.module_pair(
    lambda H: Wrapped(Layers(H), offload_to_cpu=True),
    lambda H: Layers(H),
    X,
    SIZES,
    WITHIN,
    name="fairscale_offload_to_cpu",
    random=True,
    by_backward=True,
    expected={"module_protocol": CHANGED},
)
batch_norm = gradgate.module_pair(
    lambda H: WrappedNormed(H),
    lambda H: Normed(H),
    {"x": normal("T H")},
    {"T": (3, 17), "H": (4, 1)},
    {"linear": "inner.linear", "norm": "inner.norm"},
    name="fairscale_batch_norm",
    by_backward=True,
    expected={"module_protocol": CHANGED, "outputs": LATER, "not_finite": LATER},
)
