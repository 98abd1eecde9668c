"""Rematerialisation that composes with `torch.func`, which `torch.utils.checkpoint` does not."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree

from gradgate.references.bilevel.in_torch import direct


def remat(layer: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A function with the result and derivatives of `layer`, for which a reverse pass stores only the inputs.

    Args:
        layer: a function of trees of floating tensors. Differentiation treats what it closes over as constant.

    Returns:
        The function.

    Stores:
        The inputs.

    Computes:
        One more evaluation of `layer` in the reverse pass; none in forward mode.
    """

    def rematerialised(*inputs: Any) -> torch.Tensor:
        if all(isinstance(leaf, torch.Tensor) for leaf in inputs):
            answer: torch.Tensor = _Remat.apply(layer, *inputs)
            return answer
        flat, structure = _pytree.tree_flatten(inputs)

        def run(*leaves: torch.Tensor) -> torch.Tensor:  # keeps no input: its graph would stay in memory
            return layer(*_pytree.tree_unflatten(list(leaves), structure))

        found: torch.Tensor = _Remat.apply(run, *flat)
        return found

    return rematerialised


class _Remat(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(run: Callable[..., torch.Tensor], *flat: torch.Tensor) -> torch.Tensor:
        return run(*flat)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.run, *flat = inputs
        ctx.save_for_backward(*flat)
        ctx.save_for_forward(*flat)

    @staticmethod
    def backward(ctx: Any, cotangent: Any) -> Any:
        _, pull = direct.vjp(ctx.run, *living(ctx))
        return None, *pull(cotangent)

    @staticmethod
    def jvp(ctx: Any, _: None, *tangents: Any) -> Any:
        return direct.tangent(ctx.run, living(ctx), tangents)


def living(ctx: Any) -> tuple[torch.Tensor, ...]:
    """The tensors that an autograd function saved, as the transforms that are still running see them.

    A VJP may be called after the level that recorded it has been left. What was saved there is then a dead wrapper. An
    operation unwraps it, but a further transform does not; so one operation is applied here, which copies nothing.
    """
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    return tuple(leaf.view_as(leaf) if wrapped(leaf) else leaf for leaf in ctx.saved_tensors)


_Remat.forward.__signature__ = inspect.signature(_Remat.forward)  # type: ignore[attr-defined] # else read in each call
