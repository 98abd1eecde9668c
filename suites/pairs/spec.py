"""The Spec and the Problem of a pair: dims and options are the fields, ⟨cotangents, outputs⟩ is the loss."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from gradgate.references import draws as layouts
from gradgate.references.backends import namespace, precision, to_backend, untraceable
from gradgate.references.contract import Backend, Problem, Spec, Tree, UsageError, unknown, value_field
from gradgate.suites.pairs import unseen

ALL, ZERO = "all", "zero"
"""Cotangents: random ones for every output, and zeros for every output."""
ONLY = "only "
"""Cotangents of one output alone: this text, followed by the output's path."""


@dataclass(frozen=True)
class PairSpec(Spec):
    """One problem of a pair. Subclasses, one for each pair, add its dims and the options that both functions take.

    Attributes:
        regime: name of one of the pair's regimes, "" for the inputs as they are drawn.
        cotangents: ``all``, ``zero``, or ``only PATH``: which outputs get a cotangent.
    """

    regime: str = value_field("")
    cotangents: str = value_field(ALL)

    pair: ClassVar[Any] = None
    listed: ClassVar[bool] = True
    foreign: ClassVar[bool] = True
    dtypes: ClassVar[tuple[str, ...]] = (*Spec.dtypes, "float16")

    def validate(self) -> None:
        """Check dims, options and regime against what the pair declares.

        Raises:
            UsageError: says which value is wrong and what is legal.
        """
        for name in self.pair.dims:
            if getattr(self, name) < 0:
                raise UsageError(f"{name} must be at least 0, not {getattr(self, name)}")
        for name, labels in self.pair.shared.items():
            if getattr(self, name) not in labels:
                raise UsageError(f"{name} must be one of {', '.join(map(repr, labels))}, not {getattr(self, name)!r}")
        if self.regime and self.regime not in self.pair.regimes and not self.unseen:
            raise unknown("regime", self.regime, self.pair.regimes)

    @property
    def unseen(self) -> bool:
        """Whether the inputs are changed so that they take sides of decisions which no draw takes."""
        return bool(self.regime) and unseen.known(self.pair, self.regime)

    @property
    def sizes(self) -> dict[str, int]:
        """Name of a dim -> size."""
        return {name: getattr(self, name) for name in self.pair.dims}

    @property
    def fields(self) -> dict[str, Any]:
        """Name of a dim or of a shared option -> its value."""
        return {name: getattr(self, name) for name in (*self.pair.dims, *self.pair.shared)}

    @property
    def against_itself(self) -> bool:
        """`Pair.against_itself`."""
        return bool(self.pair.against_itself)

    def build(self, backend: Backend) -> PairProblem:
        """The Problem: inputs that get a gradient are `params`, all others and the cotangents are `data`."""
        inputs = self.pair.drawn(self)
        cotangents = self.pair.cotangents(self)
        differentiated = self.pair.differentiated_at(self.fields)

        def cast(array: Any) -> Any:
            floating = array.dtype.kind == "f"
            return to_backend(
                backend, self.pair.rounded(array, self.dtype) if floating else array, self.dtype if floating else None
            )

        def scaled(array: Any) -> Any:
            return to_backend(backend, layouts.rounded(array, self.dtype).astype(float) * self.upstream, self.dtype)

        with precision(backend, self.dtype):
            params = {path: cast(array) for path, array in inputs.items() if path in differentiated}
            given = {path: cast(array) for path, array in inputs.items() if path not in differentiated}
            return PairProblem(
                self,
                backend,
                params,
                {"given": given, "cotangents": {path: scaled(array) for path, array in cotangents.items()}},
            )

    def layout(self) -> tuple[type[Problem], Tree, dict[str, Any]]:
        """The shapes of the Problem, without its numbers."""
        found: dict[str, Any] = {
            path: layouts.Shaped(draw.shape(self.sizes), _dtype(draw, self.dtype, self.pair.where))
            for path, draw in self.pair.leaves_at(self.fields).items()
        }
        differentiated = self.pair.differentiated_at(self.fields)
        params = {path: leaf for path, leaf in found.items() if path in differentiated}
        given = {path: leaf for path, leaf in found.items() if path not in differentiated}
        outputs = self.pair.output_shapes(self)
        cotangents = {path: layouts.Shaped(shape, self.dtype) for path, shape in outputs.items()}
        return PairProblem, params, {"given": given, "cotangents": cotangents}

    def of_shapes(self, tensor: Callable[[tuple[int, ...], str], Any]) -> PairProblem:
        """The Problem in PyTorch, with tensors that `tensor` makes; the reference is run once, for its outputs.

        Args:
            tensor: (shape, dtype) -> tensor.
        """
        import torch

        differentiated = self.pair.differentiated_at(self.fields)
        made = {
            path: tensor(draw.shape(self.sizes), _dtype(draw, self.dtype, "torch"))
            for path, draw in self.pair.leaves_at(self.fields).items()
        }
        params = {path: leaf for path, leaf in made.items() if path in differentiated}
        given = {path: leaf for path, leaf in made.items() if path not in differentiated}
        with torch.no_grad():
            outputs = self.pair.outputs(
                "reference", PairProblem(self, "torch", params, {"given": given, "cotangents": {}}), params
            )
        cotangents = {path: tensor(tuple(leaf.shape), self.dtype) for path, leaf in outputs.items()}
        return PairProblem(self, "torch", params, {"given": given, "cotangents": cotangents})

    def work(self) -> float:
        """About how many multiplications the reference takes: its products of matrices, and its numbers in and out."""
        return float(self.pair.work(self))


