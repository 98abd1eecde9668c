"""Modules of PyTorch as functions of their parameters and buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree

from gradgate.references.backends import to_numpy
from gradgate.suites.pairs.modules_bound import Bound, built

INITIAL_SEED = 0
"""Seed of PyTorch's generator while a module is built."""


class TorchModule(Bound):
    """A torch.nn.Module that is called with given parameters and buffers.

    They replace the module's own and stay there until the next call: a backward pass that calls the module again, as
    `torch.utils.checkpoint` does, must find them. Within torch.func, tensors are valid only during the transformation,
    so `torch.func.functional_call` puts the former ones back.

    Attributes:
        module: as it was built, in float32 on the CPU. Python attributes that a call changes stay changed, as in use.
        initial: name -> buffer, or parameter that requires no gradient, as it was built.
    """

    def __init__(self, module: nn.Module, compiled: bool = False) -> None:
        self.module = module
        self.forward = module.forward
        own = dict(module.named_parameters())
        self.parameters = {name: to_numpy(leaf) for name, leaf in own.items() if leaf.requires_grad}
        rest = {name: leaf for name, leaf in own.items() if not leaf.requires_grad} | dict(module.named_buffers())
        self.initial = {name: leaf.detach().clone() for name, leaf in rest.items()}
        self.state = {name: to_numpy(leaf) for name, leaf in self.initial.items()}
        self._places = _places(module)
        self._run = torch.compile(module, backend="aot_eager") if compiled else module
        self._recorder = _Recorder(module, self._run)

    def call(
        self,
        parameters: Mapping[str, Any],
        state: Mapping[str, Any],
        arguments: Sequence[Any],
        keywords: Mapping[str, Any],
        training: bool | None,
        key: Any = None,
    ) -> tuple[Any, dict[str, Any]]:
        """See `Bound.call`; if `training` is None, the module stays in its mode."""
        like = next((leaf for leaf in (*parameters.values(), *arguments) if _floating(leaf)), None)
        given = {**parameters, **{name: self._buffer(name, state, like) for name in self.initial}}
        told = dict(keywords)
        if training is not None:
            told |= self.mode(training)
            self.module.train(training)
        if like is not None and torch._C._functorch.is_functorch_wrapped_tensor(like):
            inner = {f"inner.{name}": leaf for name, leaf in given.items()}
            answer, after = torch.func.functional_call(self._recorder, inner, tuple(arguments), told)
            return answer, {name: leaf for name, leaf in after.items() if name in self.initial}
        for name, leaf in given.items():
            for held, last in self._places[name]:
                held[last] = leaf
        if self._run is self.module:  # torch.compile takes leaves alone
            arguments = _pytree.tree_map(_no_leaf, list(arguments))
        answer = self._run(*arguments, **told)
        firsts = {name: self._places[name][0] for name in self.initial}
        return answer, {name: held[last] for name, (held, last) in firsts.items() if held[last] is not None}

    def _buffer(self, name: str, state: Mapping[str, Any], like: Any) -> Any:
        """A copy that the call may change; within a vmap one for each lane, because batch norm needs that."""
        leaf = state.get(name, self.initial[name])
        if like is None or not leaf.is_floating_point():
            return leaf.clone()
        leaf = leaf.to(like.dtype, copy=True)
        inside = torch._C._functorch.is_functorch_wrapped_tensor(like)
        return leaf + torch.zeros_like(like.detach().reshape(-1)[:1]).sum() if inside else leaf


def _places(module: nn.Module) -> dict[str, list[tuple[dict[str, Any], str]]]:
    """Name of a parameter or buffer -> the dicts that hold it, with its key: several where weights are tied."""
    found: dict[int, list[tuple[dict[str, Any], str]]] = {}
    for part in module.modules():
        for held in (part._parameters, part._buffers):
            for last, leaf in held.items():
                if leaf is not None:
                    found.setdefault(id(leaf), []).append((held, last))
    named = (*module.named_parameters(), *module.named_buffers())
    return {name: found[id(leaf)] for name, leaf in named}


class _Recorder(nn.Module):
    """Calls a module, and also returns its buffers, whether they were changed in place or replaced."""

    def __init__(self, inner: nn.Module, run: Callable[..., Any]) -> None:
        super().__init__()
        self.inner = inner
        self.__dict__["run"] = run  # not a submodule, so that each parameter has one name

    def forward(self, *arguments: Any, **keywords: Any) -> tuple[Any, dict[str, Any]]:
        answer = self.__dict__["run"](*arguments, **keywords)
        return answer, dict(self.inner.named_buffers()) | dict(self.inner.named_parameters())


def fresh(who: str, builder: Callable[..., Any], keywords: Mapping[str, Any]) -> nn.Module:
    """A new module of a builder; global random state is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(INITIAL_SEED)
        module: nn.Module = built(who, builder, keywords)
    return module


def count(builder: Callable[..., Any], keywords: Mapping[str, Any]) -> int:
    """How many numbers the parameters of a module have; they are not drawn if the module can be built without."""
    try:
        with torch.device("meta"):
            module = builder(**keywords)
    except Exception:  # a module that reads numbers while it is built needs them
        module = fresh("the reference", builder, keywords)
    return sum(leaf.numel() for leaf in module.parameters())


def _no_leaf(leaf: Any) -> Any:
    """A view, as if another layer came before the module: memory trackers cannot hook into a leaf under a module."""
    asked = isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.is_leaf
    return leaf.view_as(leaf) if asked and torch.is_grad_enabled() else leaf


def _floating(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
