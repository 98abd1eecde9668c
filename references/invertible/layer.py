"""What every layer of an invertible chain can do, and the error for a layer that cannot be inverted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gradgate.hw_profiles.calls import OnCall
from gradgate.references.backends import namespace
from gradgate.references.contract import Tree, countable

Vjp = Callable[..., Any]
"""``vjp(function, *primals) -> (value, pull)``, and ``pull(cotangent)`` gives a cotangent per primal."""
Step = tuple[Any, Any, Tree]


class NotInvertible(ValueError):
    """A layer has no inverse, or its inverse does not give the layer's input back.

    Cause: a singular matrix, a saturated tanh, an inverse that is wrong or loses too many digits, fewer outputs than
    inputs. Remedy: the message names the layer and the error. Backprop and forward mode need no inverse. Moonwalk needs
    no inverse of a layer whose Jacobian is surjective.
    """


@dataclass(frozen=True)
class Shape:
    """What a layer reads: (batch, side, side, channels)."""

    side: int
    channels: int

    @property
    def numbers(self) -> int:
        """n, numbers per sample."""
        return self.side * self.side * self.channels


class Chained:
    """One layer of a chain, as the loops of `chain` take it: called with its parameters and x it gives y.

    The methods here serve every layer that has an inverse. A layer with a cheaper way overrides them.

    Attributes:
        name: says which layer an error is about.
    """

    name: str
    by_hand: ClassVar[bool] = False
    """Whether `push` and `pull_x` are written out; if not, phase 1 of mixed Moonwalk is automatic differentiation."""

    @property
    def hands_over(self) -> bool:
        """Whether phase 1 hands anything over to `advance`."""
        return False

    def __call__(self, p: Tree, x: Any) -> Any:
        """x -> y."""
        raise NotImplementedError

    def inverse(self, p: Tree, y: Any) -> Any:
        """y -> x."""
        raise NotImplementedError

    def push(self, vjp: Vjp, p: Tree, x: Any) -> tuple[Any, Tree]:
        """x -> y, and what `pull_x` needs besides the parameters: Mx, which phase 1 of mixed Moonwalk keeps."""
        y, pull = vjp(lambda x: self(p, x), x)
        return y, pull

    def pull_x(self, p: Tree, kept: Tree, h: Any) -> Any:
        """h_i -> h_{i−1} = h_i ∂f_i/∂x, from the parameters and what `push` kept; nothing is evaluated again."""
        return kept(h)[0]

    def handed(self, kept: Tree, h: Any) -> Tree:
        """What phase 1 hands over to `advance` in place of `kept`; {} if `hands_over` is false.

        h is h_i. What is handed over has the shape and dtype of `kept`, so that it can take its place in memory.
        """
        return {}

    def vijp(self, vjp: Vjp, p: Tree, x: Any, y: Any, h: Any) -> Any:
        """h_{i−1} -> h_i: the VJP of the inverse at y, ∂f^{-1}/∂y = (∂f/∂x)^{-1} (§4)."""
        return vjp(lambda y: self.inverse(p, y), y)[1](h)[0]

    def advance(self, vjp: Vjp, p: Tree, x: Any, h: Any, handed: Tree = None) -> Step:
        """x_{i−1}, h_{i−1} -> x_i, h_i = vijp(f_i, x_{i−1}, h_{i−1}), and g_i = vjp(f_i, θ_i, h_i).

        `handed` is what the method `handed` gave in phase 1; None if phase 1 hands nothing over.
        """
        y, pull = vjp(lambda p: self(p, x), p)
        h = self.vijp(vjp, p, x, y, h)
        return y, h, pull(h)[0]

    def retreat(self, vjp: Vjp, p: Tree, y: Any, h: Any) -> Step:
        """x_i and h_i -> x_{i−1} by the inverse, h_{i−1}, and g_i."""
        x = self.inverse(p, y)
        _, pull = vjp(self, p, x)
        dp, h = pull(h)
        return x, h, dp


@dataclass(frozen=True)
class Layer(Chained):
    """One invertible layer of a Spec's chain.

    The parameters are a dict as `layout` says, without the layer axis. Its calls are counted as ``layer``, those of its
    inverse as ``inverse``, and those of `pull_x` as ``pull`` (`Problem.counted`).
    """

    name: str
    backend: str
    shape: Shape
    on_call: OnCall | None = field(default=None, kw_only=True, repr=False, compare=False)

    nets: ClassVar[Mapping[str, str]] = {}
    by_hand: ClassVar[bool] = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Make the `nets` of every kind of layer countable."""
        super().__init_subclass__(**kwargs)
        countable(cls)

    def positions(self, net: str, *args: Any) -> int:
        """One call counts once, however many samples and places there are."""
        return 1

    @property
    def xp(self) -> Any:
        """The Array API namespace."""
        return namespace(self.backend)

    def layout(self, count: int, scale: float, bias: float = 0.0) -> dict[str, Any]:
        """The draws of `count` such layers' parameters, stacked."""
        return {}
