"""A model's forward pass as a list of calls, and how a part of the list is run again.

A call is a function of PyTorch or a module of the model that is called as a whole. What it reads is a `Read` (an
earlier tensor), a `State` (a parameter or buffer, by its name, looked up anew in every step), a `Constant` or anything
else as it is. `recorder` makes such lists.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from gradgate.references.chain.in_torch.replay import Surroundings


@dataclass(frozen=True)
class Read:
    """An input of the model, or a result of an earlier call, by its number."""

    number: int


@dataclass(frozen=True)
class State:
    """A parameter or buffer of the model, by its name."""

    name: str


@dataclass(frozen=True)
class Constant:
    """A tensor that is an attribute of a module and neither parameter nor buffer, by its number."""

    number: int


@dataclass
class Tensor:
    """What is known of one tensor of the forward pass.

    Attributes:
        name: for messages: the input, or the call that gives it.
        nbytes: of its storage.
        storage: a number that tensors with the same storage share.
        needs: whether it needs a gradient.
        given: whether it is an input of the model.
    """

    name: str
    nbytes: int
    storage: int
    needs: bool
    given: bool = False


@dataclass(frozen=True)
class Call:
    """One call.

    Attributes:
        name: for messages: where in the model, and what.
        function: what is called; None: the module.
        module: name of the module that is called as a whole; None: a function.
        leaves: of (args, kwargs), with `Read`, `State` and `Constant` in place of tensors.
        spec: of (args, kwargs).
        gives: for every leaf of the result, its number, or None if it is no tensor.
        grad: whether gradients were recorded.
        surroundings: under which it is called, if not the caller's.
        random: whether it draws random numbers.
        changes: storages that it writes to.
        decides: whether Python code depends on the call's result, which is then no tensor; it is in `result`.
        result: what a call that decides has given.
        owners: modules whose parameters or buffers it reads by name.
    """

    name: str
    function: Callable[..., Any] | None
    module: str | None
    leaves: tuple[Any, ...]
    spec: Any
    gives: tuple[int | None, ...]
    grad: bool = True
    surroundings: Surroundings | None = None
    random: bool = False
    changes: frozenset[int] = frozenset()
    decides: bool = False
    result: Any = None
    owners: tuple[str, ...] = ()

    @functools.cached_property
    def flat(self) -> tuple[int, tuple[str, ...]] | None:
        """How many leaves are positional arguments, and the names of the others; None if an argument has parts."""
        numbers = list(range(len(self.leaves)))
        args, kwargs = pytree.tree_unflatten(numbers, self.spec)
        return (len(args), tuple(kwargs)) if [*args, *kwargs.values()] == numbers else None

    def given(self, leaves: Sequence[Any]) -> tuple[Any, Any]:
        """(args, kwargs) of these leaves: what ``tree_unflatten`` makes, which is slow."""
        if self.flat is None:
            args, kwargs = pytree.tree_unflatten(leaves, self.spec)
            return args, kwargs
        count, names = self.flat
        return leaves[:count], dict(zip(names, leaves[count:], strict=True))

    def reads(self) -> list[int]:
        """Numbers of the tensors that it reads."""
        return [leaf.number for leaf in self.leaves if isinstance(leaf, Read)]

    def states(self) -> list[str]:
        """Names of the parameters and buffers that it reads."""
        return [leaf.name for leaf in self.leaves if isinstance(leaf, State)]


@dataclass
class Graph:
    """A forward pass.

    Attributes:
        device: where it computes.
        calls: in order.
        tensors: by number.
        constants: by number.
        outputs: leaves of what the model gives, with `Read` and `State` in place of tensors.
        spec: of what the model gives.
    """

    device: torch.device
    calls: list[Call] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    constants: list[torch.Tensor] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    spec: Any = None


@dataclass(frozen=True)
class Surrounding:
    """What calls read besides the tensors of the pass: the model's modules, parameters and buffers, and constants.

    Attributes:
        modules: by name.
        state: by name.
        constants: by number.
    """

    modules: Mapping[str, torch.nn.Module]
    state: Mapping[str, torch.Tensor]
    constants: Sequence[torch.Tensor]

    @classmethod
    def of(cls, model: torch.nn.Module, constants: Sequence[torch.Tensor] = ()) -> Surrounding:
        """Those of a model as they are now; a tensor or module with several names is listed under each."""
        modules = dict(model.named_modules(remove_duplicate=False))
        state = {
            f"{name}.{key}" if name else key: tensor
            for name, module in modules.items()
            for key, tensor in (*module._parameters.items(), *module._buffers.items())
            if tensor is not None
        }
        return cls(modules, state, constants)

    @functools.cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.modules)}

    @functools.cached_property
    def _names(self) -> list[str]:
        return list(self.modules)

    def within(self, name: str) -> Iterator[torch.nn.Module]:
        """A module and all that are in it: they follow it in the order in which PyTorch lists them."""
        yield self.modules[name]
        for place in range(self._places[name] + 1, len(self._names)):
            inner = self._names[place]
            if name and not inner.startswith(f"{name}."):
                return
            yield self.modules[inner]

    def parameters(self) -> list[torch.Tensor]:
        """All parameters; one with several names several times."""
        return [p for module in self.modules.values() for p in module._parameters.values() if p is not None]

    def look_up(self, leaf: Any, env: Mapping[int, torch.Tensor]) -> Any:
        """The tensor or value for which a leaf stands."""
        if isinstance(leaf, Read):
            return env[leaf.number]
        if isinstance(leaf, State):
            return self.state[leaf.name]
        return self.constants[leaf.number] if isinstance(leaf, Constant) else leaf


def last_reads(calls: Sequence[Call], kept: Sequence[int]) -> list[tuple[int, ...]]:
    """For each call the tensors that are not needed after it: no later call reads them, and they are not in `kept`."""
    seen, found = set(kept), list[tuple[int, ...]]()
    for call in reversed(calls):
        touched = {*call.reads(), *(n for n in call.gives if n is not None)}
        found.append(tuple(touched - seen))
        seen |= touched
    return found[::-1]


def run(
    calls: Sequence[Call], done_with: Sequence[Sequence[int]], around: Surrounding, env: dict[int, torch.Tensor]
) -> None:
    """Run call after call; `env` holds tensors by number, and each is removed after its last use.

    Raises:
        Otherwise: a call by which the forward pass decides gives another result.
    """
    for call, done in zip(calls, done_with, strict=True):
        args, kwargs = call.given([around.look_up(leaf, env) for leaf in call.leaves])
        target = call.function if call.module is None else around.modules[call.module]
        assert target is not None
        if call.surroundings is None and call.grad:
            result = target(*args, **kwargs)
        else:
            with contextlib.ExitStack() as stack:
                if call.surroundings is not None:
                    stack.enter_context(call.surroundings.again())
                if not call.grad:
                    stack.enter_context(torch.no_grad())
                result = target(*args, **kwargs)
        del args, kwargs
        if call.decides:
            if result != call.result:
                raise Otherwise(call.name)
            continue
        leaves = [result] if isinstance(result, torch.Tensor) else pytree.tree_leaves(result)
        for number, leaf in zip(call.gives, leaves, strict=True):
            if number is not None:
                env[number] = leaf
        del result, leaves
        leaf = None
        for number in done:
            env.pop(number, None)


class Otherwise(Exception):
    """A forward pass that was planned with one decision takes another. Caught where plans are chosen."""
