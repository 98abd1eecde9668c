# /// script
# dependencies = ["memcnn==1.5.2"]
#
# [tool.gradgate]
# home = "https://github.com/silvandeleemput/memcnn"
# framework = "torch"
# no-deps = true
# seconds = 240
# notes = "a wrapped module frees its input, so it gets a copy; only backward() works, so that takes the gradients"
# ///
"""memcnn 1.5.2: reversible couplings against the same couplings in plain PyTorch."""

import warnings

import torch
from torch import nn

import gradgate
from gradgate import normal

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import memcnn

CHANGED = (
    "the inverse uses the weights that the module has then, so a weight changed after the forward pass gives another "
    "gradient; no version is checked"
)
X = {"x": normal("T 2*H")}
SIZES = {"T": (3, 1, 17), "H": (4, 1, 3)}


def part(width, out):
    """A function in a coupling."""
    return nn.Sequential(nn.Linear(width, 2 * width), nn.Tanh(), nn.Linear(2 * width, out))


class Additive(nn.Module):
    """Two additive couplings: y1 = x1 + f(x2), y2 = x2 + g(y1)."""

    def __init__(self, width):
        super().__init__()
        self.f = nn.ModuleList(part(width, width) for _ in range(2))
        self.g = nn.ModuleList(part(width, width) for _ in range(2))

    def forward(self, x):
        """(T, 2·H) to the same."""
        first, second = x.chunk(2, 1)
        for f, g in zip(self.f, self.g, strict=True):
            first = first + f(second)
            second = second + g(first)
        return torch.cat([first, second], 1)


class Affine(Additive):
    """Two affine couplings: y1 = exp(f(x2))·x1 + f(x2), as memcnn's naive adapter has it."""

    def forward(self, x):
        """(T, 2·H) to the same."""
        first, second = x.chunk(2, 1)
        for f, g in zip(self.f, self.g, strict=True):
            shift = f(second)
            first = shift.exp() * first + shift
            shift = g(first)
            second = shift.exp() * second + shift
        return torch.cat([first, second], 1)


class Sigmoid(nn.Module):
    """Two affine couplings whose scale is a sigmoid: odd columns are scales, even ones are shifts."""

    def __init__(self, width):
        super().__init__()
        self.f = nn.ModuleList(part(width, 2 * width) for _ in range(2))
        self.g = nn.ModuleList(part(width, 2 * width) for _ in range(2))

    def forward(self, x):
        """(T, 2·H) to the same."""
        first, second = x.chunk(2, 1)
        for f, g in zip(self.f, self.g, strict=True):
            found = f(second)
            first = torch.sigmoid(found[:, 1::2] + 2) * first + found[:, 0::2]
            found = g(first)
            second = torch.sigmoid(found[:, 1::2] + 2) * second + found[:, 0::2]
        return torch.cat([first, second], 1)


class Reversible(nn.Module):
    """The couplings of memcnn; each is inverted in the backward pass."""

    def __init__(self, plain, make):
        super().__init__()
        self.f, self.g = plain.f, plain.g
        couplings = [make(f, g) for f, g in zip(self.f, self.g, strict=True)]
        self.couplings = [memcnn.InvertibleModuleWrapper(one, keep_input=False) for one in couplings]

    def forward(self, x):
        """(T, 2·H) to the same. The first wrapper frees its input, hence the copy."""
        x = x.clone()
        for coupling in self.couplings:
            x = coupling(x)
        return x


def additive(H):
    """Additive couplings of memcnn."""
    return Reversible(Additive(H), memcnn.AdditiveCoupling)


def affine(H):
    """Affine couplings of memcnn with its naive adapter."""
    return Reversible(Affine(H), lambda f, g: memcnn.AffineCoupling(f, g, adapter=memcnn.AffineAdapterNaive))


def sigmoid(H):
    """Affine couplings of memcnn with its sigmoid adapter."""
    return Reversible(Sigmoid(H), lambda f, g: memcnn.AffineCoupling(f, g, adapter=memcnn.AffineAdapterSigmoid))


def _pair(function, reference, name, **how):
    """A pair that keeps less than plain autograd."""
    law = gradgate.at_most("residual_bytes", of_reference=0.3, at={"T": 64, "H": 32})
    return gradgate.module_pair(
        function,
        reference,
        X,
        SIZES,
        name=name,
        by_backward=True,
        modes=("train",),
        claims=[law],
        expected={"autograd": CHANGED, "module_protocol": CHANGED},
        **how,
    )


additive_pair = _pair(additive, lambda H: Additive(H), "memcnn_additive")
affine_pair = _pair(affine, lambda H: Affine(H), "memcnn_affine_naive")
sigmoid_pair = _pair(sigmoid, lambda H: Sigmoid(H), "memcnn_affine_sigmoid")
