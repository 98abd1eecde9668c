"""A reader's own model as an `InvertibleProblem`: a chain of equal layers, by the reader's layer, inverse and head."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gradgate.references.backends import leaves
from gradgate.references.contract import Method, Option, Tree, UsageError
from gradgate.references.invertible.layers import Layer, NotInvertible, Shape
from gradgate.references.invertible.problem import Block, InvertibleProblem
from gradgate.references.invertible.rounding import SOLVED
from gradgate.references.own_problem import Own, OwnProblem, OwnSpec

NEEDS = {
    "x": "the input, (batch, …)",
    "layer": "a function (p, x) -> y of the shape of x, of the parameters of one layer",
    "head": "a function (p, y) of params['head'] -> scalar",
}
NO_INVERSE = "your model has no inverse(p, y) -> x"


@dataclass(frozen=True)
class OwnInvertibleSpec(OwnSpec):
    """Sizes of a reader's model: those of its arrays, and those that methods and options read."""

    @property
    def layers(self) -> int:
        """L: axis 0 of the layers' parameters."""
        return int(leaves(self.shapes.params["layers"])[0].shape[0])

    @property
    def batch(self) -> int:
        """Samples."""
        return int(self.shapes.data["x"].shape[0])

    @property
    def numbers(self) -> int:
        """Numbers per sample."""
        return math.prod(self.shapes.data["x"].shape[1:])

    side, blocks, submersive = 1, 1, 0

    @property
    def coupled(self) -> bool:
        """Assumed to be true, because the head is a scalar of the whole batch."""
        return True


@dataclass(frozen=True)
class OwnLayer(Layer):
    """A reader's layer, between arrays of shape (batch, 1, 1, n); vijp is the VJP of its inverse."""

    by_hand: ClassVar[bool] = False

    model: Any = field(default=None, repr=False, compare=False)
    inside: tuple[int, ...] = ()

    def __call__(self, p: Tree, x: Any) -> Any:
        """x -> y."""
        return self._as(x, self.model.layer(p, self._inside(x)))

    def inverse(self, p: Tree, y: Any) -> Any:
        """y -> x.

        Raises:
            NotInvertible: the model has no inverse.
        """
        if not hasattr(self.model, "inverse"):
            raise NotInvertible(NO_INVERSE)
        return self._as(y, self.model.inverse(p, self._inside(y)))

    def _inside(self, x: Any) -> Any:
        return self.xp.reshape(x, (-1, *self.inside))

    def _as(self, like: Any, y: Any) -> Any:
        return self.xp.reshape(y, like.shape)


@dataclass(frozen=True)
class OwnInvertibleProblem(OwnProblem, InvertibleProblem):
    """Loss of a reader's chain; ``params`` is ``{"layers": {"layer": …}, "head": …}``, a layer per entry of axis 0."""

    stacked: ClassVar[tuple[str, ...]] = ("layers",)
    nets: ClassVar[Mapping[str, str]] = {}

    @property
    def x(self) -> Any:
        """x_0, (batch, 1, 1, n)."""
        x = self.data["x"]
        return self.xp.reshape(x, (x.shape[0], 1, 1, -1))

    @functools.cached_property
    def blocks(self) -> tuple[Block, ...]:
        """One block of equal layers."""
        shape = Shape(1, self.spec.numbers)
        inside = tuple(self.data["x"].shape[1:])
        layer = OwnLayer("layer", self.backend, shape, model=self.given, inside=inside)
        return (Block("layers", {"layer": layer}, {}),)

    def head_losses(self, head: Tree, y: Any) -> Any:
        """The loss, (1,): what each sample adds to it is not known."""
        return self.xp.reshape(self.head_loss(head, y), (1,))

    def head_loss(self, head: Tree, y: Any) -> Any:
        """The model's head, times ``upstream``."""
        inside = self.xp.reshape(y, (-1, *self.data["x"].shape[1:]))
        return self.scaled(self.given.head(head, inside))

    def check_shapes(self) -> None:
        """Check nothing: the shapes are those of the model."""


def _unfit(method: Method, spec: Any) -> str:
    template = spec.shapes.template
    if method.name in ("reversible", "moonwalk", "moonwalk_mixed") and not hasattr(template, "inverse"):
        return NO_INVERSE
    return ""


def _options(method: Method, spec: Any) -> tuple[Option, ...]:
    """The method's options; of vijp, ``closed``, which is by the inverse, and ``solve`` where the Jacobian is small."""
    found = []
    for option in method.options:
        if option.name == "vijp":
            option = Option("vijp", option.legal, _ways, option.illegal)
        found.append(option)
    return tuple(found)


def _ways(spec: Any) -> tuple[str, ...]:
    return ("closed", "solve") if spec.batch * spec.numbers <= SOLVED else ("closed",)


def _check(problem: Any) -> None:
    counts = {int(leaf.shape[0]) if leaf.shape else 0 for leaf in leaves(problem.params["layers"])}
    if len(counts) != 1 or 0 in counts:
        raise UsageError(f"params['layers'] must have one layer per entry of axis 0; here axis 0 is {sorted(counts)}")


def _arranged(params: Any) -> Tree:
    if not isinstance(params, dict) or set(params) != {"layers", "head"}:
        raise UsageError(f"params must be {PARAMS}")
    return {"layers": {"layer": params["layers"]}, "head": params["head"]}


PARAMS = "{'layers': a tree of arrays with one layer per entry of axis 0, 'head': …, {} for a head without any}"
OWN = Own(
    problem=OwnInvertibleProblem,
    spec=OwnInvertibleSpec,
    needs=NEEDS,
    params=PARAMS,
    check=_check,
    unfit=_unfit,
    options=_options,
    arranged=_arranged,
)
