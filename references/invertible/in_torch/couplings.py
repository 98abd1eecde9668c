"""Coupling blocks of two functions of the user's own, from which a RevNet is built; and layers whose input is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from gradgate.references.contract import UsageError
from gradgate.references.invertible import halves

Function = Callable[[torch.Tensor], torch.Tensor]


class Coupling(nn.Module):
    """y1 = x1 moved by F(x2), y2 = x2 moved by G(y1), where x1 and x2 are the halves of x along `dim`.

    `AdditiveCoupling` and `AffineCoupling` say how a half is moved. F and G need not be invertible.

    Attributes:
        f, g: the user's modules.
        dim: the axis that is split; if its length is odd, the first half is the shorter one.
    """

    def __init__(self, f: nn.Module, g: nn.Module, dim: int = 1) -> None:
        super().__init__()
        for name, function in (("F", f), ("G", g)):
            if not isinstance(function, nn.Module):
                raise UsageError(f"{name} is a {type(function).__name__}; legal: a torch.nn.Module")
        self.f, self.g, self.dim = f, g, dim

    def forward(self, x: torch.Tensor, functions: tuple[Function, Function] | None = None) -> torch.Tensor:
        """x -> y, of the same shape; `functions` replace F and G, so that a caller can watch their calls."""
        f, g = functions or (self.f, self.g)
        return self.moved(x, f, g)

    def inverse(self, y: torch.Tensor) -> torch.Tensor:
        """y -> x, of the same shape."""
        return self.restored(y, self.f, self.g)

    def moved(self, x: torch.Tensor, f: Function, g: Function) -> torch.Tensor:
        """x -> y by these functions."""
        x1, x2 = self.split(x)
        with halves.of_half("F", x2.shape, x.shape, self.dim):
            shift = f(x2)
        y1 = halves.moved(torch, self.parts(shift, x1.shape, "F"), x1)
        with halves.of_half("G", y1.shape, x.shape, self.dim):
            shift = g(y1)
        return self.join(y1, halves.moved(torch, self.parts(shift, x2.shape, "G"), x2))

    def with_log_det(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """y, and log |det ∂y/∂x| of every entry of axis 0, (batch,); UsageError if that axis is split."""
        halves.check_samples(self.dim, x.shape, type(self).__name__)
        total: list[torch.Tensor] = []

        def watched(function: nn.Module, name: str) -> Function:
            def called(read: torch.Tensor) -> torch.Tensor:
                found: torch.Tensor = function(read)
                like = x1.shape if name == "F" else x2.shape
                total.append(halves.log_scale(self.parts(found, like, name), x1 if name == "F" else x2))
                return found

            return called

        x1, x2 = self.split(x)
        y = self.forward(x, (watched(self.f, "F"), watched(self.g, "G")))
        return y, total[0] + total[1]

    def restored(self, y: torch.Tensor, f: Function, g: Function) -> torch.Tensor:
        """y -> x by these functions."""
        y1, y2 = self.split(y)
        x2 = halves.restored(torch, self.parts(g(y1), y2.shape, "G"), y2)
        return self.join(halves.restored(torch, self.parts(f(x2), y1.shape, "F"), y1), x2)

    def parts(self, found: Any, like: Sequence[int], name: str) -> tuple[torch.Tensor, ...]:
        """What a function returned -> (t,), or (t, s); `like` is the shape of the half that it moves."""
        raise NotImplementedError

    def split(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """x -> its halves.

        Raises:
            UsageError: there are fewer than two numbers along `dim`.
        """
        if not -x.dim() <= self.dim < x.dim() or x.shape[self.dim] < 2:
            raise UsageError(
                f"{type(self).__name__} splits axis {self.dim}, and its input has shape {tuple(x.shape)}; legal: at "
                "least 2 numbers along that axis; dim= names another one"
            )
        first = x.shape[self.dim] // 2
        return x.narrow(self.dim, 0, first), x.narrow(self.dim, first, x.shape[self.dim] - first)

    def join(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """Halves -> one tensor."""
        return torch.cat([first, second], self.dim)


class AdditiveCoupling(Coupling):
    """y1 = x1 + F(x2), y2 = x2 + G(y1): the block of a RevNet.

    Args:
        f: module that maps the second half to the shape of the first one.
        g: module that maps the first half to the shape of the second one.
        dim: the axis that is split.

    Source:
        Gomez et al. (2017), Eq. 6 and 8; Moonwalk, Eq. 12 and 13: two such couplings are one block.
    """

    def parts(self, found: Any, like: Sequence[int], name: str) -> tuple[torch.Tensor, ...]:
        """The shift alone."""
        halves.check_shape(found, like, self.dim, False, f"{name} of {type(self).__name__}")
        return (found,)


class AffineCoupling(Coupling):
    """y1 = x1·e^s + t with (t, s') = F(x2), y2 = x2·e^s + t with (t, s') = G(y1); s = ½·tanh s'.

    No number is stretched by more than e^½, so the inverse is well-conditioned in x1 and x2.

    Args:
        f: module that maps the second half to twice the first one along `dim`: t, then s'.
        g: module that maps the first half to twice the second one along `dim`: t, then s'.
        dim: the axis that is split.

    Source:
        Dinh et al. (2017); the bound is ours.
    """

    def parts(self, found: Any, like: Sequence[int], name: str) -> tuple[torch.Tensor, ...]:
        """The shift and the log-scale."""
        halves.check_shape(found, like, self.dim, True, f"{name} of {type(self).__name__}")
        shift, raw = found.chunk(2, self.dim)
        return shift, 0.5 * torch.tanh(raw)


class Keep(nn.Module):
    """A layer without an inverse among others that have one: reversing keeps its input, mixed Moonwalk its ∂J/∂y.

    Args:
        layer: any module that maps a tensor to a tensor, such as a pooling or a strided convolution.
    """

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> Any:
        """What the layer gives."""
        return self.layer(x)
