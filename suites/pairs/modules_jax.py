"""Modules of flax (nnx and linen) and equinox as functions of their parameters and their state."""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradgate.references.backends import precision
from gradgate.suites.pairs.modules_bound import Bound

SEED = 0
"""Seed of the initial parameters."""


@contextlib.contextmanager
def building() -> Iterator[None]:
    """The scope in which modules are built: with concrete numbers, even within a trace, and in float32."""
    with jax.ensure_compile_time_eval(), precision("jax", "float32"):
        yield


def kind_of(module: Any) -> str:
    """``nnx``, ``linen``, ``equinox``, or "" if it is no module of JAX."""
    for cls in type(module).__mro__:
        for kind, start in (("nnx", "flax.nnx"), ("linen", "flax.linen"), ("equinox", "equinox")):
            if cls.__module__.startswith(start):
                return kind
    return ""


class JaxModule(Bound):
    """A module in JAX, whose calls can be compiled."""

    def after(self, arguments: Sequence[Any], state: Mapping[str, Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
        """The state after a training call with the initial parameters; one program for each set of keywords."""
        held = self.__dict__.setdefault("_programs", {})
        name = repr(sorted(keywords.items()))
        if name not in held:

            def run(parameters: Any, state: Any, arguments: Any) -> Any:
                return self.call(parameters, state, arguments, keywords, True, np.zeros(2, np.uint32))[1]

            held[name] = jax.jit(run)
        found: dict[str, Any] = held[name](dict(self.parameters), dict(state), list(arguments))
        return found


class NnxModule(JaxModule):
    """A flax.nnx.Module, taken apart by `nnx.split`: Params are parameters, all others but random keys are state."""

    def __init__(self, module: Any) -> None:
        from flax import nnx

        self.forward = module.__call__
        graph, *parts = nnx.split(module, nnx.Param, nnx.RngState, ...)
        self.graph: Any = graph
        self._params, self._keys, self._rest = (dict(nnx.to_flat_state(part)) for part in parts)
        self.parameters = {_dotted(path): np.asarray(leaf.get_value()) for path, leaf in self._params.items()}
        self.state = {_dotted(path): np.asarray(leaf.get_value()) for path, leaf in self._rest.items()}
        self.draws = [_dotted(path) for path in self._keys]

    def call(
        self,
        parameters: Mapping[str, Any],
        state: Mapping[str, Any],
        arguments: Sequence[Any],
        keywords: Mapping[str, Any],
        training: bool,
        key: Any,
    ) -> tuple[Any, dict[str, Any]]:
        """See `Bound.call`."""
        from flax import nnx

        def filled(part: Mapping[Any, Any], values: Mapping[str, Any]) -> Any:
            flat = [
                (p, leaf.replace(jnp.asarray(values.get(_dotted(p), leaf.get_value())))) for p, leaf in part.items()
            ]
            return nnx.from_flat_state(flat)

        keys = {_dotted(path): _random(leaf, self.known_as(_dotted(path)), key) for path, leaf in self._keys.items()}
        module = nnx.merge(
            self.graph, filled(self._params, parameters), filled(self._keys, keys), filled(self._rest, state)
        )
        module.train() if training else module.eval()
        answer = module(*arguments, **keywords, **self.mode(training))
        after = nnx.to_flat_state(nnx.state(module))
        values = {_dotted(path): leaf.get_value() for path, leaf in after}
        return answer, {name: values[name] for name in self.state if name in values}


def _random(leaf: Any, name: str, key: Any) -> Any:
    """0 for a counter; for a key, a new key derived from the given one and from the name in the reference."""
    if not jnp.issubdtype(leaf.get_value().dtype, jax.dtypes.prng_key):
        return jnp.zeros_like(leaf.get_value())
    return jax.random.fold_in(_key(key), zlib.crc32(name.encode()))


class LinenModule(JaxModule):
    """A flax.linen.Module with its variables: ``params`` are parameters, all other collections are state."""

    def __init__(self, module: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> None:
        self.module, self.forward = module, module.__call__
        roots = {name: jax.random.key(SEED) for name in ("params", "dropout")}
        variables = jax.tree.map(np.asarray, module.init(roots, *arguments, **keywords, **self.mode(False)))
        flat = {_path(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(variables)[0]}
        self._structure = jax.tree.structure(variables)
        self._names = list(flat)
        self._others = [name for name in variables if name != "params"]
        self.parameters = {n.removeprefix("params."): leaf for n, leaf in flat.items() if n.startswith("params.")}
        self.state = {name: leaf for name, leaf in flat.items() if not name.startswith("params.")}

    def call(
        self,
        parameters: Mapping[str, Any],
        state: Mapping[str, Any],
        arguments: Sequence[Any],
        keywords: Mapping[str, Any],
        training: bool,
        key: Any,
    ) -> tuple[Any, dict[str, Any]]:
        """See `Bound.call`."""
        values = {**self.state, **state, **{f"params.{name}": leaf for name, leaf in parameters.items()}}
        variables = jax.tree.unflatten(self._structure, [values[name] for name in self._names])
        root = _key(key)
        answer = self.module.apply(
            variables,
            *arguments,
            **keywords,
            **self.mode(training),
            mutable=self._others or False,
            rngs={name: jax.random.fold_in(root, i) for i, name in enumerate(("params", "dropout"))},
        )
        if not self._others:
            return answer, {}
        out, after = answer
        return out, {_path(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(after)[0]}


class EquinoxModule(JaxModule):
    """An equinox.Module: its floating arrays are parameters; the arrays of `eqx.nn.State` are state.

    A module with state is called as ``module(*inputs, state)`` and returns (output, state), as is usual there.
    """

    def __init__(self, module: Any, state: Any) -> None:
        import equinox as eqx

        self.forward = type(module).__call__.__get__(module)
        params, self._static = eqx.partition(module, _is_parameter)
        flat, self._structure = jax.tree_util.tree_flatten_with_path(params)
        self.parameters = {_path(path): np.asarray(leaf) for path, leaf in flat}
        leaves, self._held = jax.tree.flatten(state)
        self.state = {f"state[{i}]": np.asarray(leaf) for i, leaf in enumerate(leaves)}

    def call(
        self,
        parameters: Mapping[str, Any],
        state: Mapping[str, Any],
        arguments: Sequence[Any],
        keywords: Mapping[str, Any],
        training: bool,
        key: Any,
    ) -> tuple[Any, dict[str, Any]]:
        """See `Bound.call`."""
        import equinox as eqx

        params = jax.tree.unflatten(self._structure, [parameters[name] for name in self.parameters])
        module = eqx.nn.inference_mode(eqx.combine(params, self._static), value=not training)
        given = {**keywords, **self.mode(training)}
        if self.takes("key"):
            given["key"] = _key(key)
        if not self.state:
            return module(*arguments, **given), {}
        held = [jnp.asarray(state.get(name, leaf)) for name, leaf in self.state.items()]
        answer, after = module(*arguments, jax.tree.unflatten(self._held, held), **given)
        return answer, dict(zip(self.state, jax.tree.leaves(after), strict=True))


def bound(module: Any, arguments: Callable[[], Sequence[Any]], keywords: Mapping[str, Any]) -> Bound:
    """A module as a function.

    Args:
        module: of flax or equinox, as it was built.
        arguments: gives arguments of a call, which linen needs to know the shapes of its parameters.
        keywords: of a call.
    """
    kind = kind_of(module)
    if kind == "nnx":
        return NnxModule(module)
    if kind == "linen":
        return LinenModule(module, arguments(), keywords)
    import equinox as eqx

    return EquinoxModule(eqx.nn.delete_init_state(module), eqx.nn.State(module))


def seeds(wanted: Collection[str]) -> dict[str, Any]:
    """``rngs`` and ``key``, if the builder wants them."""
    found: dict[str, Any] = {}
    if "rngs" in wanted:
        from flax import nnx

        found["rngs"] = nnx.Rngs(SEED)
    if "key" in wanted:
        found["key"] = jax.random.key(SEED)
    return found


def _is_parameter(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray, jax.ShapeDtypeStruct)) and bool(
        jnp.issubdtype(leaf.dtype, jnp.floating)
    )


def _key(words: Any) -> Any:
    """A key made from two uint32."""
    return jax.random.wrap_key_data(jnp.asarray(words))


def _dotted(path: Sequence[Any]) -> str:
    return ".".join(map(str, path))


def _path(path: Any) -> str:
    """A path of JAX as one would write it: ``.layers[0].weight`` and ``['params']['w']`` alike."""
    return re.sub(r"\['([^']*)'\]", r".\1", jax.tree_util.keystr(path)).lstrip(".")
