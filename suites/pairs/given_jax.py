"""Functions of JAX as they are given to `gradgate.check`: modules of flax.nnx and equinox with parameters."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax

from gradgate.references.contract import UsageError
from gradgate.suites.pairs import captured
from gradgate.suites.pairs.modules_jax import _dotted, _is_parameter, _path, kind_of


class GivenModule:
    """A module of flax.nnx or equinox that exists, called as the user calls it.

    Attributes:
        leaves: name -> parameter.
    """

    leaves: Mapping[str, Any]

    def __init__(self, function: Callable[..., Any], module: Any) -> None:
        self.function = function
        if kind_of(module) == "nnx":
            from flax import nnx

            split: Any = nnx.split(module, nnx.Param, ...)
            graph, params, rest = split
            flat, others = dict(nnx.to_flat_state(params)), dict(nnx.to_flat_state(rest))
            self.leaves = {_dotted(path): leaf.get_value() for path, leaf in flat.items()}

            def merged(parameters: Mapping[str, Any]) -> Any:
                filled = [(path, leaf.replace(parameters[_dotted(path)])) for path, leaf in flat.items()]
                copied = [(path, leaf.replace(leaf.get_value())) for path, leaf in others.items()]
                return nnx.merge(graph, nnx.from_flat_state(filled), nnx.from_flat_state(copied))

        else:
            import equinox as eqx

            arrays, static = eqx.partition(module, _is_parameter)
            placed, structure = jax.tree_util.tree_flatten_with_path(arrays)
            self.leaves = {_path(path): leaf for path, leaf in placed}

            def merged(parameters: Mapping[str, Any]) -> Any:
                return eqx.combine(jax.tree.unflatten(structure, [parameters[name] for name in self.leaves]), static)

        self._merged = merged

    def __call__(self, parameters: Mapping[str, Any], arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """What the function returns with these parameters; the module itself is left alone."""
        return captured.rebound(self.function, self._merged(parameters))(*arguments, **keywords)

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Nothing to restore."""
        yield


def module_of(who: str, function: Callable[..., Any]) -> GivenModule | None:
    """The module that a callable is, or belongs to; None if there is none, or if it has no parameters.

    Raises:
        UsageError: it is a module of flax.linen, whose parameters are bound to it.
    """
    module = captured.owner(function)
    kind = kind_of(module)
    if kind == "linen":
        raise UsageError(
            f"the {who} is a module of flax.linen, whose parameters would not be judged: give "
            "lambda params, *x: module.apply(params, *x), and params in args, or declare a gradgate.module_pair"
        )
    found = GivenModule(function, module) if kind else None
    return found if found and found.leaves else None


def modules_within(function: Callable[..., Any]) -> list[str]:
    """Names of the modules with parameters that a function refers to, such as a module in its closure.

    What a module refers to is part of it, and does not count.
    """
    found = []
    whole = kind_of(captured.owner(function))
    for name, one in captured.bound_by_partial(function) if whole else captured.held(function):
        kind = kind_of(one)
        bound = getattr(one, "scope", None) is not None if kind == "linen" else kind and GivenModule(one, one).leaves
        if bound:
            found.append(name)
    return list(dict.fromkeys(found))
