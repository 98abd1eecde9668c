"""`torch.func.vjp` and `torch.func.jvp` without their levels, for where nothing else transforms the call.

A level of `torch.func` wraps every tensor and looks at every operation. For small models this takes longer than the
operations. Where no transform is running, autograd and its dual numbers give the same numbers directly.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.utils import _pytree

from gradgate.references.contract import Tree

_ON: contextvars.ContextVar[bool] = contextvars.ContextVar("direct", default=False)


@contextlib.contextmanager
def allowed() -> Iterator[None]:
    """A scope in which `vjp` and `jvp` work directly, if no derivative is being taken around it."""
    outer = forward_ad._current_level >= 0 or torch.compiler.is_compiling() or _transforms()
    token = _ON.set(not outer)
    try:
        yield
    finally:
        _ON.reset(token)


def _transforms() -> bool:
    return torch._C._functorch.peek_interpreter_stack() is not None


def vjp(function: Callable[..., Any], *primals: Tree, has_aux: bool = False) -> Any:
    """As `torch.func.vjp`; the pullback can be called once, and its results have no graph."""
    if not _ON.get() or _transforms():
        return torch.func.vjp(function, *primals, has_aux=has_aux)
    leaves = leaves_of(primals)
    floats = [place for place, leaf in enumerate(leaves) if _is_floating(leaf)]
    with torch.no_grad():  # a view of a dual number is one too; what `detach` gives is not
        for place in floats:
            leaves[place] = leaves[place].view_as(leaves[place]).requires_grad_()
    with torch.enable_grad():
        found = function(*tree_like(primals, leaves))
    value, aux = found if has_aux else (found, None)
    outputs = leaves_of(value)

    def pull(cotangents: Tree) -> Any:
        both = zip(outputs, leaves_of(cotangents), strict=True)
        ends = [(y, g) for y, g in both if isinstance(y, torch.Tensor) and y.requires_grad]
        wanted = [leaves[place] for place in floats]
        grads: Any = [None] * len(wanted)
        if ends:
            grads = torch.autograd.grad([y for y, _ in ends], wanted, [g for _, g in ends], allow_unused=True)
        outputs.clear()  # nothing keeps the graph
        pulled: list[Any] = [None] * len(leaves)
        for place, leaf, found in zip(floats, wanted, grads, strict=True):
            pulled[place] = _or_zeros(found, leaf)
        return tree_like(primals, pulled)

    return (_detached(value), pull, _detached(aux)) if has_aux else (_detached(value), pull)


def leaves_of(tree: Tree) -> list[Any]:
    """The leaves of a tree. Lists and tuples are taken apart here, because PyTorch's own function is slow."""
    found: list[Any] = []
    for each in tree if type(tree) in (list, tuple) else (tree,):
        if type(each) is torch.Tensor:
            found.append(each)
        elif type(each) in (list, tuple):
            found += leaves_of(each)
        else:
            found += _pytree.tree_leaves(each)
    return found


def tree_like(tree: Tree, leaves: Sequence[Any]) -> Any:
    """A tree like this one, with other leaves."""
    given = iter(leaves)

    def built(tree: Tree) -> Any:
        if type(tree) is torch.Tensor:
            return next(given)
        if type(tree) in (list, tuple):
            return type(tree)([next(given) if type(each) is torch.Tensor else built(each) for each in tree])
        return _pytree.tree_map(lambda _: next(given), tree)

    return built(tree)


def _is_floating(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.is_floating_point()


def _or_zeros(found: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(like) if found is None else found


def _detached(tree: Tree) -> Tree:
    return tree_like(tree, [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves_of(tree)])


def jvp(function: Callable[..., Any], primals: tuple[Tree, ...], tangents: tuple[Tree, ...]) -> tuple[Tree, Tree]:
    """As `torch.func.jvp`. In the function, `vjp` is that of `torch.func`.

    Autograd records the tangents of what it records, and would keep them. A level of `torch.func` does not see them.
    """
    if not _ON.get() or _transforms():
        found = torch.func.jvp(function, primals, tangents)
        return found[0], found[1]
    moving = list(zip(leaves_of(primals), leaves_of(tangents), strict=True))
    token = _ON.set(False)
    try:
        with forward_ad.dual_level():
            answer = function(*tree_like(primals, [forward_ad.make_dual(leaf, slope) for leaf, slope in moving]))
            pairs = [forward_ad.unpack_dual(y) for y in leaves_of(answer)]
            values, slopes = [p.primal for p in pairs], [_or_zeros(p.tangent, p.primal) for p in pairs]
            return tree_like(answer, values), tree_like(answer, slopes)
    finally:
        _ON.reset(token)


def tangent(function: Callable[..., Any], primals: tuple[Tree, ...], tangents: tuple[Tree, ...]) -> Tree:
    """The second result of `torch.func.jvp`, which cannot be called while the numbers around it are dual.

    There the function is run on dual numbers of the same level.
    """
    if forward_ad._current_level < 0 or _transforms():
        return torch.func.jvp(function, primals, tangents)[1]
    moving = zip(leaves_of(primals), leaves_of(tangents), strict=True)
    with forward_ad._set_fwd_grad_enabled(True):  # an autograd function's rule is called without
        duals = [forward_ad.make_dual(forward_ad.unpack_dual(leaf).primal, slope) for leaf, slope in moving]
        answer = function(*tree_like(primals, duals))
        pairs = [forward_ad.unpack_dual(y) for y in leaves_of(answer)]
        return tree_like(answer, [_or_zeros(p.tangent, p.primal) for p in pairs])
