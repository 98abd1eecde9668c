"""One stage of a chain in PyTorch: run it plainly, record it, run a recording backward. Nothing else touches autograd.

What a recording keeps alive is what autograd keeps, and nothing more: it holds edges of the graph, and neither the
stage's input nor its output. A leaf would be held by its own AccumulateGrad node; the input therefore enters through a
function of its own whose node holds nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge


@dataclass(frozen=True)
class Stage:
    """One stage of a chain.

    Attributes:
        run: x_{l-1} -> x_l, one tensor to one tensor whose storage is its own.
        parameters: tensors besides the input that may need a gradient, each once.
        modules: those within, whose running statistics are to be updated once.
        name: for messages.
        layers: those of the modules that `run` calls.
    """

    run: Callable[[torch.Tensor], torch.Tensor]
    parameters: tuple[torch.Tensor, ...] = ()
    modules: tuple[torch.nn.Module, ...] = ()
    name: str = "stage"
    layers: tuple[torch.nn.Module, ...] = ()

    @classmethod
    def of(cls, layers: Sequence[torch.nn.Module], name: str, clone: bool = False) -> Stage:
        """The layers one after another; with `clone` on a copy of the input, which the first of them overwrites."""
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
        exit: where the graph ends, at x_l; None if nothing in it needs a gradient.
        entry: where it begins, at x_{l-1}; None if that needs no gradient.
        parameters: those that need one.
    """

    exit: GradientEdge | None
    entry: Entry | None
    parameters: tuple[torch.Tensor, ...]

    def backward(
        self,
        cotangent: torch.Tensor,
        hook: Callable[[torch.Tensor], torch.Tensor] | None = None,
        retain: bool = False,
    ) -> tuple[torch.Tensor | None, dict[int, torch.Tensor]]:
        """Cotangent of x_l -> that of x_{l-1}, and of each parameter by its id; frees the recording unless `retain`.

        The parameters' own hooks do not run: they are promised the gradient of the loss, once, and here a stage's share
        arrives. `hook` takes each that arrives, and gives what is returned in its place.
        """
        wanted = [p for p in self.parameters if p.requires_grad]  # one may have been frozen since
        inputs = [*wanted, *self._entered()]
        if self.exit is None or not inputs:
            return None, {}
        with _only_hook(wanted, hook):
            found = torch.autograd.grad([self.exit], inputs, [cotangent], retain_graph=retain, allow_unused=True)
        return self._arrived(), {id(p): g for p, g in zip(wanted, found, strict=False) if g is not None}

    def accumulate(
        self, cotangent: torch.Tensor, parameters: Sequence[torch.Tensor], retain: bool = False
    ) -> torch.Tensor | None:
        """The same, but each gradient is added to its parameter's ``grad`` as soon as it is there, then let go."""
        if self.exit is None:
            return None
        inputs = [*parameters, *self._entered()]
        if inputs:
            torch.autograd.backward([self.exit], [cotangent], retain_graph=retain, inputs=inputs)
        return self._arrived()

    def _entered(self) -> list[torch.Tensor]:
        return [self.entry.token] if self.entry is not None else []

    def _arrived(self) -> torch.Tensor | None:
        return self.entry.cotangents.pop() if self.entry is not None and self.entry.cotangents else None


class Entry:
    """Where the cotangent of a recorded stage's input arrives.

    Attributes:
        token: a leaf that makes the engine run the node; its own gradient is never given.
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
    """A scope in which the parameters have this hook or none."""
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


def plain(stage: Stage, x: torch.Tensor) -> torch.Tensor:
    """x_{l-1} -> x_l, nothing recorded."""
    with torch.no_grad():
        return stage.run(x)


def record(stage: Stage, x: torch.Tensor, needs_input_grad: bool = True) -> tuple[torch.Tensor, Recording]:
    """x_{l-1} -> x_l, detached, and the recording."""
    with torch.enable_grad():
        x, entry = x.detach(), None
        if needs_input_grad and (x.is_floating_point() or x.is_complex()):
            entry = Entry()
            x = _Enter.apply(x, entry.token, entry.cotangents)
        y = stage.run(x)
        parameters = tuple(p for p in stage.parameters if p.requires_grad)
        end = get_gradient_edge(y) if y.requires_grad else None
        return y.detach(), Recording(end, entry, parameters)
