"""Layers that can be inverted, each with its vector-inverse-Jacobian product, written once for every backend.

A layer maps x (batch, side, side, channels) to y of as many numbers; only a `Submersion` gives fewer. Besides its
inverse a layer has a step of Moonwalk's second phase, `advance`, and a step of reversing backprop, `retreat`. Both take
the framework's own ``vjp`` (`jax.vjp` or `torch.func.vjp`, which have one signature).

Notation of the paper (Moonwalk, §4): h is the row vector ∂J/∂x; vijp(f, x, h) = h (∂f/∂x)^{-1}, so it takes ∂J/∂x_{i−1}
to ∂J/∂x_i; g is ∂J/∂θ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from gradgate.references.backends import tree_map
from gradgate.references.contract import Tree, UsageError, unknown
from gradgate.references.invertible import halves
from gradgate.references.invertible.layer import Layer, NotInvertible, Shape, Step, Vjp
from gradgate.references.invertible.matrices import Linear, Submersion, right_solved
from gradgate.references.invertible.residual import Residual

__all__ = [
    "LAYERS",
    "NOT_INVERTIBLE",
    "PARAMETRISED",
    "SLOPE",
    "Coupling",
    "Downsampling",
    "Elementwise",
    "Layer",
    "Linear",
    "NotInvertible",
    "Shape",
    "Step",
    "Submersion",
    "Vjp",
    "in_layer",
    "named",
    "vijp_by_solve",
    "vijp_of_inverse",
]
SLOPE = 0.2
"""The slope of the leaky ReLU, left of 0."""
FLAT = 2.0**-12
"""The derivative of tanh below which phase 1 of mixed Moonwalk hands h over: half of float32's digits."""


# The output is (y2, y1): the halves change places. Otherwise x1 would be the same through all layers (Eq. 12 as
# printed).
@dataclass(frozen=True)
class Coupling(Layer):
    """Additive or affine coupling: one part of the channels is moved by a function of the other (`halves`).

    Source: Moonwalk, Eq. 12–13; affine: Dinh et al. (2017). The log-scale is ½·tanh of its own residual function, so
    that no sample is stretched by more than e^½.
    """

    residual: Residual
    affine: bool = False

    nets: ClassVar[Mapping[str, str]] = {
        "_ahead": "layer",
        "_back": "inverse",
        "push": "layer",
        "pull_x": "pull",
    }

    @property
    def first_channels(self) -> int:
        """Channels of x1."""
        return self.shape.channels // 2

    def layout(self, count: int, scale: float, bias: float = 0.0) -> dict[str, Any]:
        """Parameters of the residual functions ``shift`` and, where affine, ``scale``."""
        names = ("shift", "scale") if self.affine else ("shift",)
        return {name: self.residual.layout(count, scale) for name in names}

    def __call__(self, p: Tree, x: Any) -> Any:
        """(x1, x2) -> (y2, x1)."""
        x1, x2 = self._split(x)
        return self._join(halves.moved(self.xp, self._ahead(p, x1), x2), x1)

    def inverse(self, p: Tree, y: Any) -> Any:
        """(y2, x1) -> (x1, x2)."""
        y2, x1 = self._parts(y)
        return self._join(x1, halves.restored(self.xp, self._back(p, x1), y2))

    def push(self, vjp: Vjp, p: Tree, x: Any) -> tuple[Any, Tree]:
        """Keeps what the residual functions' pull-backs need; where affine, the log-scale and x2 too."""
        x1, x2 = self._split(x)
        shift, kept = self.residual.push(p["shift"], x1)
        found = {"shift": kept}
        if self.affine:
            raw, found["scale"] = self.residual.push(p["scale"], x1)
            found["log_scale"], found["x2"] = 0.5 * self.xp.tanh(raw), x2
            x2 = x2 * self.xp.exp(found["log_scale"])
        return self._join(x2 + shift, x1), found

    def pull_x(self, p: Tree, kept: Tree, h: Any) -> Any:
        """h_x2 = h_y2·e^s and h_x1 = h_y1 + t'ᵀ h_y2 + s'ᵀ (h_y2·x2·e^s)."""
        h2, h1 = self._parts(h)
        h1 = h1 + self.residual.pull(p["shift"], kept["shift"], h2)
        if self.affine:
            s = kept["log_scale"]
            h2 = h2 * self.xp.exp(s)
            h1 = h1 + self.residual.pull(p["scale"], kept["scale"], h2 * kept["x2"] * (0.5 - 2 * s * s))
        return self._join(h1, h2)

    def advance(self, vjp: Vjp, p: Tree, x: Any, h: Any, handed: Tree = None) -> Step:
        """Costs one forward and one backward pass of the residual functions."""
        (x1, x2), (h1, h2) = self._split(x), self._split(h)
        y2, h1, h2, dp = halves.advance(self.xp, vjp, self._ahead, p, x1, x2, h1, h2)
        return self._join(y2, x1), self._join(h2, h1), dp

    def retreat(self, vjp: Vjp, p: Tree, y: Any, h: Any) -> Step:
        """The residual functions are run once, for x2 and for their VJP."""
        (y2, x1), (h2, h1) = self._parts(y), self._parts(h)
        x2, h1, h2, dp = halves.retreat(self.xp, vjp, self._back, p, x1, y2, h1, h2)
        return self._join(x1, x2), self._join(h1, h2), dp

    def _ahead(self, p: Tree, x1: Any) -> tuple[Any, ...]:
        return self._functions(p, x1)

    def _back(self, p: Tree, x1: Any) -> tuple[Any, ...]:
        return self._functions(p, x1)

    def _functions(self, p: Tree, x1: Any) -> tuple[Any, ...]:
        shift = self.residual(p["shift"], x1)
        return (shift, 0.5 * self.xp.tanh(self.residual(p["scale"], x1))) if self.affine else (shift,)

    def _split(self, x: Any) -> tuple[Any, Any]:
        return x[..., : self.first_channels], x[..., self.first_channels :]

    def _parts(self, y: Any) -> tuple[Any, Any]:
        cut = self.shape.channels - self.first_channels
        return y[..., :cut], y[..., cut:]

    def _join(self, first: Any, second: Any) -> Any:
        return self.xp.concat([first, second], axis=-1)


