"""A user's own model as a problem of bilevel: its functions in place of `BilevelProblem`'s."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from gradgate.references.backends import leaves
from gradgate.references.bilevel.inner.loop import takes_block
from gradgate.references.bilevel.inner.models import Block, as_it_is
from gradgate.references.bilevel.problem import BilevelProblem
from gradgate.references.contract import Method, Option, Tree, UsageError
from gradgate.references.own_problem import Own, OwnProblem, OwnSpec

NEEDS = {
    "xs": "the batches of the inner steps, arrays with one step per entry of axis 0",
    "y": "the batch of the outer loss",
    "inner_loss": "a function (theta, eta, x) -> scalar; with an argument block, which wraps each layer's function, "
    "layers are rematerialised",
    "update": "a function (grad, theta, state, eta, x) -> (theta, state), elementwise for floating arrays",
    "outer_loss": "a function (theta, y) -> scalar",
}


TAKEN_BACK = {
    "momentum_inversion": "momentum",
    "buffered_inversion": "momentum",
    "compensated_inversion": "momentum or Adam",
}
"""Method -> the optimisers whose steps it takes back."""


@dataclass(frozen=True)
class OwnBilevelSpec(OwnSpec):
    """The sizes of a user's model, and those that methods read."""

    @property
    def steps(self) -> int:
        """T: the batches in ``xs``."""
        return int(leaves(self.shapes.data["xs"])[0].shape[0])

    @property
    def optimiser(self) -> str:
        """Not known, because the update is any function."""
        return "your update"


@dataclass(frozen=True)
class OwnBilevelProblem(OwnProblem, BilevelProblem):
    """The outer loss of a user's model; ``params`` is η."""

    stacked: ClassVar[tuple[str, ...]] = ()
    nets: ClassVar[Mapping[str, str]] = {}

    def init(self, eta: Tree) -> tuple[Tree, Tree]:
        """θ_0 and υ_0; by default η and an empty state."""
        own = getattr(self.given, "init", None)
        return own(eta) if own else (eta, ())

    def inner_loss(self, theta: Tree, eta: Tree, x: Tree, *, block: Block = as_it_is) -> Any:
        """L(θ, η, x)."""
        own = self.given.inner_loss
        return own(theta, eta, x, block=block) if takes_block(own) else own(theta, eta, x)

    def update(self, grad: Tree, theta: Tree, state: Tree, eta: Tree, x: Tree) -> tuple[Tree, Tree]:
        """Υ."""
        found: tuple[Tree, Tree] = self.given.update(grad, theta, state, eta, x)
        return found

    def outer_loss(self, theta: Tree, y: Tree, *, block: Block = as_it_is) -> Any:
        """V(θ_T, y), times ``upstream``."""
        own = self.given.outer_loss
        return self.scaled(own(theta, y, block=block) if takes_block(own) else own(theta, y))


def _unfit(method: Method, spec: Any) -> str:
    if method.name not in TAKEN_BACK:
        return ""
    return f"it inverts steps of {TAKEN_BACK[method.name]}, and of your update only the step forward is known"


def _options(method: Method, spec: Any) -> tuple[Option, ...]:
    block = takes_block(spec.shapes.template.inner_loss)
    values = (False, True) if block else (False,)
    return tuple(
        Option(o.name, o.legal, lambda spec: (False, True), usual=lambda spec: True)
        for o in method.options
        if o.name != "remat" or len(values) > 1
    )


def _check(problem: Any) -> None:
    steps = {int(leaf.shape[0]) if leaf.shape else 0 for leaf in leaves(problem.xs)}
    if len(steps) != 1 or 0 in steps:
        raise UsageError(f"every array of xs has one entry of axis 0 per inner step; here they have {sorted(steps)}")


OWN = Own(
    problem=OwnBilevelProblem,
    spec=OwnBilevelSpec,
    needs=NEEDS,
    params="η, the tree of arrays that gets the gradient",
    check=_check,
    unfit=_unfit,
    options=_options,
)
