"""A user's modules as layers of a chain: each is one call of a module, which is made and then repeated."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from gradgate.references.contract import Tree, UsageError
from gradgate.references.invertible import halves
from gradgate.references.invertible.in_torch.couplings import Coupling, Keep
from gradgate.references.invertible.in_torch.replay import Call
from gradgate.references.invertible.layer import Chained, NotInvertible, Step, Vjp


class Halves:
    """The halves of a tensor, handed from one coupling to the one before it without being joined.

    Attributes:
        dim: the axis along which they would be joined.
    """

    def __init__(self, first: torch.Tensor, second: torch.Tensor, dim: int) -> None:
        self._parts, self.dim = [first, second], dim

    def taken(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Both halves, which are not held here any more."""
        second, first = self._parts.pop(), self._parts.pop()
        return first, second


def whole(x: Any) -> Any:
    """A tensor, or the tensor of `Halves`, which are then empty."""
    return torch.cat(x.taken(), x.dim) if isinstance(x, Halves) else x


class ModuleStep(Chained):
    """A module with ``inverse(y)``, or ``vijp(x, h)``, or both."""

    def __init__(self, module: nn.Module, name: str) -> None:
        self.module, self.name, self.call = module, name, Call(module, name)
        self.dtype: torch.dtype | None = None

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls of user's modules of which a call of the layer consists."""
        return (self.call,)

    @property
    def parameters(self) -> Tree:
        """The parameters that require a gradient."""
        return self.call.parameters

    @property
    def invertible(self) -> bool:
        """Whether it has an inverse."""
        return callable(getattr(self.module, "inverse", None))

    @property
    def walkable(self) -> bool:
        """Whether a cotangent of its input determines that of its output."""
        return self.invertible or callable(getattr(self.module, "vijp", None))

    def __call__(self, p: Tree, x: Any) -> Any:
        """x -> y."""
        self.dtype = self.dtype or x.dtype
        y = self.call(p, x)
        if not isinstance(y, torch.Tensor):
            raise UsageError(f"{self.name} returned a {type(y).__name__}; legal: one tensor")
        return y

    def inverse(self, p: Tree, y: Any) -> Any:
        """y -> x.

        Raises:
            NotInvertible: the module has none.
        """
        if not self.invertible:
            raise NotInvertible(f"{self.name} has no inverse")
        x = self.call.again(p, y, method="inverse")
        if not isinstance(x, torch.Tensor):
            raise NotInvertible(f"{self.name}: its inverse returned a {type(x).__name__}; legal: one tensor")
        return x.to(self.dtype)

    def retreat(self, vjp: Vjp, p: Tree, y: Any, h: Any) -> Step:
        """As `Chained.retreat`, of `Halves` too."""
        return super().retreat(vjp, p, whole(y), whole(h))

    def vijp(self, vjp: Vjp, p: Tree, x: Any, y: Any, h: Any) -> Any:
        """The module's own ``vijp(x, h)``; else the VJP of its inverse."""
        if not callable(getattr(self.module, "vijp", None)):
            return super().vijp(vjp, p, x, y, h)
        with torch.no_grad():
            found = self.call.again(p, x, h, method="vijp")
        if not isinstance(found, torch.Tensor):
            raise NotInvertible(f"{self.name}: its vijp returned a {type(found).__name__}; legal: one tensor")
        if found.shape != y.shape:
            raise NotInvertible(f"{self.name}: its vijp gives shape {tuple(found.shape)}; expected {tuple(y.shape)}")
        return found


class KeptStep(ModuleStep):
    """A layer that needs no inverse and no vijp: reversing keeps its input, mixed Moonwalk its output's cotangent."""

    invertible = walkable = True

    def __init__(self, module: nn.Module, name: str) -> None:
        super().__init__(module, name)
        self.saved: torch.Tensor | None = None

    @property
    def hands_over(self) -> bool:
        """It does."""
        return True

    def inverse(self, p: Tree, y: Any) -> Any:
        """The input that was kept."""
        return self.saved

    def handed(self, kept: Tree, h: Any) -> Tree:
        """H itself."""
        return h

    def advance(self, vjp: Vjp, p: Tree, x: Any, h: Any, handed: Tree = None) -> Step:
        """h_i is what phase 1 handed over."""
        y, pull = vjp(lambda p: self(p, x), p)
        return y, handed, pull(handed)[0]


