"""Stacked selective state-space models with a residual stream, written once for NumPy, JAX and PyTorch.

Notation of the paper (Adjoint sharding, §3): layer k reads ŷ_{k-1} = Norm(y_{k-1}), computes A^t, B^t, C^t from it,
h^t = A^t h^{t-1} + B^t ŷ^t, ỹ^t = C^t h^t and y_k = y_{k-1} + ỹ; the loss is the sum over t of l(y_K^t).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gradgate.references.backends import scan, stop_gradient
from gradgate.references.contract import Backend, Problem, Spec, Tree, UsageError, unknown, value_field
from gradgate.references.draws import Constant, Integers, Normal, draw

CHOICES = {
    "structure": ("unstructured", "diagonal", "scalar"),
    "maps": ("full", "vectors"),
    "activation": ("identity", "tanh", "silu"),
    "norm": ("none", "rms", "layer"),
    "head": ("cross_entropy", "squared_error"),
}


@dataclass(frozen=True)
class StateSpaceSpec(Spec):
    """Plain numbers that build a `StateSpaceProblem`.

    Attributes:
        structure: that of A: ``unstructured`` (N×N), ``diagonal`` (N) or ``scalar`` (1).
        maps: B and C: ``full``, N×P numbers each; or ``vectors``, N numbers each: B = b·1ᵀ/√P, so that all numbers of a
            token enter alike, and C = 1·cᵀ, so that all numbers of a token get the same.
        length: T, tokens per sequence.
        layers: K.
        state: N, numbers in h.
        width: P, numbers per token.
        batch: sequences.
        depth: dense layers in each of the nets A, B and C.
        activation: between the dense layers of a net; in a net of depth 1, after its only layer.
        norm: applied to the input of each layer.
        head: ``cross_entropy`` over `vocabulary` tokens, or ``squared_error`` against targets of width P.
        scale: factor of all weights of the nets.
        decay: mean input of the function that bounds A; for diagonal and scalar, A is about sigmoid(decay).
    """

    structure: str = "diagonal"
    maps: str = "full"
    length: int = 4
    layers: int = 2
    state: int = 3
    width: int = 2
    batch: int = 2
    depth: int = 1
    activation: str = "tanh"
    norm: str = "rms"
    head: str = "cross_entropy"
    vocabulary: int = 5
    scale: float = value_field(1.0)
    decay: float = value_field(1.0)

    def validate(self) -> None:
        """Raise UsageError unless every size is at least 1 and every choice is one of CHOICES."""
        for name, legal in CHOICES.items():
            if getattr(self, name) not in legal:
                raise unknown(name, getattr(self, name), legal)
        for name in ("length", "layers", "state", "width", "batch", "depth", "vocabulary"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.scale <= 0:
            raise UsageError(f"scale must be positive, not {self.scale}")

    def net_outputs(self) -> dict[str, int]:
        """Net -> how many numbers it returns per token."""
        a = {"unstructured": self.state**2, "diagonal": self.state, "scalar": 1}[self.structure]
        each = self.state * (self.width if self.maps == "full" else 1)
        return {"A": a, "B": each, "C": each}

    def layout(self) -> tuple[type[StateSpaceProblem], Tree, dict[str, Any]]:
        """The draws of params and data, in the order in which they are drawn."""
        K, P = self.layers, self.width
        layers: dict[str, Any] = {}
        for net, outputs in self.net_outputs().items():
            sizes = [P] * self.depth + [outputs]
            layers[net] = {}
            for i in range(self.depth):
                last = i == self.depth - 1
                shift = self.decay if net == "A" and last else 0.0
                layers[net][f"w{i}"] = Normal((K, sizes[i], sizes[i + 1]), self.scale / sizes[i] ** 0.5)
                layers[net][f"b{i}"] = Normal((K, sizes[i + 1]), 0.1 * self.scale, shift)
        outputs = self.vocabulary if self.head == "cross_entropy" else P
        params = {
            "layers": layers,
            "embedding": Normal((self.vocabulary, P)),
            "head": Normal((P, outputs), 1.0 / P**0.5),
        }
        shape = (self.length, self.batch)
        tokens = Integers(shape, self.vocabulary)
        targets = tokens if self.head == "cross_entropy" else Normal((*shape, P))
        return StateSpaceProblem, params, {"tokens": tokens, "targets": targets, "upstream": Constant(self.upstream)}

    def build(self, backend: Backend) -> StateSpaceProblem:
        """The Problem; `draws.draw` says how its numbers are rounded."""
        cls, params, data = self.layout()
        params, data = draw([params, data], self, backend)
        return cls(self, backend, params, data)


@dataclass(frozen=True)
class StateSpaceProblem(Problem):
    """Loss of K stacked selective SSMs. All sequences are time-major: (T, batch, P).

    ``params`` is ``{"embedding": (vocabulary, P), "layers": {"A" | "B" | "C": {"w0": (K, in, out), "b0": (K, out), …}},
    "head": (P, outputs)}``; ``data`` holds ``tokens`` (T, batch) int32, ``targets`` (T, batch) int32 or (T, batch, P),
    and ``upstream`` (), the factor of the loss.
    """

    spec: StateSpaceSpec
    backend: Backend
    params: Tree
    data: dict[str, Any] = field(default_factory=dict)

    stacked: ClassVar[tuple[str, ...]] = ("layers",)
    nets: ClassVar[Mapping[str, str]] = {"A": "A", "B": "B", "C": "C"}

    def positions(self, net: str, *args: Any) -> int:
        """The number of tokens, from the axes of x (…, batch, P) before the batch."""
        return math.prod(args[1].shape[:-2])

    def A(self, p: Tree, x: Any) -> Any:
        """The transition A^t: (…, P) -> (…, N, N), (…, N) or (…, 1) by structure; never expands.

        Unstructured is ½ I + ½ tanh(net)/N, whose spectral norm is at most 1; diagonal and scalar are sigmoid(net).
        """
        out = self._net(p["A"], x)
        if self.spec.structure != "unstructured":
            return self._sigmoid(out)
        n = self.spec.state
        square = self.xp.reshape(self.xp.tanh(out), (*x.shape[:-1], n, n))
        eye = self.xp.eye(n, dtype=out.dtype)
        return 0.5 * eye + square * (0.5 / n)

    def B(self, p: Tree, x: Any) -> Any:
        """The input map B^t: (…, P) -> (…, N, P)."""
        if self.spec.maps == "vectors":
            P = self.spec.width
            return self._net(p["B"], x)[..., :, None] * self.xp.ones((P,), dtype=x.dtype) / P**0.5
        return self.xp.reshape(self._net(p["B"], x), (*x.shape[:-1], self.spec.state, self.spec.width))

    def C(self, p: Tree, x: Any) -> Any:
        """The output map C^t: (…, P) -> (…, P, N)."""
        if self.spec.maps == "vectors":
            return self._net(p["C"], x)[..., None, :] * self.xp.ones((self.spec.width, 1), dtype=x.dtype)
        return self.xp.reshape(self._net(p["C"], x), (*x.shape[:-1], self.spec.width, self.spec.state))

    def embed(self, embedding: Any, tokens: Any) -> Any:
        """y_0: tokens (…) -> (…, P)."""
        flat = self.xp.take(embedding, self.xp.reshape(tokens, (-1,)), axis=0)
        return self.xp.reshape(flat, (*tokens.shape, self.spec.width))

    def norm(self, y: Any) -> Any:
        """Norm of each token, (…, P) -> (…, P): none, root-mean-square or layer norm, without gain."""
        if self.spec.norm == "none":
            return y
        if self.spec.norm == "layer":
            y = y - self.xp.mean(y, axis=-1, keepdims=True)
        return y / self.xp.sqrt(self.xp.mean(y * y, axis=-1, keepdims=True) + 1e-5)

    def apply(self, a: Any, h: Any) -> Any:
        """A h, for `a` as returned by `A` and h (…, N)."""
        return matvec(self.xp, a, h) if self.spec.structure == "unstructured" else a * h

    def apply_transposed(self, a: Any, mu: Any) -> Any:
        """Aᵀ μ, for `a` as returned by `A` and μ (…, N)."""
        if self.spec.structure == "unstructured":
            return matvec(self.xp, self.xp.matrix_transpose(a), mu)
        return a * mu

    def transition_cotangent(self, mu: Any, h: Any) -> Any:
        """The cotangent of A in μᵀ A h, in the shape of `A`'s output: the outer product μ ⊗ h, its diagonal or sum."""
        if self.spec.structure == "unstructured":
            return outer(mu, h)
        product = mu * h
        return product if self.spec.structure == "diagonal" else self.xp.sum(product, axis=-1, keepdims=True)

    def token_loss(self, head: Any, y: Any, targets: Any, upstream: Any) -> Any:
        """c·Σ_t l^t for y (…, batch, P): the sum over tokens of the mean over the batch; scalar."""
        xp = self.xp
        out = xp.matmul(y, head)
        if self.spec.head == "squared_error":
            each = 0.5 * xp.sum((out - targets) ** 2, axis=-1)
        else:
            top = stop_gradient(self.backend, xp.max(out, axis=-1, keepdims=True))
            log_sum = xp.log(xp.sum(xp.exp(out - top), axis=-1)) + top[..., 0]
            classes = xp.arange(self.spec.vocabulary, dtype=targets.dtype)
            hot = xp.astype(classes == targets[..., None], out.dtype)
            each = log_sum - xp.sum(out * hot, axis=-1)
        return upstream * xp.sum(each) / self.spec.batch

    def layer(self, p: Tree, y: Any, window: int | None = None) -> Any:
        """y_{k-1} -> y_k = y_{k-1} + C h, both (T, batch, P); with `window`, the graph is cut at that lag."""
        x = self.norm(y)
        a, b, c = self.A(p, x), matvec(self.xp, self.B(p, x), x), self.C(p, x)
        h = self._states(a, b)
        if window is not None and window < y.shape[0]:
            h = self._cut(a, b, h, window)
        return y + matvec(self.xp, c, h)

    def loss(self, params: Tree, window: int | None = None) -> Any:
        """The scalar loss; with `window` T̄ it is the same number, but its graph is cut (see `cut_loss`)."""
        y = self.embed(params["embedding"], self.data["tokens"])
        y, _ = scan(self.backend, lambda y, p: (self.layer(p, y, window), {}), y, params["layers"])
        return self.token_loss(params["head"], y, self.data["targets"], self.data["upstream"])

    def cut_loss(self, params: Tree, *, window: int) -> Any:
        """The loss in which every state h^t depends only on the last T̄ = `window` steps, step t included.

        The value is `loss`. The gradient is what truncation to T̄ claims to compute (Eq. 7, corrected): l^t reaches A^i
        and B^i only for t − T̄ < i ≤ t. Cost: O(T·T̄) work and memory. It is an oracle, not a method.
        """
        return self.loss(params, window)

    def _states(self, a: Any, b: Any) -> Any:
        """h^t = A^t h^{t-1} + b^t from h^0 = 0: (T, batch, N)."""

        def step(h: Any, xs: Any) -> tuple[Any, Any]:
            h = self.apply(xs[0], h) + xs[1]
            return h, h

        return scan(self.backend, step, self.xp.zeros_like(b[0]), (a, b))[1]

    def _cut(self, a: Any, b: Any, h: Any, window: int) -> Any:
        """All h^t, computed from the constant h^{t-T̄} over the last T̄ steps only; every t at once, (T, batch, N)."""
        xp, T = self.xp, h.shape[0]
        steps = xp.zeros_like(h)
        fixed = stop_gradient(self.backend, h)
        g = xp.concat([steps[:window], fixed[: T - window]], axis=0)  # h^{t-T̄}, zero before the start
        for lag in range(window - 1, -1, -1):
            moved = self.apply(a[: T - lag], g[lag:]) + b[: T - lag]
            g = xp.concat([g[:lag], moved], axis=0)  # position t takes step t − lag, which exists for t ≥ lag
        return g

    def _net(self, p: Tree, x: Any) -> Any:
        for i in range(self.spec.depth):
            x = self.xp.matmul(x, p[f"w{i}"]) + p[f"b{i}"]
            if i < self.spec.depth - 1 or self.spec.depth == 1:
                x = self._activate(x)
        return x

    def _activate(self, x: Any) -> Any:
        if self.spec.activation == "tanh":
            return self.xp.tanh(x)
        return x * self._sigmoid(x) if self.spec.activation == "silu" else x

    def _sigmoid(self, x: Any) -> Any:
        return 0.5 * (self.xp.tanh(0.5 * x) + 1.0)  # exp(−x) would overflow


def matvec(xp: Any, matrix: Any, vector: Any) -> Any:
    """(…, m, n) times (…, n) -> (…, m)."""
    return xp.matmul(matrix, vector[..., None])[..., 0]


def outer(left: Any, right: Any) -> Any:
    """(…, m) and (…, n) -> (…, m, n)."""
    return left[..., :, None] * right[..., None, :]
