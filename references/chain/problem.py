"""A chain of layers of unequal width and kind, and a head: written once for NumPy, JAX and PyTorch.

x_l = layer_l(params_l, x_{l-1}), loss = c · head(x_N). The head has no parameters and is stage N + 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gradgate.references.contract import Backend, Problem, Spec, Tree, UsageError, counting, unknown, value_field
from gradgate.references.draws import Constant, Normal, draw

KINDS = ("dense", "wide", "norm")
"""The kinds of layers: tanh(xW + b); tanh(xV)W with an inner width of three times its output; and a root-mean-square
norm with a gain."""
PROFILES = ("uniform", "varied")


@dataclass(frozen=True)
class ChainSpec(Spec):
    """Plain numbers that build a `ChainProblem`.

    Attributes:
        layers: N, the head not counted.
        width: numbers per example in x_0, and in every x_l of a uniform chain.
        batch: examples.
        profile: ``uniform``: every layer is dense and as wide as the others; or ``varied``: the kinds alternate, and
            widths are between 1 and 4 times `width`.
        scale: factor of all weights.
    """

    layers: int = 4
    width: int = 3
    batch: int = 2
    profile: str = "varied"
    scale: float = value_field(1.0)

    def validate(self) -> None:
        """Raise UsageError unless every size is at least 1 and the profile is one of PROFILES."""
        if self.profile not in PROFILES:
            raise unknown("profile", self.profile, PROFILES)
        for name in ("layers", "width", "batch"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.scale <= 0:
            raise UsageError(f"scale must be positive, not {self.scale}")

    def kinds(self) -> list[str]:
        """The kind of each layer."""
        return ["dense" if self.profile == "uniform" else KINDS[n % 3] for n in range(self.layers)]

    def widths(self) -> list[int]:
        """Numbers per example in x_0 … x_N; a norm keeps its width."""
        widths = [self.width]
        for n, kind in enumerate(self.kinds()):
            factor = 1 if self.profile == "uniform" else (1, 3, 2, 4)[n * 3 % 4]
            widths.append(widths[-1] if kind == "norm" else self.width * factor)
        return widths

    def layout(self) -> tuple[type[ChainProblem], Tree, dict[str, Any]]:
        """The draws of params and data, in the order in which they are drawn."""
        widths, layers = self.widths(), []
        for kind, a, b in zip(self.kinds(), widths, widths[1:], strict=False):
            inner = {"dense": a, "wide": 3 * b, "norm": a}[kind]
            weight = Normal((inner, b), self.scale / inner**0.5)
            if kind == "dense":
                layers.append({"w": weight, "b": Normal((b,), 0.1 * self.scale)})
            elif kind == "wide":
                layers.append({"v": Normal((a, inner), self.scale / a**0.5), "w": weight})
            else:
                layers.append({"g": Normal((a,), 0.1 * self.scale, self.scale)})
        data = {
            "x": Normal((self.batch, self.width)),
            "target": Normal((self.batch, widths[-1])),
            "upstream": Constant(self.upstream),
        }
        return ChainProblem, {"layers": layers}, data

    def build(self, backend: Backend) -> ChainProblem:
        """The Problem; `draws.draw` says how its numbers are rounded."""
        cls, params, data = self.layout()
        params, data = draw([params, data], self, backend)
        return cls(self, backend, params, data)


@dataclass(frozen=True)
class ChainProblem(Problem):
    """Loss of a chain of layers.

    ``params`` is ``{"layers": [{"w": …}, …]}``, one dict per layer: ``w`` (in, out) and ``b`` (out,) of a dense one,
    ``v`` (in, inner) and ``w`` (inner, out) of a wide one, ``g`` (width,) of a norm. ``data`` holds ``x`` (batch,
    width), ``target`` (batch, width of x_N) and ``upstream`` (), the factor of the loss.
    """

    spec: ChainSpec
    backend: Backend
    params: Tree
    data: dict[str, Any] = field(default_factory=dict)

    nets: ClassVar[Mapping[str, str]] = {"head": "head"}

    @property
    def x(self) -> Any:
        """x_0, (batch, width)."""
        return self.data["x"]

    @property
    def layers(self) -> list[Callable[[Tree, Any], Any]]:
        """N maps ``layer(params_l, x) -> y``, (batch, in) -> (batch, out), counted as ``layer[0]`` and so on."""
        return [counting(self, getattr(self, kind), f"layer[{n}]") for n, kind in enumerate(self.spec.kinds())]

    def dense(self, p: Tree, x: Any) -> Any:
        """tanh(xW + b)."""
        return self.xp.tanh(self.xp.matmul(x, p["w"]) + p["b"])

    def wide(self, p: Tree, x: Any) -> Any:
        """tanh(xV)W."""
        return self.xp.matmul(self.xp.tanh(self.xp.matmul(x, p["v"])), p["w"])

    def norm(self, p: Tree, x: Any) -> Any:
        """Each example divided by its root mean square, times a gain."""
        return x / self.xp.sqrt(self.xp.mean(x * x, axis=-1, keepdims=True) + 1e-3) * p["g"]

    def head(self, y: Any) -> Any:
        """C times the mean over the batch of half the squared distance to the target; scalar."""
        each = 0.5 * self.xp.sum((y - self.data["target"]) ** 2, axis=-1)
        return self.data["upstream"] * self.xp.sum(each) / self.spec.batch

    def loss(self, params: Tree) -> Any:
        """The scalar loss."""
        x = self.x
        for layer, p in zip(self.layers, params["layers"], strict=True):
            x = layer(p, x)
        return self.head(x)