class CouplingStep(Chained):
    """A coupling block: y1 = x1 moved by F(x2), y2 = x2 moved by G(y1).

    F and G are two calls, each with its own random numbers, because the backward pass runs G before F.
    """

    invertible = walkable = True

    def __init__(self, module: Coupling, name: str) -> None:
        self.module, self.name = module, name
        self.f, self.g = Call(module.f, f"F of {name}"), Call(module.g, f"G of {name}")
        self.dtype: torch.dtype | None = None

    @property
    def calls(self) -> tuple[Call, ...]:
        """F's and G's."""
        return self.f, self.g

    @property
    def parameters(self) -> Tree:
        """The parameters of F and of G."""
        return {"f": self.f.parameters, "g": self.g.parameters}

    def __call__(self, p: Tree, x: Any) -> Any:
        """x -> y; the first call is one of the module, so that its hooks run."""
        self.dtype = self.dtype or x.dtype
        if p is None:
            with of_layer(self.name):
                return self.module(x, (lambda x: self.f(None, x), lambda x: self.g(None, x)))
        return self.module.moved(x, lambda x: self.f(p["f"], x), lambda x: self.g(p["g"], x))

    def inverse(self, p: Tree, y: Any) -> Any:
        """y -> x."""
        return self.module.restored(y, lambda x: self.f(p["f"], x), lambda x: self.g(p["g"], x)).to(self.dtype)

    def advance(self, vjp: Vjp, p: Tree, x: Any, h: Any, handed: Tree = None) -> Step:
        """Each function is run once, and pulled back once."""
        (x1, x2), (h1, h2) = self.module.split(x), self.module.split(h)
        y1, h2, h1, df = halves.advance(torch, vjp, self._f(x1), p["f"], x2, x1, h2, h1)
        y2, h1, h2, dg = halves.advance(torch, vjp, self._g(x2), p["g"], y1, x2, h1, h2)
        return self.module.join(y1, y2), self.module.join(h1, h2), {"f": df, "g": dg}

    def retreat(self, vjp: Vjp, p: Tree, y: Any, h: Any) -> Step:
        """Each function is run once, and pulled back once. What is not needed any more is freed at once.

        x and its cotangent are `Halves`, because the layer before may be a coupling, too; y and h may be.
        """
        (y1, y2), (h1, h2) = self._taken(y), self._taken(h)
        x2, h2, pull = halves.opened(torch, vjp, self._g(y2), p["g"], y1, y2, h2)
        del y2
        dg, d1 = pull()
        h1 = h1 + d1
        del pull, d1
        x1, h1, pull = halves.opened(torch, vjp, self._f(y1), p["f"], x2, y1, h1)
        del y1
        df, d2 = pull()
        h2 = h2 + d2
        return self._halves(x1, x2), self._halves(h1, h2), {"f": df, "g": dg}

    def _taken(self, x: Any) -> tuple[torch.Tensor, torch.Tensor]:
        if isinstance(x, Halves) and x.dim == self.module.dim:
            return x.taken()
        return self.module.split(whole(x))

    def _halves(self, first: torch.Tensor, second: torch.Tensor) -> Halves:
        return Halves(first.to(self.dtype), second.to(self.dtype), self.module.dim)

    def _f(self, like: Any) -> halves.Functions:
        shape = like.shape
        return lambda p, x: self.module.parts(self.f(p, x), shape, "F")

    def _g(self, like: Any) -> halves.Functions:
        shape = like.shape
        return lambda p, x: self.module.parts(self.g(p, x), shape, "G")


@contextlib.contextmanager
def of_layer(name: str) -> Iterator[None]:
    """Says in an exception which layer raises it."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from error.__cause__
    except Exception as error:
        error.add_note(f"raised by {name}")
        raise


def steps(layers: Sequence[nn.Module]) -> list[Any]:
    """New calls of the layers, in order."""
    kinds = {Coupling: CouplingStep, Keep: KeptStep}
    found = []
    for i, module in enumerate(layers):
        kind: Any = next((step for cls, step in kinds.items() if isinstance(module, cls)), ModuleStep)
        found.append(kind(module, f"layer {i} ({type(module).__name__})"))
    return found
