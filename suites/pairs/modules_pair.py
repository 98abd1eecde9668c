"""A pair of modules as a pair of functions: parameters and running statistics become inputs."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradgate.references.contract import Claim, Tree, UsageError, unknown
from gradgate.suites.pairs import devices as places
from gradgate.suites.pairs import functions, trees
from gradgate.suites.pairs.device_names import CUDA
from gradgate.suites.pairs.functions import label, value_of
from gradgate.suites.pairs.modules_bound import Bound, Placed, built, keywords_of
from gradgate.suites.pairs.modules_names import Names, matched, renamed
from gradgate.suites.pairs.pair import Pair
from gradgate.suites.pairs.spec import PairProblem, PairSpec, generator

MODULE, KEY = "module", "random_key"
"""Path of the parameters and the state among the inputs; name of the key of random numbers in JAX."""
MODES = {"train": True, "eval": False}
AFTER = " after the call"
"""The end of a buffer's path where the outputs of a call are compared."""
SPREAD = 0.25
"""Standard deviation of what is added to initial parameters, over their root mean square (over 1 where they are 0)."""
WARM = 2
"""Training calls of the reference on other inputs, which give running statistics their first values."""
KEPT = 64
"""Largest number of modules, and of sets of running statistics, that a pair keeps in memory."""


