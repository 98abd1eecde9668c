"""Layers that can be inverted, each with its vector-inverse-Jacobian product, written once for every backend.

A layer maps x (batch, side, side, channels) to y of as many numbers; only a `Submersion` gives fewer. Besides its
inverse it knows a step of Moonwalk's second phase, `advance`, and one of reversing backprop, `retreat`; both take the
framework's own ``vjp`` (`jax.vjp` or `torch.func.vjp`, which have one signature).

Notation of the paper (Moonwalk, §4): h is the row vector ∂J/∂x; vijp(f, x, h) = h (∂f/∂x)^{-1}, so it takes ∂J/∂x_{i−1}
to ∂J/∂x_i; g is ∂J/∂θ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gradgate.hw_profiles.calls import OnCall
from gradgate.references.backends import namespace, tree_map
from gradgate.references.contract import Tree, UsageError, countable, unknown
from gradgate.references.draws import Normal
from gradgate.references.invertible.residual import Residual

Vjp = Callable[..., Any]
"""``vjp(function, *primals) -> (value, pull)``, and ``pull(cotangent)`` gives a cotangent per primal."""
Step = tuple[Any, Any, Tree]
SLOPE = 0.2
"""Of the leaky ReLU, left of 0."""


class NotInvertible(ValueError):
    """A layer's inverse does not give its input back, or it has none.

    Cause: a singular matrix, a saturated tanh, an inverse that is wrong or loses too many digits, fewer outputs than
    inputs. Remedy: the message names the layer and the error; backprop and forward mode need no inverse, and Moonwalk
    none of layers whose Jacobian is surjective.
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


@dataclass(frozen=True)
class Layer:
    """One invertible layer; `name` says which one an error is about.

    Called with its parameters and x it gives y. The parameters are a dict as `layout` says, without the layer axis.
    Its calls are counted as ``layer``, those of its inverse as ``inverse`` (`Problem.counted`).
    """

    name: str
    backend: str
    shape: Shape
    on_call: OnCall | None = field(default=None, kw_only=True, repr=False, compare=False)

    nets: ClassVar[Mapping[str, str]] = {}

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

    def __call__(self, p: Tree, x: Any) -> Any:
        """X -> y."""
        raise NotImplementedError

    def inverse(self, p: Tree, y: Any) -> Any:
        """Y -> x."""
        raise NotImplementedError

    def advance(self, vjp: Vjp, p: Tree, x: Any, h: Any) -> Step:
        """x_{i−1}, h_{i−1} -> x_i, h_i = vijp(f_i, x_{i−1}, h_{i−1}) in closed form, and g_i = vjp(f_i, θ_i, h_i)."""
        raise NotImplementedError

    def retreat(self, vjp: Vjp, p: Tree, y: Any, h: Any) -> Step:
        """x_i and h_i -> x_{i−1} by the inverse, h_{i−1}, and g_i."""
        x = self.inverse(p, y)
        _, pull = vjp(self, p, x)
        dp, h = pull(h)
        return x, h, dp


# y2 = x2 + F(x1), y1 = x1 has the Jacobian (identity, 0; F', identity): h_x2 = h_y2 and h_x1 = h_y1 + F'ᵀ h_y2. Read
# the other way it gives h_y without a solve; and the VJP of F by which F'ᵀ h_y2 is found gives g at no other cost.
# With y2 = x2·e^s(x1) + t(x1) likewise h_y2 = h_x2·e^−s, and F' is that of the whole expression, x2 held.
# y is put out as (y2, y1): the halves change places, or x1 would be the same through all layers (Eq. 12 as printed).
@dataclass(frozen=True)
class Coupling(Layer):
    """Additive or affine coupling: one part of the channels is moved by a function of the other.

    Source: Moonwalk, Eq. 12–13; affine: Dinh et al. (2017). The log-scale is ½·tanh of its own residual function, so
    that no sample is stretched by more than e^½.
    """

    residual: Residual
    affine: bool = False

    nets: ClassVar[Mapping[str, str]] = {"_moved": "layer", "_shift": "inverse"}

    @property
    def kept(self) -> int:
        """Channels of x1."""
        return self.shape.channels // 2

    def layout(self, count: int, scale: float, bias: float = 0.0) -> dict[str, Any]:
        """Parameters of the residual functions ``shift`` and, where affine, ``scale``."""
        names = ("shift", "scale") if self.affine else ("shift",)
        return {name: self.residual.layout(count, scale) for name in names}

    def __call__(self, p: Tree, x: Any) -> Any:
        """(x1, x2) -> (y2, x1)."""
        x1, x2 = x[..., : self.kept], x[..., self.kept :]
        return self._join(self._moved(p, x1, x2), x1)

    def inverse(self, p: Tree, y: Any) -> Any:
        """(y2, x1) -> (x1, x2)."""
        y2, x1 = self._parts(y)
        x2 = y2 - self._shift(p["shift"], x1)
        return self._join(x1, x2 * self.xp.exp(-self._log_scale(p, x1)) if self.affine else x2)

    def advance(self, vjp: Vjp, p: Tree, x: Any, h: Any) -> Step:
        """As derived above; costs one forward and one backward pass of the residual functions."""
        x1, x2 = x[..., : self.kept], x[..., self.kept :]
        h1, h2 = h[..., : self.kept], h[..., self.kept :]
        if self.affine:
            h2 = h2 * self.xp.exp(-self._log_scale(p, x1))
        y2, pull = vjp(lambda p, x1: self._moved(p, x1, x2), p, x1)
        dp, d1 = pull(h2)
        return self._join(y2, x1), self._join(h2, h1 - d1), dp

    def retreat(self, vjp: Vjp, p: Tree, y: Any, h: Any) -> Step:
        """Additive: the residual function is run once, for x2 and for its VJP."""
        if self.affine:
            return super().retreat(vjp, p, y, h)
        (y2, x1), (h2, h1) = self._parts(y), self._parts(h)
        moved, pull = vjp(self._shift, p["shift"], x1)
        dp, d1 = pull(h2)
        return self._join(x1, y2 - moved), self._join(h1 + d1, h2), {"shift": dp}

    def _moved(self, p: Tree, x1: Any, x2: Any) -> Any:
        if self.affine:
            x2 = x2 * self.xp.exp(self._log_scale(p, x1))
        return x2 + self.residual(p["shift"], x1)

    def _shift(self, p: Tree, x1: Any) -> Any:
        """What the inverse takes away from y2."""
        return self.residual(p, x1)

    def _log_scale(self, p: Tree, x1: Any) -> Any:
        return 0.5 * self.xp.tanh(self.residual(p["scale"], x1))

    def _parts(self, y: Any) -> tuple[Any, Any]:
        cut = self.shape.channels - self.kept
        return y[..., :cut], y[..., cut:]

    def _join(self, first: Any, second: Any) -> Any:
        return self.xp.concat([first, second], axis=-1)