# h_{i−1} = h_i·f'(x) elementwise, so vijp divides by f'(x). Where tanh is flat, 1 − tanh² has lost digits. Dividing by
# exactly the numbers that phase 1 multiplied by cancels their error, however large it is. So both get these numbers
# from vjp. Where f'(x) has been rounded to 0, h_{i−1} is 0 whatever h_i was. Then the Jacobian is singular, and no
# product with an inverse brings h_i back, although h_i is finite. Where f'(x) is small, h_{i−1} holds few digits of h_i
# as soon as the layers below add larger numbers to it. Phase 1 by reverse mode knows h_i. Where dividing by f'(x) would
# lose 12 bits or more it hands h_i over, and 0 elsewhere. These take the memory of f'(x), which is no longer needed.
@dataclass(frozen=True)
class Elementwise(Layer):
    """Tanh, whose derivative falls to 0, or the leaky ReLU, which has a kink at 0."""

    function: str = "tanh"

    nets: ClassVar[Mapping[str, str]] = {"__call__": "layer", "inverse": "inverse", "pull_x": "pull"}

    def __call__(self, p: Tree, x: Any) -> Any:
        """x -> y, number by number."""
        return self.xp.tanh(x) if self.function == "tanh" else self.xp.where(x > 0, x, SLOPE * x)

    def inverse(self, p: Tree, y: Any) -> Any:
        """Tanh: infinite where y has been rounded to ±1."""
        return self.xp.atanh(y) if self.function == "tanh" else self.xp.where(y > 0, y, y / SLOPE)

    @property
    def hands_over(self) -> bool:
        """Tanh does."""
        return self.function == "tanh"

    def push(self, vjp: Vjp, p: Tree, x: Any) -> tuple[Any, Tree]:
        """Keeps the derivative of tanh; of the leaky ReLU on which side of 0 x is, a byte."""
        if self.function != "tanh":
            return self(p, x), x > 0
        y, pull = vjp(lambda x: self({}, x), x)
        return y, pull(self.xp.ones_like(x))[0]

    def pull_x(self, p: Tree, kept: Tree, h: Any) -> Any:
        """H times the derivative."""
        return h * kept if self.function == "tanh" else self.xp.where(kept, h, SLOPE * h)

    def handed(self, kept: Tree, h: Any) -> Tree:
        """H where tanh is flatter than `FLAT`; 0 elsewhere.

        A derivative that is NaN counts as flat, so that NaN is handed on.
        """
        if self.function != "tanh":
            return {}
        return self.xp.where(kept >= FLAT, self.xp.zeros_like(h), h)

    def advance(self, vjp: Vjp, p: Tree, x: Any, h: Any, handed: Tree = None) -> Step:
        """Divide by the derivative that `vjp` itself has, where phase 1 has not handed over h_i."""
        y, pull = vjp(lambda x: self({}, x), x)
        slope = pull(self.xp.ones_like(x))[0]
        if handed is None or not self.hands_over:
            return y, h / slope, {}
        flat = (handed != 0) | (slope == 0)  # h_i itself may be 0 where the derivative is: the quotient would be NaN
        return y, self.xp.where(flat, handed, h / self.xp.where(flat, self.xp.ones_like(slope), slope)), {}


