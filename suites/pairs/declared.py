"""What a pair declares, and what follows from it without running either function."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

from gradgate.references.backends import named_leaves
from gradgate.references.contract import DTYPES, Claim, UsageError
from gradgate.references.errors import unknown
from gradgate.suites.pairs import devices as places
from gradgate.suites.pairs import functions, unseen
from gradgate.suites.pairs.approximate import Convergence, ErrorBound
from gradgate.suites.pairs.draws import Draw
from gradgate.suites.pairs.spec import PairSpec, specs

TRANSFORMATIONS = {"jax": ("jit", "vmap", "second_order"), "torch": ("compile", "vmap", "second_order")}
"""Framework -> what a pair may claim to compose with."""
LEFT_OUT = ("temp_bytes", "residual_bytes", "compiled_residual_bytes", "compiled_peak_bytes")
"""Quantities that a pair may leave out; ``temp_bytes`` stands for every figure."""
EVERY_CHOICE = 6
"""Up to this number of arguments, vmap is tried over every choice of them; over a sample of the choices of more."""
RESERVED = ("dtype", "seed", "upstream", "regime", "cotangents")
"""Names that no dim and no option may have."""


@dataclass(frozen=True, eq=False)
class DeclaredPair:
    """The fields of `gradgate.Pair`, which documents them."""

    function: Callable[..., Any] | str | None
    reference: Callable[..., Any] | str | None = ""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    dims: Mapping[str, Sequence[int]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    regimes: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = field(default_factory=dict)
    dtypes: Sequence[str] = DTYPES
    composes: Sequence[str] = ()
    disclaims: Sequence[str] = ()
    claims: Sequence[Claim | Sequence[Claim]] = ()
    expected: Mapping[str, str] = field(default_factory=dict)
    kappa: float = 16.0
    valid: Callable[..., bool] | None = None
    random: bool = False
    name: str = ""
    framework: str = ""
    devices: Sequence[str] = ()
    by_backward: bool = False
    measured: Sequence[Mapping[str, Any]] = ()
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    donates: Sequence[str] = ()
    approximates: ErrorBound | Convergence | None = None
    accumulates: str = ""

    def __new__(cls, *_: Any, **named: Any) -> Self:
        """A new pair; `__init__` sets its fields.

        Raises:
            UsageError: there is no such field.
        """
        legal = [each.name for each in fields(cls)]
        for name in named:
            if name not in legal:
                raise unknown(f"argument of {cls.__name__}", name, legal)
        return super().__new__(cls)

    @functools.cached_property
    def leaves(self) -> dict[str, Draw]:
        """Path -> draw, of all inputs in order."""
        found: dict[str, Any] = {}
        for name, tree in self.inputs.items():
            found |= named_leaves(tree, name)
        return {path: leaf for path, leaf in found.items() if leaf is not None}

    @functools.cached_property
    def differentiated(self) -> frozenset[str]:
        """Paths of the inputs that get a gradient."""
        return frozenset(path for path, draw in self.leaves.items() if draw.floating and draw.gradient)

    @functools.cached_property
    def further_regimes(self) -> tuple[str, ...]:
        """Regimes that every pair has, which the search for unseen sides of decisions tries (`unseen`)."""
        return tuple(unseen.usual(self))

    @functools.cached_property
    def donated(self) -> tuple[str, ...]:
        """Paths of the leaves of the inputs that `donates` names."""
        return tuple(path for name in self.donates for path in named_leaves(self.inputs[name], name))

    def leaves_at(self, fields: Mapping[str, Any]) -> Mapping[str, Draw]:
        """`leaves`, and whatever else the two functions get at these dims and shared options."""
        return self.leaves

    def differentiated_at(self, fields: Mapping[str, Any]) -> frozenset[str]:
        """Paths of what gets a gradient at these dims and shared options."""
        return self.differentiated

    def numbers(self, fields: Mapping[str, Any]) -> int:
        """How many numbers the inputs have at these dims and shared options."""
        sizes = {name: fields[name] for name in self.dims}
        return sum(math.prod(draw.shape(sizes)) for draw in self.leaves_at(fields).values())

    @functools.cached_property
    def loaded(self) -> dict[str, Callable[..., Any]]:
        """``function`` and ``reference`` as callables.

        Raises:
            UsageError: one of them cannot be found or called, or they are one object.
        """
        found = {"function": self._load("function")}
        found["reference"] = self._load("reference") if self.reference is not None else self._forward(found["function"])
        if found["function"] is found["reference"]:
            raise UsageError(f"{self.called}: function and reference are the same object; a pair needs two")
        return found

    def _forward(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function's own forward pass, as its reference."""
        framework = self.framework or next(iter(functions.frameworks(function)), "")
        return functions.forward_of(framework, function)

    def _load(self, role: str) -> Callable[..., Any]:
        found = places.loaded(getattr(self, role), self._devices(role))
        if not callable(found):
            raise UsageError(f"{role} of {self.called} is a {type(found).__name__}, and cannot be called")
        if missing := functions.missing(found):
            raise UsageError(f"{role} of {self.called} {missing}")
        return found

    def _devices(self, role: str) -> Sequence[str]:
        """Where a function runs; a reference that somebody wrote runs on the CPU."""
        return self.devices if role == "function" or self.reference is None else ()

    @functools.cached_property
    def against_itself(self) -> bool:
        """Whether the reference is the function, whose gradient is judged by values of its forward pass.

        So it is in PyTorch without a reference. In JAX the forward pass is a program of its own (`forward_jax`).
        """
        return self.reference is None and self.where == "torch"

    @functools.cached_property
    def promises(self) -> tuple[Claim, ...]:
        """The claims about bytes and work, one by one: `grows` makes several at once."""
        listed = [claim if isinstance(claim, (tuple, list)) else (claim,) for claim in self.claims]
        return tuple(claim for group in listed for claim in group)

    @property
    def called(self) -> str:
        """The pair's name in messages and as a class of problems."""
        if self.name or self.target:
            return self.name or self.target.rpartition(":")[2]
        if isinstance(self.function, str):
            return self.function.rpartition(":")[2]
        if self.function is None:
            return "task"
        plain = inspect.unwrap(self.function)
        plain = plain.func if isinstance(plain, functools.partial) else plain
        return str(getattr(plain, "__name__", type(plain).__name__)).strip("<>")

    @property
    def target(self) -> str:
        """Where a worker finds the pair; "" if it was made in place and exists only in this process."""
        return str(self.__dict__.get("origin", ""))

    def found_at(self, target: str) -> Self:
        """This pair, which knows the target under which it was loaded."""
        self.__dict__["origin"] = target
        return self

    @functools.cached_property
    def where(self) -> str:
        """The framework of the two functions.

        Raises:
            UsageError: the functions do not show it.
        """
        if self.framework:
            return self.framework
        for role in ("function", "reference"):
            seen = functions.frameworks(self.loaded[role])
            if len(seen) == 1:
                return seen[0]
        raise UsageError(f"{self.called}: its modules do not show the framework; give framework='jax' or 'torch'")

    @functools.cached_property
    def shared(self) -> dict[str, tuple[Any, ...]]:
        """Option that both functions take -> labels of its values; such an option is part of the problem."""
        return {
            name: tuple(functions.label(value) for value in values)
            for name, values in self.options.items()
            if not callable(values) and functions.takes(self.loaded["reference"], name)
        }

    @functools.cached_property
    def spec(self) -> type[PairSpec]:
        """The class of the pair's Specs."""
        return specs(self, self.called)

    @property
    def batchable(self) -> int:
        """How many arguments vmap may batch, each on its own."""
        return len(self.inputs)

    def further(self) -> tuple[Claim, ...]:
        """Claims of every pair of this kind, in addition to those of `gradgate.suites.pairs.claims`."""
        return ()
