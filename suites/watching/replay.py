"""A recorded call as a pair: the rule as the function, its own forward pass as the reference, the arrays as its inputs.

The values that were seen are judged first. The regime `DRAWN` has other values like them: of the same signs, ranges and
zeros, and whole numbers where all were whole. Whatever gets no gradient stays as it was seen. A call without values, as
under ``jax.jit``, gets numbers like those of another call of the same rule that had some.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gradgate.references.contract import Tree
from gradgate.references.errors import UsageError
from gradgate.suites.engine.quick import Given, GivenPair
from gradgate.suites.pairs import devices as places
from gradgate.suites.pairs import trees, triton_interpreter
from gradgate.suites.pairs.device_names import INTERPRETER
from gradgate.suites.pairs.draws import WIDTHS
from gradgate.suites.pairs.spec import PairProblem, PairSpec, bare, generator
from gradgate.suites.watching import portable
from gradgate.suites.watching.recorder import Array

DRAWN = "drawn"
"""The regime of values that were drawn and not seen."""
BETWEEN = "between"
"""The regime of a call whose values are not known, with numbers between 0 and 1, where most functions are defined."""
CALLED = ("autograd.Function", "custom_vjp", "custom_jvp")
"""Kinds of rules that a program calls by their names."""
VARIABLES = {
    ("flax.core.lift", "custom_vjp.<locals>.inner.<locals>.f"): 0,
    ("flax.nnx.transforms.autodiff", "CustomVjpFnWrapper"): 1,
    ("flax.nnx.transforms.autodiff", "SimpleCustomVjpFn"): 0,
}
"""The functions of flax that return variables, whose gradients rules leave out, beside outputs -> where these are."""
FEW = 0.5
"""Standard deviation, relative to its size, of what takes the place of a number that is the same everywhere."""


@dataclass(frozen=True, eq=False)
class SeenPair(GivenPair):
    """A pair of a recorded call.

    Attributes:
        inputs: name -> `Array`, of the arrays of the call.
        elsewhere: name -> numbers that this array had in another call of the rule, if this call had none.
    """

    elsewhere: Mapping[str, Any] = field(default_factory=dict)

    @functools.cached_property
    def _flat(self) -> list[tuple[dict[str, Any], Callable[[dict[str, Any]], Any]]]:
        return [({name: self._leaf(array)}, functools.partial(_only, name)) for name, array in self.inputs.items()]

    def _leaf(self, array: Array) -> Any:
        if array.dtype in WIDTHS:
            values = np.zeros(array.shape) if array.values is None else np.asarray(array.values, np.float64)
            return Given(values, array.dtype, gradient=array.differentiated)
        if array.dtype.startswith(("complex", "float8")):
            raise UsageError(f"{self.called}: it takes an array of {array.dtype}, which is not supported")
        values = np.zeros(array.shape, array.dtype) if array.values is None else array.values
        return _array(self.framework, values, array.dtype)

    @functools.cached_property
    def seen(self) -> bool:
        """Whether the values of the call are known."""
        return all(array.values is not None for array in self.inputs.values())

    def all_outputs(
        self, role: str, problem: PairProblem, params: Tree, options: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Path -> output of ``function`` or ``reference``, on the device of the kernels that it launches."""
        with places.running(self._devices(role)):
            return super().all_outputs(role, problem, params, options)

    def outputs(
        self, role: str, problem: PairProblem, params: Tree, options: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Path -> floating output, without `without_gradient`."""
        found = super().outputs(role, problem, params, options)
        return {path: leaf for path, leaf in found.items() if path not in self.without_gradient}

    @functools.cached_property
    def without_gradient(self) -> frozenset[str]:
        """The outputs that a Function gives to `ctx.mark_non_differentiable`: its derivative leaves them out."""
        if self.where != "torch" or not self.against_itself:
            return frozenset()
        import torch

        problem = bare(self, self.spec())
        with torch.enable_grad():
            params = {path: leaf.detach().requires_grad_() for path, leaf in problem.params.items()}
            found = super().outputs("function", problem, params)
        fixed = frozenset(path for path, leaf in found.items() if not leaf.requires_grad)
        return fixed if len(fixed) < len(found) else frozenset()

    def drawn(self, spec: PairSpec) -> dict[str, Any]:
        """Path -> NumPy array."""
        if not spec.regime and self.seen:
            return super().drawn(spec)
        found = {}
        for place, (path, leaf) in enumerate(self.leaves.items()):
            rng = generator(spec.seed, 5000 + place)
            if path in self.elsewhere:
                known = np.resize(self.elsewhere[path], leaf.array.shape)
                found[path] = like(known, rng) if leaf.gradient else known
            elif spec.regime == BETWEEN:
                found[path] = rng.uniform(0.05, 0.95, leaf.array.shape)
            else:
                found[path] = like(leaf.array, rng) if leaf.gradient or not self.seen else leaf.array
        return found


def pair(place: str) -> SeenPair:
    """The pair of a recorded call. Imports the modules of the rule.

    Args:
        place: any file of the call: the name of the others differs in its ending.

    Raises:
        UsageError: the call cannot be judged; says why.
    """
    return Recorded.read(place).pair()


@dataclass(frozen=True)
class Recorded:
    """A recorded call, with its rule.

    Attributes:
        stem: the name of its files.
        framework, kind, name: of the rule (`recorder.Rule`).
        rule: the class, the operator or the object of JAX.
        names: name of an array among the arguments -> its path in their tree.
        flat: path -> leaf of the arguments.
        put: puts leaves back into the tree.
        folder: where they are.
        devices: as a pair declares them, of a rule that launches kernels.
        again: path -> array to the rule and the leaves; None unless a function among them holds arrays of the call.
    """

    stem: str
    framework: str
    kind: str
    name: str
    rule: Any
    names: Mapping[str, str]
    flat: Mapping[str, Any]
    put: Callable[..., Any]
    folder: Path
    devices: tuple[str, ...] = ()
    again: Callable[[Mapping[str, Any]], tuple[Any, Mapping[str, Any]]] | None = None

    @classmethod
    def read(cls, place: str) -> Recorded:
        """The call of which a file is named.

        Raises:
            UsageError: its rule cannot be loaded here.
        """
        path = Path(place).with_suffix(".json")
        call = json.loads(path.read_text(encoding="utf-8"))
        sys.path.extend(folder for folder in call["path"] if folder not in sys.path)
        if call["unreachable"]:
            raise UsageError(f"{call['name']}: {call['unreachable']}")
        devices = tuple(call["devices"])
        if devices and not places.missing(INTERPRETER):
            triton_interpreter.prepare()  # before an import declares the kernels
        try:
            data = path.with_suffix(".pickle").read_bytes()
            loaded = portable.loads(data)
            rule, arguments, keywords = loaded.rule, loaded.arguments, loaded.keywords
            rule = rule.load() if isinstance(rule, portable.Operator) else rule
        except Exception as error:
            raise UsageError(f"{call['name']}: it cannot be imported: {type(error).__name__}: {error}") from error
        flat, put = trees.flatten(call["framework"], ([*arguments], keywords))
        arrays = [path for path, leaf in flat.items() if isinstance(leaf, Array)]
        words = _names(call["kind"], rule, len(arguments))
        names = {_named(path, words): path for path in arrays}
        names = names if len(names) == len(arrays) else {path: path for path in arrays}
        found = cls(
            path.stem, call["framework"], call["kind"], call["name"], rule, names, flat, put, path.parent, devices
        )
        return dataclasses.replace(found, again=_again(data, loaded, found)) if loaded.held else found

    def pair(self) -> SeenPair:
        """The pair of this call.

        Raises:
            UsageError: no gradient can be asked for.
        """
        inputs = {name: self.flat[path] for name, path in self.names.items()}
        floats = [array.dtype for array in inputs.values() if array.dtype in WIDTHS and array.differentiated]
        if not floats:
            raise UsageError(f"{self.name}: no floating array was among the arguments of its call")
        unknown = any(array.values is None for array in inputs.values())
        elsewhere = self._values_elsewhere() if unknown else {}
        for name, numbers in elsewhere.items():  # what is not floating stays as it was there
            if inputs[name].dtype not in WIDTHS:
                inputs[name] = dataclasses.replace(inputs[name], values=np.resize(numbers, inputs[name].shape))
        wrapped = self.rule if isinstance(self.rule, portable.Wrapped) else None
        return SeenPair(
            _function(self),
            _function(self, plain=True) if wrapped else None,
            by_backward=wrapped is not None and wrapped.reentrant,
            devices=self.devices,
            inputs=inputs,
            elsewhere=elsewhere,
            regimes={(BETWEEN if unknown else DRAWN): dict},
            dtypes=(min(floats, key=WIDTHS.index),),
            random=True,
            framework=self.framework,
            name=self.stem,
            keywords={"function": {}, "reference": {}},
        )

    def _values_elsewhere(self) -> dict[str, Any]:
        """Name of an array -> its numbers in another call of the rule that had values; {} if there is none."""
        own = json.loads((self.folder / f"{self.stem}.json").read_text(encoding="utf-8"))
        for path in sorted(self.folder.glob("*.json")):
            call = json.loads(path.read_text(encoding="utf-8"))
            same = all(call.get(one) == own[one] for one in ("name", "file", "line"))
            if same and not call["traced"] and not call["unreachable"]:
                other = Recorded.read(str(path))
                missing = [name for name, place in self.names.items() if self.flat[place].values is None]
                found = {name: other.flat[place].values for name, place in other.names.items() if name in missing}
                return {name: array for name, array in found.items() if array is not None and array.size}
        return {}

    def expression(self) -> str:
        """The call as text, with the names of its arrays; "" if the rule or an argument cannot be written down."""
        module, _, name = self.name.partition(":")
        if module in ("__main__", "unknown") or "<" in name or self.kind not in CALLED:
            return ""
        if not all(one.isidentifier() for one in self.names) or not portable.is_named(self.rule):
            return ""
        written = {path: _Name(name) for name, path in self.names.items()}
        others = [leaf for path, leaf in self.flat.items() if path not in written]
        if not all(leaf is None or isinstance(leaf, (bool, int, float, str)) for leaf in others):
            return ""
        arguments, keywords = self.put({**self.flat, **written})
        words = [repr(one) for one in arguments] + [f"{key}={value!r}" for key, value in keywords.items()]
        return f"{name}{'.apply' if self.kind == 'autograd.Function' else ''}({', '.join(words)})"


class _Name(str):
    """A name, which is written without quotation marks."""

    def __repr__(self) -> str:
        return str(self)


def _again(
    data: bytes, loaded: portable.Loaded, call: Recorded
) -> Callable[[Mapping[str, Any]], tuple[Any, Mapping[str, Any]]]:
    """The rule and the leaves of its call with the given arrays in the place of those that something else holds."""
    paths = {id(leaf): path for path, leaf in call.flat.items()}
    places = {place: paths[id(array)] for place, array in enumerate(loaded.arrays)}

    def again(given: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
        found = portable.loads(data, lambda place: given[places[place]])
        return found.rule, trees.flatten(call.framework, ([*found.arguments], found.keywords))[0]

    return again


def _function(call: Recorded, plain: bool = False) -> Callable[..., Any]:
    """The rule as a function of the arrays of its call; or what it is compared with (`portable.Wrapped`)."""
    copied = call.kind == "autograd.Function" and _is_in_place(call.rule)
    paths = list(call.names.values())

    def function(*arrays: Any) -> Any:
        given = dict(zip(paths, arrays, strict=True))
        if call.framework == "jax":
            import jax
            import jax.numpy as jnp

            given = {path: jnp.asarray(array) for path, array in given.items()}
        elif copied:  # autograd refuses to change a leaf in place, and a program has changed none
            given = {path: array.clone() for path, array in given.items()}
        rule, flat = call.again(given) if call.again else (call.rule, call.flat)
        arguments, keywords = call.put({**flat, **given})
        if not plain:
            own = keywords if isinstance(rule, portable.Wrapped) else portable.Wrapped.given(keywords)
            return _called(call.kind, rule)(*arguments, **own)
        fixed = rule
        if call.again and call.framework == "jax":
            fixed, _ = call.again({path: jax.lax.stop_gradient(array) for path, array in given.items()})
        return rule.plain(fixed, arguments, keywords)

    function.__name__ = getattr(call.rule, "__name__", "rule")
    function.__wrapped__ = _written(call.kind, call.rule)  # type: ignore[attr-defined]
    return function


def _called(kind: str, rule: Any) -> Callable[..., Any]:
    """What a program calls."""
    if kind == "autograd.Function":
        return rule.apply
    fun = getattr(rule, "fun", None)
    place = VARIABLES.get((getattr(fun, "__module__", ""), getattr(fun, "__qualname__", "")))
    place = VARIABLES.get((type(fun).__module__, type(fun).__qualname__), place)
    if place is not None:
        return lambda *arguments, **keywords: rule(*arguments, **keywords)[place]
    return _applied(rule) if kind == "torch.library" else rule


def _applied(operator: Any) -> Any:
    """An operator with its rule, whose forward pass is the Python function that declares it, if there is one.

    The operator itself is opaque: sixty digits do not enter it.
    """
    import torch
    from torch._library.custom_ops import OPDEFS
    from torch._library.utils import fill_defaults

    declared: Any = OPDEFS.get(operator._schema.name)
    if declared is None:
        return operator

    class Applied(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, keywords: dict[str, Any], *arguments: Any) -> Any:
            arguments, keywords = fill_defaults(operator._schema, arguments, keywords)
            output = declared._init_fn(*arguments, **keywords)
            if declared._setup_context_fn is not None:
                more = {"keyword_only_inputs": keywords} if keywords else {}
                declared._setup_context_fn(ctx=ctx, inputs=arguments, output=output, **more)
            return output

        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> Any:
            found = declared._backward_fn(_Shifted(ctx), *cotangents)
            return None, *(found if isinstance(found, tuple) else (found,))

    return lambda *arguments, **keywords: Applied.apply(keywords, *arguments)


class _Shifted:
    """The context of a rule, without the needs of the first argument, which the rule does not know."""

    def __init__(self, ctx: Any) -> None:
        vars(self)["_ctx"] = ctx

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._ctx, name)
        return found[1:] if name == "needs_input_grad" else found

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._ctx, name, value)


def _written(kind: str, rule: Any) -> Any:
    """The function whose source a message may name."""
    written = getattr(rule, "forward", None) or getattr(rule, "fun", rule)
    return getattr(written, "fun", written) if kind == "custom_vmap" else written


def _is_in_place(rule: Any) -> bool:
    parts = (rule.forward, rule.setup_context)
    return any("mark_dirty" in getattr(getattr(part, "__code__", None), "co_names", ()) for part in parts)


def _names(kind: str, rule: Any, count: int) -> list[str]:
    """The names of the rule's arguments, as its forward pass has them."""
    if kind == "torch.library":
        return [argument.name for argument in rule._schema.arguments][:count]
    if isinstance(rule, portable.Implicit):
        return ["b" if rule.linear else "initial_guess"]
    if isinstance(rule, portable.ModuleHook):
        return ["gradients", "others"][:count]
    try:
        parameters = list(inspect.signature(_written(kind, rule)).parameters.values())
    except (TypeError, ValueError):
        return []
    if kind == "autograd.Function":
        import torch

        separate = rule.setup_context is not torch.autograd.Function.setup_context
        parameters = parameters if separate else parameters[1:]
    usual = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return usual[:count] if len(usual) >= count else []


def _named(path: str, names: list[str]) -> str:
    """``[0][1].x`` as ``a.x``, where ``a`` is the second argument; ``[1].x`` is the keyword x."""
    part, place, rest = path.split("]", 2) if path.startswith("[0][") else ("", "", path.removeprefix("[1]."))
    if not part:
        return rest
    number = int(place[1:])
    return (names[number] if number < len(names) else f"args[{number}]") + rest


def _only(name: str, leaves: Mapping[str, Any]) -> Any:
    return leaves[name]


def _array(framework: str, values: Any, dtype: str) -> Any:
    if framework == "jax":
        return values
    import torch

    return torch.from_numpy(np.ascontiguousarray(values).reshape(values.shape)).to(getattr(torch, dtype))


def like(array: Any, rng: np.random.Generator) -> Any:
    """Other numbers like those of an array: of its range, signs and zeros; whole, or symmetric, if it is."""
    if _is_symmetric(array):  # the same signs, zeros and definiteness
        sizes = np.exp(FEW / 2 * rng.standard_normal(array.shape[:-1]))
        return array * (sizes[..., None] * sizes[..., None, :])
    known = array[np.isfinite(array)]
    if not known.size:
        return rng.standard_normal(array.shape)
    low, high = float(known.min()), float(known.max())
    if low == high:
        return rng.standard_normal(array.shape) if low == 0 else low * np.exp(FEW * rng.standard_normal(array.shape))
    if (known == np.rint(known)).all():
        return rng.choice(known, array.shape)
    zeros = float((known == 0).mean())
    nonzero = known[known != 0]
    if low >= 0 and high <= 1:
        drawn = rng.uniform(nonzero.min(), high, array.shape)
    elif low >= 0 or high <= 0:
        drawn = rng.choice(nonzero, array.shape) * np.exp(FEW / 2 * rng.standard_normal(array.shape))
    else:
        drawn = rng.normal(known.mean(), known.std(), array.shape)
    return np.where(rng.random(array.shape) < zeros, 0.0, drawn)


def _is_symmetric(array: Any) -> bool:
    """Whether an array is a symmetric matrix, or several."""
    square = array.ndim >= 2 and array.shape[-1] == array.shape[-2] > 1
    return bool(square and np.isfinite(array).all() and (array == array.swapaxes(-1, -2)).all() and array.any())
