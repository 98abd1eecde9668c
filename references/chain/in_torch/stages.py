"""One stage of a chain in PyTorch: run it plainly, record it, run a recording backward. Nothing else touches autograd.

A `Value` passes from stage to stage: one tensor or a tuple of tensors. A stage may hand on some tensors of a tuple
unchanged, and some may need no gradient.

A recording keeps alive what autograd keeps, and nothing more: it holds edges of the graph, and neither the stage's
input nor its output. A leaf would be held by its own AccumulateGrad node. So the input enters through a separate
function, whose node holds nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

Value: TypeAlias = torch.Tensor | tuple[torch.Tensor, ...]
"""What passes from one stage to the next."""


def parts(value: Value) -> tuple[torch.Tensor, ...]:
    """The tensors of a value."""
    return value if isinstance(value, tuple) else (value,)


def each(function: Callable[[torch.Tensor], torch.Tensor], value: Value) -> Value:
    """A value of the same kind, with every tensor mapped."""
    return tuple(map(function, value)) if isinstance(value, tuple) else function(value)


def nbytes(value: Value) -> int:
    """Bytes of the storages of a value, each counted once."""
    storages = {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in parts(value)}
    return int(sum(storages.values()))


@dataclass(frozen=True)
class Stage:
    """One stage of a chain.

    Attributes:
        run: x_{l-1} -> x_l, one tensor to one tensor with a storage of its own; or a tuple of tensors to another tuple,
            where every tensor that is not one of the input's has a storage of its own.
        parameters: tensors besides the input that may need a gradient, or that are read and have to stay as they are;
            each is listed once.
        modules: the modules within, whose running statistics must be updated only once.
        name: for messages.
        layers: the modules that `run` itself calls.
        needs: of each tensor of the input, whether it needs a gradient; None: all tensors of floating or complex
            numbers do.
        gives: the same of the output.
        graded: whether it gives other bits where no gradient is recorded, so that a run that records nothing has to
            build a graph too, and drop it.
    """

    run: Callable[[Any], Any]
    parameters: tuple[torch.Tensor, ...] = ()
    modules: tuple[torch.nn.Module, ...] = ()
    name: str = "stage"
    layers: tuple[torch.nn.Module, ...] = ()
    needs: tuple[bool, ...] | None = None
    gives: tuple[bool, ...] | None = None
    graded: bool = False

    @classmethod
    def of(cls, layers: Sequence[torch.nn.Module], name: str, clone: bool = False) -> Stage:
        """The layers one after another; with `clone`, on a copy of the input, because the first layer overwrites it."""
        modules = _within(layers)
        parameters = tuple({id(p): p for layer in layers for p in layer.parameters()}.values())

        def run(x: torch.Tensor) -> torch.Tensor:
            if clone:
                x = x.clone()
            for layer in layers:
                x = layer(x)
            return x

        return cls(run, parameters, modules, name, tuple(layers))

    def rebuilt(self) -> bool:
        """Whether modules within have been exchanged, added or removed since the stage was made."""
        return _within(self.layers) != self.modules if self.layers else False


def _within(layers: Sequence[torch.nn.Module]) -> tuple[torch.nn.Module, ...]:
    return tuple({id(m): m for layer in layers for m in layer.modules()}.values())


@dataclass(frozen=True)
class Recording:
    """What is kept of a recorded stage: where its graph ends and begins, and the parameters in it.

    Attributes:
        exits: where the graph ends, at each tensor of x_l; None where that needs no gradient.
        entries: where it begins, at each tensor of x_{l-1}; None where that needs no gradient.
        parameters: those that need a gradient.
    """

    exits: tuple[GradientEdge | None, ...]
    entries: tuple[Entry | None, ...]
    parameters: tuple[torch.Tensor, ...]

    def backward(
        self,
        cotangents: Sequence[torch.Tensor | None],
        hook: Callable[[torch.Tensor], torch.Tensor] | None = None,
        retain: bool = False,
    ) -> tuple[tuple[torch.Tensor | None, ...], dict[int, torch.Tensor]]:
        """Cotangents of x_l -> those of x_{l-1}, and of each parameter by its id; frees the recording unless `retain`.

        The parameters' own hooks do not run: a hook must see the gradient of the whole loss, once, and here only a
        stage's share arrives. `hook` takes each gradient that arrives, and gives the one that is returned in its place.
        """
        wanted = [p for p in self.parameters if p.requires_grad]  # one may have been frozen since
        inputs = [*wanted, *self._entered()]
        ends, arriving = self._roots(cotangents)
        if not ends or not inputs:
            return (None,) * len(self.entries), {}
        with _only_hook(wanted, hook):
            found = torch.autograd.grad(ends, inputs, arriving, retain_graph=retain, allow_unused=True)
        return self._arrived(), {id(p): g for p, g in zip(wanted, found, strict=False) if g is not None}

    def accumulate(
        self, cotangents: Sequence[torch.Tensor | None], parameters: Sequence[torch.Tensor], retain: bool = False
    ) -> tuple[torch.Tensor | None, ...]:
        """The same, but each gradient is added to its parameter's ``grad`` as soon as it exists, and then freed."""
        ends, arriving = self._roots(cotangents)
        inputs = [*parameters, *self._entered()]
        if ends and inputs:
            torch.autograd.backward(ends, arriving, retain_graph=retain, inputs=inputs)
        return self._arrived()

    def _roots(self, cotangents: Sequence[torch.Tensor | None]) -> tuple[list[GradientEdge], list[torch.Tensor]]:
        """The ends at which a cotangent arrives, and the cotangents."""
        both = [(e, c) for e, c in zip(self.exits, cotangents, strict=True) if e is not None and c is not None]
        return [e for e, _ in both], [c for _, c in both]

    def _entered(self) -> list[torch.Tensor]:
        return [entry.token for entry in self.entries if entry is not None]

    def _arrived(self) -> tuple[torch.Tensor | None, ...]:
        return tuple(e.cotangents.pop() if e is not None and e.cotangents else None for e in self.entries)


