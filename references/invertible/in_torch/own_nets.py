"""Networks on which `InvertibleSequential` is judged, and the same networks as plain modules."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from gradgate.references.invertible.in_torch.couplings import AdditiveCoupling, AffineCoupling, Keep
from gradgate.references.invertible.in_torch.sequential import InvertibleSequential


def inner(into: int, out: int, normed: bool) -> nn.Module:
    """The function inside a coupling; if `normed`, it has running statistics and draws random numbers."""
    first, last = nn.Conv2d(into, 3, 3, padding=1), nn.Conv2d(3, out, 1)
    middle = [nn.BatchNorm2d(3), nn.Tanh(), nn.Dropout(0.25)] if normed else [nn.Tanh()]
    return nn.Sequential(first, *middle, last)


class PlainCoupling(nn.Module):
    """A coupling block by plain backprop."""

    def __init__(self, f: nn.Module, g: nn.Module, affine: bool) -> None:
        super().__init__()
        self.f, self.g, self.affine = f, g, affine

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x -> y."""
        first = x.shape[1] // 2
        x1, x2 = x[:, :first], x[:, first:]
        y1 = self.step(self.f(x2), x1)
        y2 = self.step(self.g(y1), x2)
        return torch.cat([y1, y2], 1)

    def step(self, found: torch.Tensor, half: torch.Tensor) -> torch.Tensor:
        """A half moved by what a function gave."""
        if not self.affine:
            return half + found
        shift, raw = found[:, : half.shape[1]], found[:, half.shape[1] :]
        return half * torch.exp(0.5 * torch.tanh(raw)) + shift


def blocks(C: int, affine: bool, normed: bool, additive: Any, affinely: Any) -> list[nn.Module]:
    """Two coupling blocks; if the number of channels is odd, the second half is the longer one."""
    one, other = C // 2, C - C // 2
    factor = 2 if affine else 1
    make = affinely if affine else additive
    return [make(inner(other, factor * one, normed), inner(one, factor * other, normed)) for _ in range(2)]


def revnet(C: int, method: str, affine: bool, normed: bool = False) -> nn.Module:
    """Two blocks, by the method."""
    return InvertibleSequential(*blocks(C, affine, normed, AdditiveCoupling, AffineCoupling), method=method)


def plain_revnet(C: int, affine: bool, normed: bool = False) -> nn.Module:
    """The same by plain backprop."""
    return nn.Sequential(
        *blocks(C, affine, normed, lambda f, g: PlainCoupling(f, g, False), lambda f, g: PlainCoupling(f, g, True))
    )


class Leaky(nn.Module):
    """A leaky ReLU, with its inverse."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x -> y."""
        return torch.where(x > 0, x, 0.5 * x)

    def inverse(self, y: torch.Tensor) -> torch.Tensor:
        """y -> x."""
        return torch.where(y > 0, y, 2 * y)


class Shear(nn.Module):
    """x (I + U) + b with U strictly upper triangular: its inverse is a substitution."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.u, self.b = nn.Parameter(torch.randn(width, width) / width), nn.Parameter(torch.zeros(width))

    def matrix(self) -> torch.Tensor:
        """I + U."""
        return torch.triu(self.u, 1) + torch.eye(len(self.b), dtype=self.u.dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x -> y."""
        return x @ self.matrix() + self.b

    def inverse(self, y: torch.Tensor) -> torch.Tensor:
        """y -> x."""
        return torch.linalg.solve_triangular(self.matrix(), y - self.b, upper=True, left=False)


class Shorter(nn.Module):
    """The sums of two neighbours, one number fewer: not invertible, but ∂J/∂x determines ∂J/∂y."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, n) -> (B, n − 1)."""
        return x[:, 1:] + x[:, :-1]

    def vijp(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        """h_x[0] = h_y[0] and h_x[i] = h_y[i] + h_y[i − 1]."""
        found = [h[:, 0]]
        for i in range(1, h.shape[1] - 1):
            found.append(h[:, i] - found[-1])
        return torch.stack(found, 1)


def net(width: int) -> nn.Module:
    """A layer that has neither an inverse nor a vijp: its output has one number more."""
    return nn.Sequential(nn.Linear(width, width + 1), nn.Tanh())


def own_layers(width: int, method: str) -> nn.Module:
    """Layers with an inverse, one of them used twice; one with a vijp, which reversing keeps; and one kept by both."""
    shear = Shear(width)
    shorter = Keep(Shorter()) if method == "reversible" else Shorter()
    return InvertibleSequential(shear, Leaky(), shear, shorter, Keep(net(width - 1)), Shear(width), method=method)


def plain_own_layers(width: int) -> nn.Module:
    """The same by plain backprop."""
    shear = Shear(width)
    return nn.Sequential(shear, Leaky(), shear, Shorter(), Keep(net(width - 1)), Shear(width))


def walked(width: int, method: str, coupled: bool) -> nn.Module:
    """Layers that Moonwalk can walk through, with and without a reverse phase."""
    shear = Shear(width)
    return InvertibleSequential(shear, Leaky(), shear, Shorter(), Shear(width - 1), method=method, coupled=coupled)


def plain_walked(width: int) -> nn.Module:
    """The same by plain backprop."""
    shear = Shear(width)
    return nn.Sequential(shear, Leaky(), shear, Shorter(), Shear(width - 1))