@dataclass(frozen=True)
class Downsampling(Layer):
    """ψ: each square of 2×2 places becomes one place of four times the channels (Jacobsen et al., 2018).

    A permutation: its inverse is its transpose, and vijp is ψ itself.
    """

    nets: ClassVar[Mapping[str, str]] = {"__call__": "layer", "inverse": "inverse", "pull_x": "pull"}

    def __call__(self, p: Tree, x: Any) -> Any:
        """(batch, 2s, 2s, c) -> (batch, s, s, 4c)."""
        half, c = self.shape.side // 2, self.shape.channels
        squares = self.xp.reshape(x, (-1, half, 2, half, 2, c))
        return self.xp.reshape(self.xp.permute_dims(squares, (0, 1, 3, 2, 4, 5)), (-1, half, half, 4 * c))

    def inverse(self, p: Tree, y: Any) -> Any:
        """(batch, s, s, 4c) -> (batch, 2s, 2s, c)."""
        return self._spread(y)

    def push(self, vjp: Vjp, p: Tree, x: Any) -> tuple[Any, Tree]:
        """Keeps nothing."""
        return self(p, x), {}

    def pull_x(self, p: Tree, kept: Tree, h: Any) -> Any:
        """ψ^{-1} of h."""
        return self._spread(h)

    def _spread(self, y: Any) -> Any:
        side, c = self.shape.side, self.shape.channels
        squares = self.xp.reshape(y, (-1, side // 2, side // 2, 2, 2, c))
        return self.xp.reshape(self.xp.permute_dims(squares, (0, 1, 3, 2, 4, 5)), (-1, side, side, c))

    def advance(self, vjp: Vjp, p: Tree, x: Any, h: Any, handed: Tree = None) -> Step:
        """ψ of both."""
        return self(p, x), self(p, h), {}

    def retreat(self, vjp: Vjp, p: Tree, y: Any, h: Any) -> Step:
        """ψ^{-1} of both."""
        return self.inverse(p, y), self.inverse(p, h), {}


LAYERS = ("additive", "affine", "dense", "conv1x1", "leaky_relu", "tanh")
PARAMETRISED = LAYERS[:4]
NOT_INVERTIBLE = {
    "relu": "it maps every negative number to 0; legal instead: leaky_relu",
    "conv": "a convolution over places need not be; put it into a coupling with residual='conv', or use conv1x1",
    "pool": "it has fewer outputs than inputs (its Jacobian is surjective at best); legal instead: the down-sampling ψ "
    "and, between blocks, submersive=1",
    "pad": "it has more outputs than inputs: its Jacobian is injective, so ∂J/∂x does not determine ∂J/∂y",
}
"""Layers that users often want, and why a unit may not have them. A Jacobian that is only injective loses the part of
h_i outside its range, and no vijp brings that part back. `Submersion` has a Jacobian that is only surjective."""


def named(word: str, name: str, backend: str, shape: Shape, residual: Callable[[int, int], Residual]) -> Layer:
    """The layer that a word of ``spec.unit`` stands for.

    Args:
        word: one of LAYERS.
        name: for errors.
        residual: (channels in, channels out) -> the residual function of a coupling.

    Raises:
        UsageError: no such layer, or one that is not invertible; says why.
    """
    if word in NOT_INVERTIBLE:
        raise UsageError(f"{name}: {word} is not invertible: {NOT_INVERTIBLE[word]}")
    if word not in LAYERS:
        raise unknown("layer", word, LAYERS)
    if word in ("additive", "affine"):
        if shape.channels < 2:
            raise UsageError(f"{name}: a coupling needs at least 2 channels to split, not {shape.channels}")
        half = shape.channels // 2
        return Coupling(name, backend, shape, residual(half, shape.channels - half), word == "affine")
    if word in ("dense", "conv1x1"):
        return Linear(name, backend, shape, word == "conv1x1")
    return Elementwise(name, backend, shape, word)


def vijp_of_inverse(vjp: Vjp, layer: Layer, p: Tree, x: Any, h: Any) -> Any:
    """Vijp of any layer: the VJP of its inverse at y, ∂f^{-1}/∂y = (∂f/∂x)^{-1} (§4).

    Cost: that of the inverse, forward and back. Its accuracy is that of the inverse at y, not at x.
    """
    return vjp(lambda y: layer.inverse(p, y), layer(p, x))[1](h)[0]


def vijp_by_solve(vmap: Callable[..., Any], vjp: Vjp, layer: Layer, p: Tree, x: Any, h: Any) -> Any:
    """Vijp of any layer whose Jacobian is surjective: builds ∂f/∂x, row by row, and solves.

    Cost: with N numbers in x, at most N VJPs at once, N² numbers, and N³ operations: for small layers and for checks.
    """
    xp = layer.xp
    y, pull = vjp(lambda x: layer(p, x), x)
    size = math.prod(y.shape)
    rows = vmap(lambda row: pull(xp.reshape(row, y.shape))[0])(xp.eye(size, dtype=x.dtype))
    jacobian = xp.reshape(rows, (size, math.prod(x.shape)))
    return xp.reshape(right_solved(layer.backend, xp.matrix_transpose(jacobian), xp.reshape(h, (1, -1))), y.shape)


def in_layer(params: Tree, index: Any) -> Tree:
    """The parameters of one of a block's stacked units."""
    return tree_map(lambda leaf: leaf[index], params)