# h_{i−1} = h_i·f'(x) elementwise, so vijp divides by f'(x). Where tanh is flat 1 − tanh² has lost digits; dividing by
# the very numbers that the VJP of phase 1 multiplied by cancels their error, however large. So they are asked of vjp.
@dataclass(frozen=True)
class Elementwise(Layer):
    """Tanh, whose derivative falls to 0, or the leaky ReLU, which has a kink at 0."""

    function: str = "tanh"

    nets: ClassVar[Mapping[str, str]] = {"__call__": "layer", "inverse": "inverse"}

    def __call__(self, p: Tree, x: Any) -> Any:
        """X -> y, number by number."""
        return self.xp.tanh(x) if self.function == "tanh" else self.xp.where(x > 0, x, SLOPE * x)

    def inverse(self, p: Tree, y: Any) -> Any:
        """Tanh: infinite where y has been rounded to ±1."""
        return self.xp.atanh(y) if self.function == "tanh" else self.xp.where(y > 0, y, y / SLOPE)

    def advance(self, vjp: Vjp, p: Tree, x: Any, h: Any) -> Step:
        """Divide by the derivative that `vjp` itself has."""
        y, pull = vjp(lambda x: self({}, x), x)
        return y, h / pull(self.xp.ones_like(x))[0], {}


# y = x W + b: h_{i−1} = h_i Wᵀ, so h_iᵀ solves W h_iᵀ = h_{i−1}ᵀ; x solves Wᵀ xᵀ = (y − b)ᵀ.
@dataclass(frozen=True)
class Linear(Layer):
    """Invertible matrix W on all numbers of a sample (dense), or on the channels of each place (1×1 convolution).

    Source: the 1×1 convolution is Kingma and Dhariwal's (2018). Cost: an LU decomposition per inverse or vijp.
    """

    places: bool = False

    nets: ClassVar[Mapping[str, str]] = {"__call__": "layer", "inverse": "inverse"}

    @property
    def width(self) -> int:
        """Rows of W."""
        return self.shape.channels if self.places else self.shape.numbers

    def layout(self, count: int, scale: float, bias: float = 0.0) -> dict[str, Any]:
        """W without the identity, which the Spec adds, of spectral norm about 2/3·scale; and b."""
        n = self.width
        return {"w": Normal((count, n, n), scale / (3 * math.sqrt(n))), "b": Normal((count, n), 0.1, bias)}

    def __call__(self, p: Tree, x: Any) -> Any:
        """X -> x W + b."""
        return self.xp.reshape(self.xp.matmul(self._rows(x), p["w"]) + p["b"], x.shape)

    def inverse(self, p: Tree, y: Any) -> Any:
        """By a linear solve; infinite or NaN where W is singular, and some backends raise."""
        return self._solved(self.xp.matrix_transpose(p["w"]), self._rows(y) - p["b"], y.shape)

    def advance(self, vjp: Vjp, p: Tree, x: Any, h: Any) -> Step:
        """One solve for vijp; g by vjp."""
        h = self._solved(p["w"], self._rows(h), h.shape)
        y, pull = vjp(lambda p: self(p, x), p)
        return y, h, pull(h)[0]

    def _rows(self, x: Any) -> Any:
        return self.xp.reshape(x, (-1, self.width))

    def _solved(self, matrix: Any, rows: Any, shape: tuple[int, ...]) -> Any:
        turn = self.xp.matrix_transpose
        return self.xp.reshape(turn(self.xp.linalg.solve(matrix, turn(rows))), shape)


