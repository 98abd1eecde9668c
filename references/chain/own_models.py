"""A reader's own model as a chain: its layers and head in place of `ChainProblem`'s."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from gradgate.references.chain.problem import ChainProblem
from gradgate.references.contract import Tree, UsageError
from gradgate.references.own_problem import Own, OwnProblem, OwnSpec

NEEDS = {
    "layers": "a list of functions layer(p, x) -> y; or, in PyTorch, of modules, which need no params",
    "x": "the input, one array",
    "head": "a function of the last layer's output -> scalar",
}


@dataclass(frozen=True)
class OwnChainSpec(OwnSpec):
    """Sizes of a reader's model: those of its arrays, and those that methods read."""

    @property
    def layers(self) -> int:
        """N, the head not counted."""
        return len(self.shapes.template.layers)


@dataclass(frozen=True)
class OwnChainProblem(OwnProblem, ChainProblem):
    """The loss of a reader's chain; ``params`` is ``{"layers": [one tree per layer]}``."""

    nets: ClassVar[Mapping[str, str]] = {}

    @property
    def layers(self) -> list[Callable[[Tree, Any], Any]]:
        """N maps ``layer(p, x) -> y``."""
        model = self.given
        if not hasattr(model, "module_buffers"):
            return list(model.layers)
        return [_called(layer, held) for layer, held in zip(model.layers, model.module_buffers, strict=True)]

    def head(self, y: Any) -> Any:
        """The model's head, times ``upstream``."""
        return self.scaled(self.given.head(y))


def _called(module: Any, buffers: Mapping[str, Any]) -> Callable[[Tree, Any], Any]:
    from torch.func import functional_call

    held = dict(buffers)
    held.pop("", None)
    return lambda p, x: functional_call(module, (dict(p), held), (x,))


def _prepare(made: Any) -> None:
    """Take the parameters and buffers out of layers that are modules of PyTorch."""
    layers = getattr(made, "layers", None)
    if not layers or not all(hasattr(layer, "named_parameters") for layer in layers):
        return
    made.layers = list(layers)
    made.params = [{k: p.detach().clone() for k, p in layer.named_parameters()} for layer in layers]
    marker = next(p for held in made.params for p in held.values()).new_zeros(())
    made.module_buffers = [{"": marker, **{k: b.clone() for k, b in layer.named_buffers()}} for layer in layers]


def _check(problem: Any) -> None:
    layers, params = len(problem.layers), len(problem.params["layers"])
    if layers != params:
        raise UsageError(f"params must be a list of one tree per layer; there are {layers} layers and {params} trees")


OWN = Own(
    problem=OwnChainProblem,
    spec=OwnChainSpec,
    needs=NEEDS,
    prepare=_prepare,
    check=_check,
    params="a list of one tree of arrays per layer, {} for a layer without parameters",
    arranged=lambda params: {"layers": list(params)},
)