@dataclass(frozen=True, eq=False)
class ModulePair(Pair):
    """A pair of modules; `module_pair` makes it.

    ``function`` and ``reference`` are builders. The parameters of the reference at the dims are inputs ``module.NAME``
    that get a gradient; everything else that a module holds, such as running statistics, is an input without a
    gradient, and is compared after the call.

    Attributes:
        rename: name in the reference -> name in the function, of a parameter, of a buffer or of a submodule.
        modes: ``train`` and ``eval``, or one of them: the field ``training`` of the Spec.
    """

    rename: Mapping[str, str] = field(default_factory=dict)
    modes: Sequence[str] = tuple(MODES)

    def __post_init__(self) -> None:
        """Check the declaration, as far as it can be without building a module.

        Raises:
            UsageError: says what is wrong and what is legal.
        """
        super().__post_init__()
        if self.reference is None and self.rename:
            raise UsageError(f"{self.called}: rename= is for two modules, and reference=None is the module itself")
        if CUDA in self.devices:
            raise UsageError(f"{self.called}: a module is judged on the CPU or in the interpreter, not on cuda")
        for name in (*self.inputs, *self.dims, *self.options):
            if name in (MODULE, KEY, "training"):
                raise UsageError(f"{self.called}: {name!r} is taken; rename the input, the dim or the option")
        if isinstance(self.modes, str) or not self.modes:
            raise UsageError(f"{self.called}: modes is a tuple of train and eval, or of one, not {self.modes!r}")
        for mode in self.modes:
            if mode not in MODES:
                raise unknown(f"mode of {self.called}", str(mode), MODES)

    def _forward(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The module's own builder, as another object; in JAX `_new` makes a plain function of the module's call."""
        return functions.forward_of("torch", function)

    @functools.cached_property
    def differentiated(self) -> frozenset[str]:
        """Paths of the inputs that get a gradient, and ``module`` for its parameters."""
        return frozenset(path for path, draw in self.leaves.items() if draw.floating and draw.gradient) | {MODULE}

    @property
    def called(self) -> str:
        """The pair's name; for a lambda, the first class that it names."""
        plain = Pair.called.fget(self)  # type: ignore[attr-defined]
        if self.name or plain != "lambda":
            return str(plain)
        code = inspect.unwrap(self.function).__code__  # type: ignore[arg-type]
        return next((name for name in (*code.co_names, *code.co_freevars) if name[:1].isupper()), "module")

    @functools.cached_property
    def kind(self) -> str:
        """``torch``, ``nnx``, ``linen`` or ``equinox``.

        Raises:
            UsageError: the reference's builder makes something else.
        """
        options = {name: values[0] for name, values in self.options.items() if not callable(values)}
        module = self._made("reference", self._keywords("reference", {**self._usual(), **options}, {}))
        if "torch" in sys.modules and isinstance(module, sys.modules["torch"].nn.Module):
            return "torch"
        if "jax" in sys.modules:
            from gradgate.suites.pairs.modules_jax import kind_of

            if kind := kind_of(module):
                return kind
        raise UsageError(
            f"{self.called}: the reference's builder made a {type(module).__name__}; legal: a torch.nn.Module, a "
            "module of flax.nnx or flax.linen, an equinox.Module"
        )

    @functools.cached_property
    def where(self) -> str:
        """The framework of the two modules."""
        return "torch" if self.kind == "torch" else "jax"

    @functools.cached_property
    def shared(self) -> dict[str, tuple[Any, ...]]:
        """`Pair.shared` for the options that the reference's builder or its call takes, and ``training``."""
        taken = keywords_of(self.loaded["reference"]).keys()
        found = {}
        for name, values in self.options.items():
            if not callable(values) and (name in taken or self._usual_reference.takes(name)):
                found[name] = tuple(label(value) for value in values)
        return {**found, "training": tuple(MODES[mode] for mode in self.modes)}

    def _usual(self) -> dict[str, int]:
        """The first sizes that are legal together."""
        choices = (dict(zip(self.dims, sizes, strict=True)) for sizes in itertools.product(*self.dims.values()))
        for sizes in choices:
            if self.valid is None or self.valid(**sizes):
                return sizes
        raise UsageError(f"{self.called}: `valid` leaves no combination of the dims")

    @functools.cached_property
    def _usual_reference(self) -> Bound:
        options = {name: values[0] for name, values in self.options.items() if not callable(values)}
        return self._bound("reference", {**self._usual(), **options, "training": MODES[self.modes[0]]}, {})

    def _keywords(self, role: str, fields: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
        """The keywords that a builder gets.

        Raises:
            UsageError: the builder needs a keyword that is neither a dim nor an option.
        """
        found: dict[str, Any] = {}
        for name, needed in keywords_of(self.loaded[role]).items():
            if name in self.dims:
                found[name] = fields[name]
            elif name in options:
                found[name] = options[name]
            elif name in self.options and name in fields:
                found[name] = value_of(self.options[name], label(fields[name]))
            elif name in self.options and not callable(self.options[name]):
                found[name] = self.options[name][0]
            elif needed and name not in ("rngs", "key"):
                raise UsageError(
                    f"{self.called}: the builder of the {role} needs {name!r}, which is neither a dim "
                    f"({', '.join(self.dims) or 'there are none'}) nor an option "
                    f"({', '.join(self.options) or 'there are none'}); wrap it, such as lambda H: Module(H, …)"
                )
        return found

    def _made(self, role: str, keywords: Mapping[str, Any]) -> Any:
        """A new module."""
        builder, who = self.loaded[role], f"the {role} of {self.called}"
        wanted = {name for name in ("rngs", "key") if name in keywords_of(builder) and name not in keywords}
        of_jax = wanted or "torch" not in sys.modules or self.__dict__.get("where") == "jax"
        if self.framework == "jax" or ("jax" in sys.modules and of_jax):
            from gradgate.suites.pairs.modules_jax import building, seeds

            with building():
                return built(who, builder, {**keywords, **seeds(wanted)})
        from gradgate.suites.pairs.modules_torch import fresh

        return fresh(who, builder, keywords)

    def _bound(self, role: str, fields: Mapping[str, Any], options: Mapping[str, Any]) -> Bound:
        keywords = self._keywords(role, fields, options)
        call = self._of_call(role, fields, options)
        needs = dict(fields) if self.kind == "linen" else {}
        key = repr((role, sorted(keywords.items()), sorted(needs.items()), sorted(call.items()) if needs else ""))
        return _kept(self._modules, key, lambda: self._new(role, keywords, fields, call))

    @functools.cached_property
    def _modules(self) -> dict[str, Any]:
        return {}

    def _new(self, role: str, keywords: Mapping[str, Any], fields: Mapping[str, Any], call: Mapping[str, Any]) -> Bound:
        if self.where == "torch":
            from gradgate.suites.pairs.modules_torch import TorchModule

            compiled = role == "function" and "compiling" in self.__dict__
            return TorchModule(self._made(role, keywords), compiled)
        from gradgate.suites.pairs import modules_jax

        def arguments() -> list[Any]:
            sizes = {name: fields[name] for name in self.dims}
            numbers = enumerate(self.leaves.items())
            drawn = {path: draw.drawn(sizes, generator(0, i)) for i, (path, draw) in numbers}
            return self.arguments({p: a.astype(np.float32) if a.dtype.kind == "f" else a for p, a in drawn.items()})

        with modules_jax.building():
            found = modules_jax.bound(self._made(role, keywords), arguments, call)
        if role == "reference" and self.reference is None:
            from gradgate.suites.pairs import forward_jax

            found.call = forward_jax.forward_of(found.call)  # type: ignore[method-assign]
        if role == "function":
            found.known_as = lambda name: renamed(name, {own: plain for plain, own in self.rename.items()})
        return found

    def _of_call(self, role: str, fields: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
        """The options that a module's call gets, because the module's builder does not take them."""
        taken = keywords_of(self.loaded[role])
        known = {n: value_of(self.options[n], label(fields[n])) for n in self.options if n in fields}
        return {name: value for name, value in {**known, **options}.items() if name not in taken}

    def _names(self, fields: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> Names:
        """The function's names of the reference's parameters and state."""
        plain, other = self._bound("reference", fields, {}), self._bound("function", fields, options or {})
        return matched(self.called, plain, other, self.rename)

    def leaves_at(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Path -> draw of the inputs, and the parameters and the state of the module that is built at these dims."""
        plain, names = self._bound("reference", fields, {}), self._names(fields)
        found: dict[str, Any] = dict(self.leaves)
        for name in names.parameters:
            found[f"{MODULE}.{name}"] = Placed(tuple(plain.parameters[name].shape), "parameter")
        for name in names.state:
            leaf = plain.state[name]
            kind = {"f": "parameter", "b": "mask"}.get(leaf.dtype.kind, "integers")
            found[f"{MODULE}.{name}"] = Placed(tuple(leaf.shape), kind, kind == "parameter", False)
        if self.random and self.where == "jax":
            found[KEY] = Placed((2,), "key", False, False)
        return found

    def differentiated_at(self, fields: Mapping[str, Any]) -> frozenset[str]:
        """Paths of the inputs and the parameters that get a gradient."""
        return (self.differentiated - {MODULE}) | {f"{MODULE}.{name}" for name in self._names(fields).parameters}

    def numbers(self, fields: Mapping[str, Any]) -> int:
        """How many numbers inputs and parameters have; in PyTorch the parameters are not drawn for this if possible."""
        sizes = {name: fields[name] for name in self.dims}
        inputs = sum(draw.count(sizes) for draw in self.leaves.values())
        if self.where == "torch":
            from gradgate.suites.pairs.modules_torch import count

            keywords = self._keywords("reference", fields, {})
            return inputs + int(_kept(self._counts, repr(keywords), lambda: count(self.loaded["reference"], keywords)))
        plain = self._bound("reference", fields, {})
        return inputs + sum(int(leaf.size) for leaf in plain.parameters.values())

    @functools.cached_property
    def _counts(self) -> dict[str, Any]:
        return {}

    def given(self, spec: PairSpec) -> dict[str, Any]:
        """Input -> tree of arrays, and ``module``, name -> parameter: its initial numbers plus normal numbers."""
        found = super().given(spec)
        parameters = self._bound("reference", spec.fields, {}).parameters
        found[MODULE] = {
            name: _spread(np.asarray(parameters[name], np.float64), generator(spec.seed, 2000 + place))
            for place, name in enumerate(self._names(spec.fields).parameters)
        }
        return found

    def drawn(self, spec: PairSpec) -> dict[str, Any]:
        """Path -> array, for a Spec's sizes, seed and regime: inputs, parameters, state and key."""
        found = super().drawn(spec)
        key = generator(spec.seed, 3000).integers(0, 2**32, 2, dtype=np.uint32)
        found |= {f"{MODULE}.{name}": leaf for name, leaf in self._warmed(spec).items()}
        return found | ({KEY: key} if self.random and self.where == "jax" else {})

    def _warmed(self, spec: PairSpec) -> dict[str, Any]:
        """Name -> state that both modules share, after training calls of the reference."""
        plain, names = self._bound("reference", spec.fields, {}), self._names(spec.fields)
        if not plain.state:
            return {}
        after = _kept(self._states, repr((spec.fields, spec.seed)), lambda: self._warm(spec, plain))
        for name, leaf in plain.state.items():
            if name not in names.state and not np.array_equal(after[name], leaf, equal_nan=leaf.dtype.kind == "f"):
                raise names.missing(name)
        return {name: after[name] for name in names.state}

    @functools.cached_property
    def _states(self) -> dict[str, Any]:
        return {}

    def _warm(self, spec: PairSpec, plain: Bound) -> dict[str, Any]:
        from gradgate.suites.pairs.modules_warm import warmed

        calls = []
        for i in range(WARM):
            seed = (spec.seed + 7919 * (i + 1)) % 2**31
            other = super().given(dataclasses.replace(spec, seed=seed, regime=""))
            flat = self._plain_leaves(other)
            calls.append(self.arguments(flat))
        return warmed(self.where, plain, calls, self._of_call("reference", spec.fields, {}))

    def _plain_leaves(self, given: Mapping[str, Any]) -> dict[str, Any]:
        from gradgate.references.backends import named_leaves

        found = {path: leaf for name, tree in given.items() for path, leaf in named_leaves(tree, name).items()}
        flat = {path: leaf for path, leaf in found.items() if leaf is not None}
        return {path: leaf.astype(np.float32) if leaf.dtype.kind == "f" else leaf for path, leaf in flat.items()}

    def outputs(
        self, role: str, problem: PairProblem, params: Tree, options: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Path -> floating output of a call; the state after it is only in `all_outputs`, and gets no cotangent."""
        answer = self._called(role, problem, params, options or {})[0]
        trees.usual(self.called, role, trees.flatten(self.where, answer)[0])
        return self.floating(answer)

    def all_outputs(
        self, role: str, problem: PairProblem, params: Tree, options: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Every output of a call, and the state after it that both modules have."""
        answer, after = self._called(role, problem, params, options or {})
        flat = trees.usual(self.called, role, trees.flatten(self.where, answer)[0])
        return flat | {f"{MODULE}.{name}{AFTER}": leaf for name, leaf in after.items()}

    def _called(
        self, role: str, problem: PairProblem, params: Tree, options: Mapping[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        fields, leaves = problem.spec.fields, {**problem.data["given"], **params}
        module, names = self._bound(role, fields, options), self._names(fields, options)
        own = (lambda name, known: known[name]) if role == "function" else (lambda name, known: name)
        parameters = {own(n, names.parameters): leaves[f"{MODULE}.{n}"] for n in names.parameters}
        state = {own(n, names.state): leaves[f"{MODULE}.{n}"] for n in names.state}
        arguments = self.arguments(self.widened(problem, leaves))
        keywords = self._of_call(role, fields, options)
        with self.seeded(problem.spec), places.running(self._devices(role)):
            answer, after = module.call(
                parameters, state, arguments, keywords, fields["training"], leaves.get(KEY, np.zeros(2, np.uint32))
            )
        return answer, {name: after[own(name, names.state)] for name in names.state if own(name, names.state) in after}

    def module(self, role: str, problem: PairProblem, options: Mapping[str, Any]) -> tuple[Any, dict[str, str]]:
        """A new torch.nn.Module with the problem's parameters and buffers, in its mode, and path -> own name."""
        import torch

        fields, names = problem.spec.fields, self._names(problem.spec.fields, options)
        module = self._made(role, self._keywords(role, fields, options)).to(getattr(torch, problem.dtype))
        leaves = {**problem.data["given"], **problem.params}
        own = {n: {**names.parameters, **names.state}[n] if role == "function" else n for n in names.every}
        held = dict(module.named_parameters()) | dict(module.named_buffers())
        with torch.no_grad():
            for name, mine in own.items():
                held[mine].copy_(leaves[f"{MODULE}.{name}"])
        return module.train(fields["training"]), {f"{MODULE}.{n}": mine for n, mine in own.items()}

    def keywords(self, role: str, fields: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
        """The keywords that a call of the module itself gets, with its mode if the call takes that."""
        bound = self._bound(role, fields, options)
        return {**self._of_call(role, fields, options), **bound.mode(fields["training"])}

    @functools.cached_property
    def of_builders(self) -> frozenset[str]:
        """The dims on which the modules depend; the other dims occur only in the inputs."""
        taken = {name for role in ("reference", "function") for name in keywords_of(self.loaded[role])}
        return frozenset(taken & set(self.dims))

    def floating(self, answer: Any) -> dict[str, Any]:
        """Path -> floating output of what a module returned."""
        flat = trees.flatten(self.where, answer)[0]
        return {path: leaf for path, leaf in flat.items() if trees.is_floating(self.where, leaf)}

    def compiled(self) -> Pair:
        """This pair with the function's module under torch.compile."""
        pair = dataclasses.replace(self, framework="torch", name=self.called)
        pair.__dict__["compiling"] = True
        return pair

    @property
    def batchable(self) -> int:
        """The inputs, and the parameters of the module together."""
        return len(self.inputs) + 1

    def further(self) -> tuple[Claim, ...]:
        """`module_protocol`, in PyTorch."""
        if self.where != "torch":
            return ()
        said = (
            "is right or raises under what is done to a module: eval, deepcopy, a step or a second call in between, "
            "autocast with large and small upstream gradients"
        )
        return (Claim("module_protocol", "module_protocol", said, "contract"),)


def _spread(leaf: Any, rng: np.random.Generator) -> Any:
    """Initial numbers with normal numbers added."""
    size = float(np.sqrt(np.mean(leaf * leaf))) if leaf.size else 0.0
    return leaf + SPREAD * (size or 1.0) * rng.standard_normal(leaf.shape)


def _kept(held: dict[str, Any], key: str, make: Callable[[], Any]) -> Any:
    """The value under a key, which is made if it is missing; if there are too many, the oldest is dropped."""
    if key not in held:
        made = make()
        while len(held) >= KEPT:
            held.pop(next(iter(held)))
        held[key] = made
    return held[key]