class Entry:
    """Where the cotangent of a recorded stage's input arrives.

    Attributes:
        token: a leaf that makes the engine run the node; it never gets a gradient itself.
        cotangents: the one that arrived, or none.
    """

    def __init__(self) -> None:
        self.token, self.cotangents = torch.empty(0, requires_grad=True), list[torch.Tensor]()


class _Enter(torch.autograd.Function):
    """The input of a recorded stage: a tensor with a node of its own, which takes the cotangent that arrives."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, token: torch.Tensor, cotangents: list[torch.Tensor]) -> torch.Tensor:
        ctx.cotangents = cotangents
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> Any:
        ctx.cotangents.append(cotangents[0])
        return None, None, None


@contextlib.contextmanager
def _only_hook(
    parameters: Sequence[torch.Tensor], hook: Callable[[torch.Tensor], torch.Tensor] | None
) -> Iterator[None]:
    """A scope in which the parameters have only this hook, or no hook."""
    kept = [(p._backward_hooks, dict(p._backward_hooks)) for p in parameters if p._backward_hooks]
    for hooks, _ in kept:
        hooks.clear()
    handles = [p.register_hook(hook) for p in parameters] if hook else []
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for hooks, own in kept:
            hooks.update(own)


def plain(stage: Stage, x: Value) -> Any:
    """x_{l-1} -> x_l, nothing recorded."""
    if stage.graded:
        return record(stage, x)[0]
    with torch.no_grad():
        return stage.run(x)


def record(stage: Stage, x: Any, needs_input_grad: bool = True) -> tuple[Any, Recording]:
    """x_{l-1} -> x_l, detached, and the recording."""
    with torch.enable_grad():
        entered, entries = list[torch.Tensor](), list[Entry | None]()
        for n, t in enumerate(parts(x)):
            t, entry = t.detach(), None
            needs = needs_input_grad if stage.needs is None else stage.needs[n]
            if needs and (t.is_floating_point() or t.is_complex()):
                entry = Entry()
                t = _Enter.apply(t, entry.token, entry.cotangents)
            entered.append(t)
            entries.append(entry)
        y = stage.run(tuple(entered) if isinstance(x, tuple) else entered[0])
        parameters = tuple(p for p in stage.parameters if p.requires_grad)
        exits = tuple(get_gradient_edge(t) if t.requires_grad else None for t in parts(y))
        return each(torch.Tensor.detach, y), Recording(exits, tuple(entries), parameters)
