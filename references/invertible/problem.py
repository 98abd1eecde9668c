"""Chains of invertible layers, with a head that need not be invertible, written once for NumPy, JAX and PyTorch.

Notation of the paper (Moonwalk, §3.1): layer i maps x_{i−1} of n numbers per sample to x_i with d parameters θ_i;
J(x_L) is the loss. A chain is a sequence of blocks of equal units. Each block is followed by ψ (§6.1), unless there is
a single place, and by a submersive layer if the Spec has one.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gradgate.references.backends import (
    named_leaves,
    precision,
    scan,
    stop_gradient,
    to_backend,
    to_numpy,
)
from gradgate.references.contract import Backend, Problem, Spec, Tree, UsageError, unknown, value_field
from gradgate.references.draws import Constant, Integers, Normal, draw
from gradgate.references.invertible import rounding
from gradgate.references.invertible.layers import PARAMETRISED, Downsampling, Layer, Shape, Submersion, in_layer, named
from gradgate.references.invertible.residual import Residual

CHOICES = {
    "residual": ("dense", "conv", "patches"),
    "activation": ("tanh", "relu"),
    "norm": ("none", "batch"),
    "head": ("cross_entropy", "squared_error"),
}
MOST_BLOCKS = 4


@dataclass(frozen=True)
class InvertibleSpec(Spec):
    """Plain numbers that build an `InvertibleProblem`.

    Attributes:
        unit: the layers of one unit, by name, blanks between: ``additive``, ``affine``, ``dense``, ``conv1x1``,
            ``leaky_relu``, ``tanh``; for example ``additive tanh``.
        layers: units per block, all of one shape.
        blocks: blocks; ψ follows each, where there is more than one place.
        submersive: how many channels a linear layer after each block, behind ψ, removes. That layer is not invertible,
            but its Jacobian is surjective. 0: there is no such layer.
        side: places along each side of the input, divisible by 2^blocks, or 1.
        channels: numbers per place of the input; n = side²·channels, throughout unless `submersive` takes some away.
        batch: samples.
        residual: ``dense``, ``conv``, or ``patches``, which is ``conv`` as a product of matrices: the kind of the
            functions inside couplings.
        depth: linear maps in each of these functions.
        hidden: channels between them.
        activation: after each of them.
        norm: after that; ``batch`` makes the samples of a batch depend on each other.
        head: the loss of a linear map of the mean over places: ``cross_entropy``, or ``squared_error`` against targets.
        classes: outputs of the head.
        scale: factor of the weights of residual functions, and of what is added to the identity in invertible matrices.
        spread: standard deviation of the input.
        bias: mean of what is added after an invertible matrix: a tanh behind it is then flat where the chain settles.
    """

    unit: str = "additive"
    layers: int = 2
    blocks: int = 1
    submersive: int = 0
    side: int = 1
    channels: int = 4
    batch: int = 2
    residual: str = "dense"
    depth: int = 1
    hidden: int = 3
    activation: str = "tanh"
    norm: str = "none"
    head: str = "cross_entropy"
    classes: int = 3
    scale: float = value_field(1.0)
    spread: float = value_field(1.0)
    bias: float = value_field(0.0)

    @property
    def words(self) -> tuple[str, ...]:
        """The layers of a unit."""
        return tuple(self.unit.split())

    @property
    def numbers(self) -> int:
        """n, numbers per sample of the input."""
        return self.side**2 * self.channels

    @property
    def coupled(self) -> bool:
        """Whether the samples of a batch depend on each other."""
        return self.norm == "batch" and bool({"additive", "affine"} & set(self.words))

    def validate(self) -> None:
        """Raise UsageError unless every size is at least 1, every choice one of CHOICES and every layer invertible."""
        for name, legal in CHOICES.items():
            if getattr(self, name) not in legal:
                raise unknown(name, getattr(self, name), legal)
        for name in ("layers", "blocks", "side", "channels", "batch", "depth", "hidden", "classes"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.blocks > MOST_BLOCKS:
            raise UsageError(f"blocks must be at most {MOST_BLOCKS}, not {self.blocks}")
        if self.side > 1 and self.side % 2**self.blocks:
            raise UsageError(f"side must be 1 or divisible by 2^blocks = {2**self.blocks}, not {self.side}")
        for name in ("scale", "spread"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} must be positive, not {getattr(self, name)}")
        if self.submersive < 0:
            raise UsageError(f"submersive must be at least 0, not {self.submersive}")
        for k in range(self.blocks):
            self.block_unit(k, "numpy")
            self.after(k, "numpy")
        if not set(self.words) & set(PARAMETRISED):
            raise UsageError(
                f"unit must have a layer with parameters, {', '.join(PARAMETRISED)}; {self.unit!r} has none"
            )

    def block_shape(self, k: int) -> Shape:
        """The shape that the units of block k read; for k = blocks, the shape that the head reads."""
        side, channels = self.side, self.channels
        for _ in range(k):
            if self.side > 1:
                side, channels = side // 2, channels * 4
            channels -= self.submersive
        return Shape(side, channels)

    def block_unit(self, k: int, backend: str) -> dict[str, Layer]:
        """Key of the parameters -> layer, in order, of the unit that block k repeats.

        Raises:
            UsageError: a word of `unit` is no invertible layer; names it.
        """
        shape = self.block_shape(k)

        def residual(into: int, out: int) -> Residual:
            widths = (into, *[self.hidden] * (self.depth - 1), out)
            return Residual(backend, self.residual, self.activation, self.norm, shape.side, widths)

        return {
            f"{i}_{word}": named(word, f"block{k}.{i}_{word}", backend, shape, residual)
            for i, word in enumerate(self.words)
        }

    def after(self, k: int, backend: str) -> dict[str, Layer]:
        """Key of the parameters -> layer, in order, of what comes between block k and the next block, or the head.

        Raises:
            UsageError: a submersive layer would leave no channels; names it.
        """
        shape = self.block_shape(k)
        found: dict[str, Layer] = {}
        if self.side > 1:
            found[f"psi{k}"] = Downsampling(f"psi{k}", backend, shape)
            shape = Shape(shape.side // 2, shape.channels * 4)
        if self.submersive:
            left = shape.channels - self.submersive
            if left < 1:
                raise UsageError(f"submersive{k}: of {shape.channels} channels {self.submersive} cannot be taken away")
            found[f"submersive{k}"] = Submersion(f"submersive{k}", backend, shape, left)
        return found

    def layout(self) -> tuple[type[InvertibleProblem], Tree, dict[str, Any]]:
        """The draws of params and data, in the order in which they are drawn."""
        params: dict[str, Any] = {}
        for k in range(self.blocks):
            unit = self.block_unit(k, "numpy")
            params[f"block{k}"] = {key: layer.layout(self.layers, self.scale, self.bias) for key, layer in unit.items()}
            for key, layer in self.after(k, "numpy").items():
                stacked = layer.layout(1, self.scale, self.bias)
                params[key] = {name: dataclasses.replace(leaf, shape=leaf.shape[1:]) for name, leaf in stacked.items()}
        width = self.block_shape(self.blocks).channels
        params["head"] = {"w": Normal((width, self.classes), 1.0 / width**0.5), "b": Normal((self.classes,), 0.1)}
        classes = Integers((self.batch,), self.classes)
        targets = classes if self.head == "cross_entropy" else Normal((self.batch, self.classes))
        data = {
            "x": Normal((self.batch, self.side, self.side, self.channels), self.spread),
            "targets": targets,
            "upstream": Constant(self.upstream),
        }
        return InvertibleProblem, params, data

    def build(self, backend: Backend) -> InvertibleProblem:
        """The Problem; `draws.draw` says how its numbers are rounded."""
        cls, params, data = self.layout()
        params, data = draw([params, data], self, backend)
        for k in range(self.blocks):
            for key, layer in params[f"block{k}"].items():
                if key.partition("_")[2] in ("dense", "conv1x1"):
                    layer["w"] = self._with_identity(layer["w"], backend)
            if self.submersive:
                params[f"submersive{k}"]["w"] = self._with_identity(params[f"submersive{k}"]["w"], backend)
        return cls(self, backend, params, data)

    def _with_identity(self, drawn: Any, backend: Backend) -> Any:
        """I + V, rounded to float32 first, as every number of a Problem."""
        import numpy as np

        matrix = np.eye(*drawn.shape[-2:]) + to_numpy(drawn).astype(np.float64)
        with precision(backend, self.dtype):
            return to_backend(backend, matrix.astype(np.float32), self.dtype)


@dataclass(frozen=True)
class Block:
    """Units of one shape, whose parameters are stacked, and what follows them.

    Attributes:
        key: of the parameters.
        unit: key of the parameters within the block -> layer, in order.
        after: key of the parameters -> ψ, or a submersive layer, or ψ and then a submersive layer.
    """

    key: str
    unit: dict[str, Layer]
    after: dict[str, Layer]


@dataclass(frozen=True)
class InvertibleProblem(Problem):
    """Mean loss over a batch of a chain of invertible layers, or submersive ones, with a linear head.

    With Λ units per block ``params`` is ``{"block0": {"0_additive": {"shift": {"w0": (Λ, …), "b0": (Λ, …), …}},
    "1_tanh": {}, …}, "psi0": {}, "submersive0": {"w": (C, C − s), "b": (C − s,)}, "block1": …, "head": {"w": (C_end,
    classes), "b": (classes,)}}``; all parameters of a block are stacked along axis 0, one entry per unit. A layer
    without parameters has an empty dict. What follows a block is there only if the Spec has it. ``data`` holds ``x``
    (batch, side, side, channels), ``targets`` (batch,) int32 or (batch, classes), and ``upstream`` (), the factor of
    the loss.
    """

    spec: InvertibleSpec
    backend: Backend
    params: Tree
    data: dict[str, Any] = field(default_factory=dict)

    stacked: ClassVar[tuple[str, ...]] = tuple(f"block{k}" for k in range(MOST_BLOCKS))
    nets: ClassVar[Mapping[str, str]] = {"head_losses": "head"}
    """The layers are counted too, each by itself."""

    @property
    def x(self) -> Any:
        """x_0, (batch, side, side, channels)."""
        return self.data["x"]

    @functools.cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The chain, block by block."""

        def reporting(layers: dict[str, Layer]) -> dict[str, Layer]:
            return {key: dataclasses.replace(layer, on_call=self.on_call) for key, layer in layers.items()}

        spec, found = self.spec, []
        for k in range(spec.blocks):
            unit, after = spec.block_unit(k, self.backend), spec.after(k, self.backend)
            found.append(Block(f"block{k}", reporting(unit), reporting(after)))
        return tuple(found)

    @property
    def layers(self) -> list[Layer]:
        """Every layer of the chain in order, each ``layer(p, x) -> y`` with ``layer.inverse(p, y)``."""
        return [layer for layer, _ in self.chain(self.params)]

    @property
    def by_hand(self) -> bool:
        """Whether every layer's pull-back by x is written out (`Layer.pull_x`)."""
        return all(layer.by_hand for block in self.blocks for layer in (*block.unit.values(), *block.after.values()))

    def chain(self, params: Tree) -> list[tuple[Layer, Tree]]:
        """Every layer in order with its own parameters, with a name such as ``block0[2].1_tanh``."""
        found: list[tuple[Layer, Tree]] = []
        for block in self.blocks:
            for i in range(self.spec.layers):
                for key, layer in block.unit.items():
                    named_so = dataclasses.replace(layer, name=f"{block.key}[{i}].{key}")
                    found.append((named_so, in_layer(params[block.key][key], i)))
            found += [(layer, params[key]) for key, layer in block.after.items()]
        return found

    def body(self, params: Tree, x: Any) -> Any:
        """x_0 -> x_L, every layer applied in order."""
        for block in self.blocks:

            def unit(x: Any, p: Tree, block: Block = block) -> tuple[Any, Tree]:
                for key, layer in block.unit.items():
                    x = layer(p[key], x)
                return x, {}

            x, _ = scan(self.backend, unit, x, params[block.key])
            for key, layer in block.after.items():
                x = layer(params[key], x)
        return x

    def head_losses(self, head: Tree, y: Any) -> Any:
        """x_L -> each sample's share of the loss, (batch,)."""
        xp = self.xp
        out = xp.matmul(xp.mean(y, axis=(1, 2)), head["w"]) + head["b"]
        targets = self.data["targets"]
        if self.spec.head == "squared_error":
            each = 0.5 * xp.sum((out - targets) ** 2, axis=-1)
        else:
            top = stop_gradient(self.backend, xp.max(out, axis=-1, keepdims=True))
            log_sum = xp.log(xp.sum(xp.exp(out - top), axis=-1)) + top[..., 0]
            hot = xp.astype(xp.arange(self.spec.classes, dtype=targets.dtype) == targets[..., None], out.dtype)
            each = log_sum - xp.sum(out * hot, axis=-1)
        return self.data["upstream"] * each / self.spec.batch

    def head_loss(self, head: Tree, y: Any) -> Any:
        """x_L -> J, the scalar loss, which need not be invertible in x_L."""
        return self.xp.sum(self.head_losses(head, y))

    def loss(self, params: Tree) -> Any:
        """The scalar loss."""
        return self.head_loss(params["head"], self.body(params, self.x))

    def loss_by_reversing(self, params: Tree, amount: Any) -> Any:
        """`loss`; where `amount` is not 0, with the rounding of states that inverses rebuild (`rounding`)."""
        return rounding.by_reversing(self, params, amount)

    def loss_by_vijp(self, params: Tree, amount: Any) -> Any:
        """`loss`; where `amount` is not 0, with the rounding of h_i that Eq. 10 finds from h_0 (`rounding`)."""
        return rounding.by_vijp(self, params, amount)

    def rerounded(self, amount: Any) -> InvertibleProblem:
        """The same with each convolution as `product_of_patches`: its sums have another order."""
        if self.spec.residual != "conv":
            return self
        return self._replace(spec=dataclasses.replace(self.spec, residual="patches"))

    def check_shapes(self) -> None:
        """Refuse parameters or an input whose shapes are not those of the Spec.

        Raises:
            UsageError: names the leaf, its shape and the right one.
        """
        _, params, data = self.spec.layout()
        for where, expected, given in (("", params, self.params), ("", {"x": data["x"]}, {"x": self.x})):
            wanted, got = named_leaves(expected), named_leaves(given)
            for name in sorted(wanted.keys() | got.keys()):
                if name not in got or name not in wanted:
                    raise UsageError(f"{where}{name} is {'missing' if name not in got else 'not known here'}")
                if tuple(got[name].shape) != tuple(wanted[name].shape):
                    raise UsageError(f"{name} has shape {tuple(got[name].shape)}; expected {tuple(wanted[name].shape)}")
