"""One forward pass through a user's layers, and its backward pass by reversing or by Moonwalk."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree

from gradgate.references.backends import UNIT_ROUNDOFF
from gradgate.references.contract import UsageError
from gradgate.references.invertible.chain import Link, advances, pulled, pushed, retreats
from gradgate.references.invertible.in_torch.phases import components
from gradgate.references.invertible.in_torch.replay import slope, vjp
from gradgate.references.invertible.in_torch.steps import whole
from gradgate.references.invertible.inverse_products import advance_by
from gradgate.references.invertible.refusal import cotangent_trips, round_trips

ADVANCE = advance_by("closed", vjp)
DIGITS = 0.5
"""The share of a dtype's digits that a layer's round trip must keep."""


class Run:
    """What a backward pass needs from its forward pass.

    Attributes:
        steps: the layers, each a call that is made once and repeated.
        method: one of `sequential.METHODS`.
        order: ids of all parameters, in the order in which `Backward` is given them.
        names: id -> name of a parameter.
        visit: takes the gradients; None: `Backward` returns them.
        check: whether the layers are checked after the forward pass.
    """

    def __init__(
        self,
        steps: Sequence[Any],
        method: str,
        order: list[int],
        names: dict[int, str],
        visit: Callable[[dict[str, torch.Tensor]], None] | None,
        coupled: bool,
    ) -> None:
        self.steps, self.method, self.order, self.names = steps, method, order, names
        self.visit, self.coupled, self.check = visit, coupled, False
        trees = [_pytree.tree_flatten(step.parameters) for step in steps]
        self._places = [[id(leaf) for leaf in flat] for flat, _ in trees]
        self._structures = [structure for _, structure in trees]
        self._uses = collections.Counter(place for places in self._places for place in places)
        self._graphs: dict[Any, Any] | None = None

    def forward(self, x: torch.Tensor, parameters: Sequence[torch.Tensor]) -> tuple[torch.Tensor, list[Any]]:
        """Y, and the tensors that the backward pass needs besides the parameters."""
        chain, start = self._chain(parameters), x
        if self.method == "moonwalk_mixed":
            x, self._graphs = pushed(vjp, chain, x)
        else:
            for step in self.steps:
                if step.hands_over:
                    step.saved = x
                x = step(None, x)
        if self.check:
            self._check(chain, start)
        kept = [step.saved for step in self.steps if step.hands_over and step.saved is not None]
        for step in self.steps:
            if step.hands_over:
                step.saved = None  # autograd keeps it, and sees whether it is overwritten
        x = x.view_as(x) if x is start else x
        return x, [x if self.method == "reversible" else start, *kept]

    def backward(
        self, parameters: Sequence[torch.Tensor], kept: Sequence[torch.Tensor], h: torch.Tensor
    ) -> tuple[torch.Tensor, list[Any]]:
        """The cotangents of x and of every parameter; None for a parameter without one."""
        chain = self._chain(parameters)
        if self.method == "reversible":
            return self._reversed(chain, kept, h)
        x = kept[0]
        h0, handed = self._input_gradient(chain, x, h)
        return h0, self._delivered(advances(ADVANCE, chain, x, h0, handed))

    def _reversed(self, chain: list[Link], kept: Sequence[torch.Tensor], h: torch.Tensor) -> tuple[Any, list[Any]]:
        keepers = [step for step in self.steps if step.hands_over]
        for step, tensor in zip(keepers, kept[1:], strict=True):
            step.saved = tensor
        last: list[torch.Tensor] = []

        def walk() -> Iterator[Any]:
            _, h0 = yield from retreats(vjp, chain, kept[0], h)
            last.append(whole(h0))

        grads = self._delivered(walk())
        for step in keepers:
            step.saved = None
        return last[0], grads

    def _input_gradient(self, chain: list[Link], x: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """h_0, and by layer what phase 1 hands over."""
        if self.method == "moonwalk_mixed":
            graphs, self._graphs = self._graphs, None
            return pulled(chain, pushed(vjp, chain, x)[1] if graphs is None else graphs, h)

        def along(x: torch.Tensor) -> torch.Tensor:
            for _, step, p in chain:
                x = step(p, x)
            shares = x * h
            return shares.sum() if self.coupled else shares.flatten(1).sum(1)

        shape = x.shape if self.coupled else x.shape[1:]
        found = components(along, x, shape.numel(), 1, lambda unit: unit.reshape(shape).expand(x.shape), slope)
        return (found if self.coupled else found.T).reshape(x.shape), None

    def _delivered(self, walk: Iterator[Any]) -> list[Any]:
        """The gradients, each summed over all layers that use the parameter; None where `visit` has taken them."""
        sums: dict[int, Any] = {}
        left = collections.Counter(self._uses)
        for key, dp in walk:
            ready = {}
            for place, grad in zip(self._places[key], _pytree.tree_leaves(dp), strict=True):
                if grad is not None:
                    sums[place] = sums[place] + grad if place in sums else grad
                left[place] -= 1
                if self.visit is not None and not left[place] and place in sums:
                    ready[self.names[place]] = sums.pop(place)
            del dp
            if self.visit is not None and ready:
                self.visit(ready)
        return [sums.get(place) for place in self.order]

    def _chain(self, parameters: Sequence[torch.Tensor]) -> list[Link]:
        held = dict(zip(self.order, parameters, strict=True))
        return [
            (i, step, _pytree.tree_unflatten([held[place].detach() for place in self._places[i]], self._structures[i]))
            for i, step in enumerate(self.steps)
        ]

    def _check(self, chain: list[Link], x: torch.Tensor) -> None:
        if self.method == "reversible":
            checked_inverses(chain, x, DIGITS)
            return
        rng = np.random.default_rng(0)

        def draw(y: torch.Tensor) -> torch.Tensor:
            return torch.from_numpy(rng.standard_normal(tuple(y.shape))).to(y)

        cotangent_trips(chain, x, _allowed(x, DIGITS), vjp, draw)


def checked_inverses(chain: list[Link], x: torch.Tensor, digits: float, recorded: bool = True) -> float:
    """`refusal.round_trips` of layers whose calls have been made; unless `recorded`, they are taken to begin now."""
    if not recorded:
        for _, step, _ in chain:
            begun: Any = step
            begun.dtype = begun.dtype or x.dtype
            for call in begun.calls:
                call.record(x)
    return round_trips([link for link in chain if not link[1].hands_over], x, _allowed(x, digits))


def _allowed(x: torch.Tensor, digits: float) -> float:
    """The relative error that a round trip may have; within autocast its dtype's digits count, if they are fewer."""
    dtypes = [x.dtype]
    if torch.is_autocast_enabled(x.device.type):
        dtypes.append(torch.get_autocast_dtype(x.device.type))
    return max(UNIT_ROUNDOFF[str(dtype).removeprefix("torch.")] for dtype in dtypes) ** digits


