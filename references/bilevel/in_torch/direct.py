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
def allowed(wanted: bool) -> Iterator[None]:
    """A scope in which `vjp` and `jvp` work directly, if it is wanted and no derivative is being taken around it."""
    outer = forward_ad._current_level >= 0 or torch.compiler.is_compiling() or _transforms()
    token = _ON.set(wanted and not outer)
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
    leaves = _leaves(primals)
    floats = [place for place, leaf in enumerate(leaves) if _is_floating(leaf)]
    with torch.no_grad():  # a view of a dual number is one too; what `detach` gives is not
        for place in floats:
            leaves[place] = leaves[place].view_as(leaves[place]).requires_grad_()
    with torch.enable_grad():
        found = function(*_like(primals, leaves))
    value, aux = found if has_aux else (found, None)
    outputs = _leaves(value)

    def pull(cotangents: Tree) -> Any:
        both = zip(outputs, _leaves(cotangents), strict=True)
        ends = [(y, g) for y, g in both if isinstance(y, torch.Tensor) and y.requires_grad]
        wanted = [leaves[place] for place in floats]
        grads: Any = [None] * len(wanted)
        if ends:
            grads = torch.autograd.grad([y for y, _ in ends], wanted, [g for _, g in ends], allow_unused=True)
        outputs.clear()  # nothing keeps the graph
        pulled: list[Any] = [None] * len(leaves)
        for place, leaf, found in zip(floats, wanted, grads, strict=True):
            pulled[place] = _or_zeros(found, leaf)
        return _like(primals, pulled)

    return (_detached(value), pull, _detached(aux)) if has_aux else (_detached(value), pull)


def _leaves(tree: Tree) -> list[Any]:
    """The leaves of a tree. Lists and tuples are taken apart here, because PyTorch's own function is slow."""
    found: list[Any] = []
    for each in tree if type(tree) in (list, tuple) else (tree,):
        if type(each) is torch.Tensor:
            found.append(each)
        elif type(each) in (list, tuple):
            found += _leaves(each)
        else:
            found += _pytree.tree_leaves(each)
    return found


def _like(tree: Tree, leaves: Sequence[Any]) -> Any:
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
    return _like(tree, [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in _leaves(tree)])


def jvp(function: Callable[..., Any], primals: tuple[Tree, ...], tangents: tuple[Tree, ...]) -> tuple[Tree, Tree]:
    """As `torch.func.jvp`. In the function, `vjp` is that of `torch.func`.

    Autograd records the tangents of what it records, and would keep them. A level of `torch.func` does not see them.
    """
    if not _ON.get() or _transforms():
        found = torch.func.jvp(function, primals, tangents)
        return found[0], found[1]
    moving = list(zip(_leaves(primals), _leaves(tangents), strict=True))
    token = _ON.set(False)
    try:
        with forward_ad.dual_level():
            answer = function(*_like(primals, [forward_ad.make_dual(leaf, slope) for leaf, slope in moving]))
            pairs = [forward_ad.unpack_dual(y) for y in _leaves(answer)]
            values, slopes = [p.primal for p in pairs], [_or_zeros(p.tangent, p.primal) for p in pairs]
            return _like(answer, values), _like(answer, slopes)
    finally:
        _ON.reset(token)
