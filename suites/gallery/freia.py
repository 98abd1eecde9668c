# /// script
# dependencies = ["FrEIA==0.2"]
#
# [tool.gradgate]
# home = "https://github.com/VLL-HD/FrEIA"
# framework = "torch"
# no-deps = true
# seconds = 90
# ///
"""FrEIA 0.2: coupling blocks, their inverses and log determinants against their formulas."""

import torch
from FrEIA import modules
from torch import nn

import gradgate
from gradgate import normal

CLAMP = 2.0


def part(width, out):
    """A function in a coupling."""
    return nn.Sequential(nn.Linear(width, 2 * width), nn.Tanh(), nn.Linear(2 * width, out))


class Glow(nn.Module):
    """Y1 = exp(s(x2))·x1 + t(x2), y2 = exp(s(y1))·x2 + t(y1), with s clamped by an arctangent; log|det| is Σ s."""

    def __init__(self, width):
        super().__init__()
        self.f, self.g = part(width, 2 * width), part(width, 2 * width)

    def coefficients(self, f, x):
        """S and t."""
        s, t = f(x).chunk(2, 1)
        return CLAMP * 0.636 * torch.atan(s), t

    def forward(self, x):
        """(T, 2·H) to the same, and (T,)."""
        first, second = x.chunk(2, 1)
        s, t = self.coefficients(self.g, second)
        first = s.exp() * first + t
        u, t = self.coefficients(self.f, first)
        second = u.exp() * second + t
        return torch.cat([first, second], 1), s.sum(1) + u.sum(1)


class GlowInverse(Glow):
    """The inverse of `Glow`."""

    def forward(self, x):
        """(T, 2·H) to the same, and (T,)."""
        first, second = x.chunk(2, 1)
        u, t = self.coefficients(self.f, first)
        second = (second - t) * (-u).exp()
        s, t = self.coefficients(self.g, second)
        first = (first - t) * (-s).exp()
        return torch.cat([first, second], 1), -s.sum(1) - u.sum(1)


class Nice(nn.Module):
    """Y1 = x1 + f(x2), y2 = x2 + g(y1)."""

    def __init__(self, width):
        super().__init__()
        self.f, self.g = part(width, width), part(width, width)

    def forward(self, x):
        """(T, 2·H) to the same."""
        first, second = x.chunk(2, 1)
        first = first + self.f(second)
        return torch.cat([first, second + self.g(first)], 1)


class Block(nn.Module):
    """A block of FrEIA."""

    def __init__(self, kind, width, reverse=False, logarithm=True, **how):
        super().__init__()
        self.block = kind([(2 * width,)], subnet_constructor=part, **how)
        self.reverse, self.logarithm = reverse, logarithm

    def forward(self, x):
        """(T, 2·H) to the same, and (T,)."""
        [y], determinant = self.block([x], rev=self.reverse)
        return (y, determinant) if self.logarithm else y


X = {"x": normal("T 2*H")}
SIZES = {"T": (3, 1, 17), "H": (4, 1, 3)}
SUBNETS = {"f": "block.subnet1", "g": "block.subnet2"}
glow = gradgate.module_pair(
    lambda H: Block(modules.GLOWCouplingBlock, H, clamp=CLAMP), lambda H: Glow(H), X, SIZES, SUBNETS, name="freia_glow"
)
inverse = gradgate.module_pair(
    lambda H: Block(modules.GLOWCouplingBlock, H, True, clamp=CLAMP),
    lambda H: GlowInverse(H),
    X,
    SIZES,
    SUBNETS,
    name="freia_glow_inverse",
)
nice = gradgate.module_pair(
    lambda H: Block(modules.NICECouplingBlock, H, logarithm=False),
    lambda H: Nice(H),
    X,
    SIZES,
    {"f": "block.F", "g": "block.G"},
    name="freia_nice",
)