class Backward(torch.autograd.Function):
    """The layers as one node of autograd's graph."""

    @staticmethod
    def forward(ctx: Any, run: Run, x: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        """x -> y."""
        y, kept = run.forward(x, parameters)
        ctx.run, ctx.count = run, len(parameters)
        ctx.save_for_backward(*parameters, *kept)
        return y

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        """The cotangent of y -> those of x and of the parameters."""
        [h] = cotangents
        saved = ctx.saved_tensors
        with torch.no_grad():
            kept = [leaf.detach() for leaf in saved[ctx.count :]]
            dx, grads = ctx.run.backward(saved[: ctx.count], kept, h)
        found = [dx if ctx.needs_input_grad[1] else None, *grads]
        if torch.is_grad_enabled():
            there = [i for i, grad in enumerate(found) if grad is not None]
            for i, grad in zip(there, _Once.apply(len(there), *(found[i] for i in there), h, *saved), strict=True):
                found[i] = grad
        return (None, *found)


class _Once(torch.autograd.Function):
    """Hands gradients on unchanged; they cannot be differentiated again."""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: torch.Tensor) -> Any:
        """The first `count` tensors, which depend on the others."""
        return tuple(leaf.detach() for leaf in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """Refuse: there is no second derivative.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            "a gradient of InvertibleSequential cannot be differentiated again; for second derivatives use "
            "torch.nn.Sequential of the same layers"
        )