# y = x W + b with more rows in W than columns: h_{i−1} = h_i Wᵀ still has one solution h_i where W has full column
# rank, though x cannot be had from y. With W = Q R it is h_iᵀ = R⁻¹ (h_{i−1} Q)ᵀ; what rounding has added to h_{i−1}
# outside the range of Wᵀ is orthogonal to Q and drops out.
@dataclass(frozen=True)
class Submersion(Layer):
    """W with more rows than columns, on the channels of each place: its Jacobian is surjective, and it has no inverse.

    Not in the paper, which asks for invertible layers (§4); its last section leaves others open. Moonwalk passes it,
    since vijp needs only a right inverse of ∂y/∂x; reversing backprop cannot. Cost: a QR decomposition per vijp.
    """

    outputs: int = 1

    nets: ClassVar[Mapping[str, str]] = {"__call__": "layer"}

    def layout(self, count: int, scale: float, bias: float = 0.0) -> dict[str, Any]:
        """As `Linear`'s: W without the identity's first columns, and b."""
        n, m = self.shape.channels, self.outputs
        return {"w": Normal((count, n, m), scale / (3 * math.sqrt(n))), "b": Normal((count, m), 0.1, bias)}

    def __call__(self, p: Tree, x: Any) -> Any:
        """X -> x W + b, (batch, side, side, channels) -> (batch, side, side, outputs)."""
        return self.xp.matmul(x, p["w"]) + p["b"]

    def inverse(self, p: Tree, y: Any) -> Any:
        """There is none.

        Raises:
            NotInvertible: always.
        """
        raise NotInvertible(
            f"{self.name} has no inverse: from {self.shape.channels} channels it makes {self.outputs}, its Jacobian is "
            "surjective only; moonwalk, and moonwalk_mixed with vijp closed or solve, need none"
        )

    def advance(self, vjp: Vjp, p: Tree, x: Any, h: Any) -> Step:
        """One QR decomposition and a solve for vijp; g by vjp."""
        rows = self.xp.reshape(h, (-1, self.shape.channels))
        h = right_solved(self.xp, p["w"], rows)
        y, pull = vjp(lambda p: self(p, x), p)
        h = self.xp.reshape(h, y.shape)
        return y, h, pull(h)[0]


@dataclass(frozen=True)
class Downsampling(Layer):
    """ψ: each square of 2×2 places becomes one place of four times the channels (Jacobsen et al., 2018).

    A permutation: its inverse is its transpose, and vijp is ψ itself.
    """

    nets: ClassVar[Mapping[str, str]] = {"__call__": "layer", "inverse": "inverse"}

    def __call__(self, p: Tree, x: Any) -> Any:
        """(batch, 2s, 2s, c) -> (batch, s, s, 4c)."""
        half, c = self.shape.side // 2, self.shape.channels
        squares = self.xp.reshape(x, (-1, half, 2, half, 2, c))
        return self.xp.reshape(self.xp.permute_dims(squares, (0, 1, 3, 2, 4, 5)), (-1, half, half, 4 * c))

    def inverse(self, p: Tree, y: Any) -> Any:
        """(batch, s, s, 4c) -> (batch, 2s, 2s, c)."""
        side, c = self.shape.side, self.shape.channels
        squares = self.xp.reshape(y, (-1, side // 2, side // 2, 2, 2, c))
        return self.xp.reshape(self.xp.permute_dims(squares, (0, 1, 3, 2, 4, 5)), (-1, side, side, c))

    def advance(self, vjp: Vjp, p: Tree, x: Any, h: Any) -> Step:
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
"""Layers that are often asked for, and why a unit may not have them. A Jacobian that is injective only loses what of
h_i lies outside its range, and no vijp brings that back; one that is surjective only is that of `Submersion`."""


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

    Cost: as the inverse forward and back; its accuracy is that of the inverse at y, not at x.
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
    return xp.reshape(right_solved(xp, xp.matrix_transpose(jacobian), xp.reshape(h, (1, -1))), y.shape)


def right_solved(xp: Any, matrix: Any, rows: Any) -> Any:
    """Each row's r with r Aᵀ = row, A of full column rank (n, m), rows (k, n) in the range of Aᵀ -> (k, m)."""
    q, r = xp.linalg.qr(matrix)
    return xp.matrix_transpose(xp.linalg.solve(r, xp.matrix_transpose(xp.matmul(rows, q))))


def in_layer(params: Tree, index: Any) -> Tree:
    """The parameters of one of a block's stacked units."""
    return tree_map(lambda leaf: leaf[index], params)
