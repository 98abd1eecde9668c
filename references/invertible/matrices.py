"""Layers that are a matrix: invertible ones, and submersive ones, which have fewer outputs than inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from gradgate.references.backends import namespace
from gradgate.references.contract import Tree
from gradgate.references.draws import Normal
from gradgate.references.invertible.layer import Layer, NotInvertible, Step, Vjp


# y = x W + b: h_{i−1} = h_i Wᵀ, so h_iᵀ solves W h_iᵀ = h_{i−1}ᵀ; x solves Wᵀ xᵀ = (y − b)ᵀ.
@dataclass(frozen=True)
class Linear(Layer):
    """Invertible matrix W on all numbers of a sample (dense), or on the channels of each place (1×1 convolution).

    Source: the 1×1 convolution is Kingma and Dhariwal's (2018). Cost: an LU decomposition per inverse or vijp.
    """

    places: bool = False

    nets: ClassVar[Mapping[str, str]] = {"__call__": "layer", "inverse": "inverse", "pull_x": "pull"}

    @property
    def width(self) -> int:
        """Rows of W."""
        return self.shape.channels if self.places else self.shape.numbers

    def layout(self, count: int, scale: float, bias: float = 0.0) -> dict[str, Any]:
        """W without the identity, which the Spec adds, of spectral norm about 2/3·scale; and b."""
        n = self.width
        return {"w": Normal((count, n, n), scale / (3 * math.sqrt(n))), "b": Normal((count, n), 0.1, bias)}

    def __call__(self, p: Tree, x: Any) -> Any:
        """x -> x W + b."""
        return self.xp.reshape(self.xp.matmul(self._rows(x), p["w"]) + p["b"], x.shape)

    def inverse(self, p: Tree, y: Any) -> Any:
        """By a linear solve. Where W is singular, the result is infinite or NaN, or the backend raises."""
        return self._solved(self.xp.matrix_transpose(p["w"]), self._rows(y) - p["b"], y.shape)

    def push(self, vjp: Vjp, p: Tree, x: Any) -> tuple[Any, Tree]:
        """Keeps nothing: the Jacobian is W alone."""
        return self(p, x), {}

    def pull_x(self, p: Tree, kept: Tree, h: Any) -> Any:
        """H Wᵀ."""
        return self.xp.reshape(self.xp.matmul(self._rows(h), self.xp.matrix_transpose(p["w"])), h.shape)

    def advance(self, vjp: Vjp, p: Tree, x: Any, h: Any, handed: Tree = None) -> Step:
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
# rank, although x cannot be found from y. With W = Q R it is h_iᵀ = R⁻¹ (h_{i−1} Q)ᵀ; what rounding has added to
# h_{i−1} outside the range of Wᵀ is orthogonal to Q and drops out.
@dataclass(frozen=True)
class Submersion(Layer):
    """W with more rows than columns, on the channels of each place: its Jacobian is surjective, and it has no inverse.

    The paper has no such layer: it requires invertible ones (§4), and leaves others open in its last section. Moonwalk
    can pass through it, because vijp needs only a right inverse of ∂y/∂x. Reversing backprop cannot. Cost: a QR
    decomposition per vijp.
    """

    outputs: int = 1

    nets: ClassVar[Mapping[str, str]] = {"__call__": "layer", "pull_x": "pull"}

    def layout(self, count: int, scale: float, bias: float = 0.0) -> dict[str, Any]:
        """As `Linear`'s: W without the identity's first columns, and b."""
        n, m = self.shape.channels, self.outputs
        return {"w": Normal((count, n, m), scale / (3 * math.sqrt(n))), "b": Normal((count, m), 0.1, bias)}

    def __call__(self, p: Tree, x: Any) -> Any:
        """x -> x W + b, (batch, side, side, channels) -> (batch, side, side, outputs)."""
        return self.xp.matmul(x, p["w"]) + p["b"]

    def inverse(self, p: Tree, y: Any) -> Any:
        """There is none.

        Raises:
            NotInvertible: always.
        """
        raise NotInvertible(
            f"{self.name} has no inverse: from {self.shape.channels} channels it makes {self.outputs}, so its Jacobian "
            "is only surjective; moonwalk, and moonwalk_mixed with vijp closed or solve, need no inverse"
        )

    def push(self, vjp: Vjp, p: Tree, x: Any) -> tuple[Any, Tree]:
        """Keeps nothing: the Jacobian is W alone."""
        return self(p, x), {}

    def pull_x(self, p: Tree, kept: Tree, h: Any) -> Any:
        """H Wᵀ, of the shape of x."""
        return self.xp.matmul(h, self.xp.matrix_transpose(p["w"]))

    def advance(self, vjp: Vjp, p: Tree, x: Any, h: Any, handed: Tree = None) -> Step:
        """One QR decomposition and a solve for vijp; g by vjp."""
        rows = self.xp.reshape(h, (-1, self.shape.channels))
        h = right_solved(self.backend, p["w"], rows)
        y, pull = vjp(lambda p: self(p, x), p)
        h = self.xp.reshape(h, y.shape)
        return y, h, pull(h)[0]


def right_solved(backend: str, matrix: Any, rows: Any) -> Any:
    """Each row's r with r Aᵀ = row, A of full column rank (n, m), rows (k, n) in the range of Aᵀ -> (k, m).

    A = Q R, and R is triangular: m² operations a row by substitution.
    """
    xp = namespace(backend)
    q, r = xp.linalg.qr(matrix)
    return xp.matrix_transpose(_substituted(backend, r, xp.matrix_transpose(xp.matmul(rows, q))))


def _substituted(backend: str, upper: Any, right: Any) -> Any:
    """Z with R Z = right, R upper triangular; NumPy, which has no substitution, solves in general."""
    if backend == "jax":
        import jax

        return jax.scipy.linalg.solve_triangular(upper, right, lower=False)
    if backend == "torch":
        import torch

        return torch.linalg.solve_triangular(upper, right, upper=True)
    return namespace(backend).linalg.solve(upper, right)
