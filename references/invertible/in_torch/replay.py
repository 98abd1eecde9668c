"""A user's module, called once, and called again in the same state: random numbers, buffers, modes and autocast.

The second call is for derivatives alone. It leaves no trace: not in buffers, not in a generator, not in parameters.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree

from gradgate.references.contract import Tree, UsageError


class Call:
    """One call of a module, made and then repeated.

    Attributes:
        module: the user's.
        name: says in messages which module it is.
        made: whether the call has been made.
    """

    def __init__(self, module: nn.Module, name: str) -> None:
        self.module, self.name, self.made = module, name, False
        self._buffers: dict[str, torch.Tensor] = {}
        self._versions: dict[str, int] = {}
        self._generators: list[tuple[Any, torch.Tensor]] = []

    @property
    def parameters(self) -> dict[str, torch.Tensor]:
        """The parameters that require a gradient, by their names in the module."""
        return {name: leaf for name, leaf in self.module.named_parameters() if leaf.requires_grad}

    def __call__(self, p: Tree, x: torch.Tensor) -> Any:
        """First the call itself, later its repetition. `p` replaces the parameters; None: the module's own are used."""
        return self.again(p, x) if self.made else self._first(p, x)

    def record(self, x: torch.Tensor) -> None:
        """Save the state in which the call begins."""
        self._modes = [(part, part.training) for part in self.module.modules()]
        self._autocast = {kind: _autocast(kind) for kind in ("cpu", x.device.type)}
        self._buffers = {name: leaf.clone() for name, leaf in self.module.named_buffers()}
        self._generators = [(generator, generator.get_state()) for generator in _generators(x.device)]
        self.made = True

    def _first(self, p: Tree, x: torch.Tensor) -> Any:
        version, held = x._version, dict(self.module.named_buffers())
        versions = {name: leaf._version for name, leaf in held.items()}
        self.record(x)
        with self._autocasting():
            y = self.module(x) if p is None else torch.func.functional_call(self.module, p, (x,))
        if x._version != version:
            raise UsageError(
                f"{self.name} changes its input in place, and the layers before it need that input; legal: layers that "
                "leave their input alone, such as with inplace=False"
            )
        now = dict(self.module.named_buffers())
        for name, leaf in held.items():
            if now.get(name) is leaf and leaf._version == versions[name]:  # it is unchanged, so no copy is needed
                self._buffers[name], self._versions[name] = leaf, leaf._version
        drew = [not np.array_equal(generator.get_state(), state) for generator, state in self._generators]
        self._generators = self._generators if any(drew) else []
        return y

    def again(self, p: Tree, *args: torch.Tensor, method: str = "") -> Any:
        """Repeat the call with the parameters `p`, or call another method of the module in the same state.

        Raises:
            UsageError: a buffer that the call reads has been overwritten since.
        """
        for name, version in self._versions.items():
            if self._buffers[name]._version != version:
                raise UsageError(
                    f"{self.name}: its buffer {name} was overwritten between the forward and the backward pass, which "
                    "runs the layer once more; run the backward pass first"
                )
        copies = {name: leaf.clone() for name, leaf in self._buffers.items()}  # batch norm changes its own unseen
        given = {f"inner.{name}": leaf for name, leaf in {**copies, **(p or {})}.items()}
        with self._as_it_was():
            return torch.func.functional_call(_Calling(self.module, method), given, args)

    @contextlib.contextmanager
    def _as_it_was(self) -> Iterator[None]:
        others = [(part, part.training) for part, mode in self._modes if part.training != mode]
        states = [(generator, generator.get_state()) for generator, _ in self._generators]
        try:
            for part, mode in others:
                part.training = not mode
            for generator, state in self._generators:
                generator.set_state(state)
            with self._autocasting():
                yield
        finally:
            for part, mode in others:
                part.training = mode
            for generator, state in states:
                generator.set_state(state)

    # The cache is off: it would keep a cast of every layer's weights until the user's autocast ends.
    @contextlib.contextmanager
    def _autocasting(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for kind, (enabled, dtype) in self._autocast.items():
                stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=False))
            yield


class _Calling(nn.Module):
    """Calls a module, or one of its methods, so that `torch.func.functional_call` can exchange its parameters."""

    def __init__(self, inner: nn.Module, method: str) -> None:
        super().__init__()
        self.inner, self.method = inner, method

    def forward(self, *args: torch.Tensor) -> Any:
        return getattr(self.inner, self.method)(*args) if self.method else self.inner(*args)


def _autocast(kind: str) -> tuple[bool, torch.dtype]:
    return torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)


def _generators(device: torch.device) -> Sequence[Any]:
    """The generators from which a module on the device may draw: the CPU's, and the device's own."""
    found: list[Any] = [torch.default_generator]
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        found.append(torch.cuda.default_generators[index])
    return found


def vjp(function: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """As `torch.func.vjp`, but by autograd's own graph: modules with hooks and any `autograd.Function` work.

    Args:
        function: of trees of floating tensors; gives a tensor or a tuple of tensors.
        primals: trees; every tensor in them gets a gradient.

    Returns:
        The value, without a graph, and ``pull``: a cotangent of the value -> a cotangent per primal. ``pull`` can be
        called once. Where the value does not depend on a parameter, a leaf of a dict, that parameter gets None, as from
        autograd. A primal that is a tensor gets zeros.
    """
    flat, structure = _pytree.tree_flatten(primals)
    start = torch.zeros((), requires_grad=True)
    with torch.enable_grad():
        given: list[Any] = [_Entry.apply(start, leaf.detach()) for leaf in flat]
    into = [torch.autograd.graph.get_gradient_edge(leaf) for leaf in given]
    alone = [primal.shape if isinstance(primal, torch.Tensor) else None for primal in primals]
    with torch.enable_grad():
        value = function(*_pytree.tree_unflatten(given, structure))
    outputs = [
        (torch.autograd.graph.get_gradient_edge(out), out.dtype) if out.requires_grad else None
        for out in _pytree.tree_leaves(value)
    ]

    def pull(cotangents: Any) -> tuple[Any, ...]:
        hs = _pytree.tree_leaves(cotangents)
        asked = [(out[0], h.to(out[1])) for out, h in zip(outputs, hs, strict=True) if out is not None]
        found: Sequence[Any] = [None] * len(into)
        if asked and into:
            found = torch.autograd.grad([out for out, _ in asked], into, [h for _, h in asked], allow_unused=True)
        filled = _pytree.tree_unflatten(list(found), structure)
        return tuple(
            hs[0].new_zeros(shape) if shape is not None and part is None else part
            for shape, part in zip(alone, filled, strict=True)
        )

    return _pytree.tree_map(lambda leaf: leaf.detach(), value), pull


class _Entry(torch.autograd.Function):
    """Where a graph begins. Unlike a leaf, it holds no tensor: the graph keeps an input if a derivative needs it."""

    @staticmethod
    def forward(ctx: Any, start: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """X itself."""
        return x.detach()

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """No gradient: nothing before the entry is differentiated."""
        return None, None


def slope(function: Callable[[torch.Tensor], torch.Tensor], at: torch.Tensor, along: torch.Tensor) -> torch.Tensor:
    """A JVP by dual numbers: as `torch.func.jvp`, for modules that change copies of buffers in place."""
    from torch.autograd import forward_ad

    with forward_ad.dual_level():
        found = forward_ad.unpack_dual(function(forward_ad.make_dual(at, along)))
        return torch.zeros_like(found.primal) if found.tangent is None else found.tangent.clone()