@dataclass(frozen=True)
class PairProblem(Problem):
    """⟨cotangents, outputs of the reference⟩ as a function of the inputs that get a gradient.

    Attributes:
        params: path -> array, such as ``{"x": …, "weights.bias": …}``.
        data: ``given``, path -> array of the other inputs; ``cotangents``, path of an output -> array.
    """

    @property
    def pair(self) -> Any:
        """The pair, which declares the two functions."""
        return self.spec.pair

    @property
    def against_itself(self) -> bool:
        """`Pair.against_itself`."""
        return bool(self.pair.against_itself)

    def loss(self, params: Tree) -> Any:
        """⟨cotangents, outputs of the reference⟩."""
        return self.inner(self.pair.outputs("reference", self, params))

    def inner(self, outputs: Mapping[str, Any]) -> Any:
        """⟨cotangents, outputs⟩, a scalar in the Problem's dtype.

        Args:
            outputs: path -> floating array.
        """
        wide = getattr(self.xp, self.dtype)
        total = self.xp.zeros((), dtype=wide)
        for path, cotangent in self.data["cotangents"].items():
            out = outputs[path]
            total = total + self.xp.astype((out * self.xp.astype(cotangent, out.dtype)).sum(), wide)
        return total


def specs(pair: Any, name: str) -> type[PairSpec]:
    """The Spec class of a pair."""
    fields: list[Any] = [(dim, "int", dataclasses.field(default=sizes[0])) for dim, sizes in pair.dims.items()]
    fields += [(option, "Any", dataclasses.field(default=labels[0])) for option, labels in pair.shared.items()]
    made = dataclasses.make_dataclass(
        f"{name}Spec",
        fields,
        bases=(PairSpec,),
        frozen=True,
        namespace={
            "pair": pair,
            "widest": "float32" if "float32" in pair.dtypes and "float64" not in pair.dtypes else "float64",
            "__doc__": f"Problems of {name}.",
        },
    )
    return made


def bare(pair: Any, spec: PairSpec) -> PairProblem:
    """The Problem without its cotangents, whose shapes are still to be found."""
    namespace(pair.where)
    arrays = {
        path: to_backend(pair.where, array, spec.dtype if array.dtype.kind == "f" else None)
        for path, array in pair.drawn(spec).items()
    }
    differentiated = pair.differentiated_at(spec.fields)
    params = {path: leaf for path, leaf in arrays.items() if path in differentiated}
    given = {path: leaf for path, leaf in arrays.items() if path not in differentiated}
    return PairProblem(spec, pair.where, params, {"given": given, "cotangents": {}})


def reference_for_shapes(pair: Any, problem: PairProblem) -> dict[str, Any]:
    """Path -> floating output of the reference. JAX does not run a reference that it can trace."""
    if problem.backend == "jax":
        import jax

        def outputs(given: PairProblem) -> dict[str, Any]:
            return pair.outputs("reference", given, given.params)

        try:
            found: dict[str, Any] = jax.eval_shape(outputs, problem)
        except Exception as error:
            if not untraceable(error):
                raise
            found = outputs(problem)
    else:
        import torch

        with torch.no_grad():
            found = pair.outputs("reference", problem, problem.params)
    return found


def generator(seed: int, place: int) -> np.random.Generator:
    """A generator for each leaf, so that the shape of one input changes no numbers of the other inputs."""
    return np.random.Generator(np.random.PCG64([seed, place]))


def integers_of(backend: str) -> str:
    """The dtype that a framework indexes with: in PyTorch it is int64, because many operations there refuse int32."""
    return "int64" if backend == "torch" else "int32"


def _dtype(draw: Any, dtype: str, backend: str) -> str:
    return {"integers": integers_of(backend), "mask": "bool", "key": "uint32"}.get(draw.kind, dtype)
