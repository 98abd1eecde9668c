"""Calling a PyTorch function on another device, with inputs and cotangents that are on the CPU.

The function gets copies. So that an input or a cotangent that it overwrites is seen, as it would be on one device, the
changed numbers are copied back into the original after the forward pass and after each backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree


class _Copies:
    """Copies on a device, with their originals and with what was copied."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._made: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []

    def copied(self, leaf: torch.Tensor) -> torch.Tensor:
        """A differentiable copy of a tensor on the device, whose later changes `settle` copies back."""
        if torch._C._functorch.is_functorch_wrapped_tensor(leaf):
            return leaf.to(self.device, copy=True)
        found: torch.Tensor = _There.apply(leaf, self)
        return found

    def place(self, leaf: torch.Tensor) -> torch.Tensor:
        """A copy with the same strides, of what lies between the elements too."""
        original = leaf.detach()
        if not original.numel():
            return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device=self.device)
        span = 1 + sum((size - 1) * stride for size, stride in zip(leaf.shape, leaf.stride(), strict=True))
        row = original.as_strided((span,), (1,))
        copy = row.to(self.device, copy=True)
        self._made.append((row, copy, copy.clone()))
        return copy.as_strided(leaf.shape, leaf.stride())

    def settle(self) -> None:
        """Copy what has changed into the originals."""
        for place, (original, copy, before) in enumerate(self._made):
            if not torch.equal(copy, before):
                original.data.copy_(copy)  # without a new version, like a kernel's store
                self._made[place] = original, copy, copy.clone()


class _There(torch.autograd.Function):
    """A tensor of the CPU on a device, by `_Copies.place`; its gradient comes back to the CPU."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor, copies: _Copies) -> torch.Tensor:
        ctx.copies = copies
        return copies.place(leaf)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradients[0].to("cpu"), None

    @staticmethod
    def jvp(ctx: Any, *tangents: torch.Tensor) -> torch.Tensor:
        return tangents[0].to(ctx.copies.device, copy=True)


class _Back(torch.autograd.Function):
    """A tensor of a device on the CPU; its cotangent is copied to the device by `_Copies.copied`."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor, copies: _Copies) -> torch.Tensor:
        ctx.copies = copies
        return leaf.to("cpu", copy=True)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> tuple[torch.Tensor, None]:
        [cotangent] = cotangents
        return ctx.copies.copied(cotangent), None

    @staticmethod
    def jvp(ctx: Any, *tangents: torch.Tensor) -> torch.Tensor:
        return tangents[0].to("cpu", copy=True)


def call(device: str, function: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """What a function returns on a device, with its tensors on the CPU.

    Args:
        device: such as ``cuda``.
        arguments: trees of tensors on the CPU and of anything else.
        keywords: passed on unchanged.
    """
    copies = _Copies(device)  # the outputs keep it, for what a backward pass overwrites
    answer = function(*_pytree.tree_map_only(torch.Tensor, copies.copied, list(arguments)), **keywords)
    copies.settle()

    def back(leaf: torch.Tensor) -> torch.Tensor:
        if torch._C._functorch.is_functorch_wrapped_tensor(leaf):
            return leaf.to("cpu")
        found: torch.Tensor = _Back.apply(leaf, copies)
        found.copies = copies  # type: ignore[attr-defined]
        return found

    return _pytree.tree_map_only(torch.Tensor, back, answer)
