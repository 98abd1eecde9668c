"""Counts of evaluations, JVPs and VJPs of a function, such as a layer: the work that papers state their claims in.

In JAX the function's arguments and results pass through a marker that does nothing at run time; differentiation
turns that of the results into markers of JVPs and VJPs, and ``work.count`` adds them up, loops multiplied in. In
PyTorch a counter runs along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any

MARKER = "gradgate_mark"


@dataclass
class Calls:
    """How often a function was evaluated, and pushed forward or pulled back as a linear map.

    Under vmap one batched call counts once. A second derivative counts as JVPs or VJPs of the first one's.
    """

    evaluations: int = 0
    jvps: int = 0
    vjps: int = 0


def marked(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a JAX function with the same results whose calls ``work.count`` reports under ``name``.

    An evaluation counts where the function is entered, a recomputation under ``jax.checkpoint`` included; a VJP
    where the cotangent of any floating-point result is used, whichever inputs it is pulled back to. FLOPs don't
    change, but a marked value may be saved twice: measure bytes of the program without markers.
    """

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = _through((args, kwargs), name, "evaluations")
        return _through(function(*args, **kwargs), name, "results")

    return wrapper


def _through(values: Any, name: str, kind: str) -> Any:
    """Pass the floating-point arrays of a tree through the marker."""
    import jax

    def is_marked(leaf: Any) -> bool:
        return hasattr(leaf, "dtype") and jax.dtypes.issubdtype(leaf.dtype, jax.numpy.inexact)

    leaves, tree = jax.tree.flatten(values)
    places = [i for i, leaf in enumerate(leaves) if is_marked(leaf)]
    if places:
        marked_leaves = _marker().bind(*(leaves[i] for i in places), name=name, kind=kind)
        for place, leaf in zip(places, marked_leaves, strict=True):
            leaves[place] = leaf
    return jax.tree.unflatten(tree, leaves)


@contextmanager
def torch_calls() -> Iterator[tuple[dict[str, Calls], Callable[[Callable[..., Any], str], Callable[..., Any]]]]:
    """Count in PyTorch: yield the counts by name, and a ``marked`` that adds to them while the program runs."""
    counts: dict[str, Calls] = {}

    def mark(function: Callable[..., Any], name: str) -> Callable[..., Any]:
        import torch
        from torch.utils import _pytree

        calls = counts.setdefault(name, Calls())

        @wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            calls.evaluations += 1
            leaves, tree = _pytree.tree_flatten(function(*args, **kwargs))
            places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
            if places:
                through = _torch_marker().apply(calls, *(leaves[i] for i in places))
                for place, leaf in zip(places, through, strict=True):
                    leaves[place] = leaf
            return _pytree.tree_unflatten(leaves, tree)

        return wrapper

    yield counts, mark


@cache
def _marker() -> Any:
    """Build the JAX primitive: the identity, whose derivative is a marker of another kind."""
    from jax.extend.core import Primitive
    from jax.interpreters import ad, batching, mlir

    marker = Primitive(MARKER)
    marker.multiple_results = True
    marker.def_impl(lambda *values, **_: list(values))
    marker.def_abstract_eval(lambda *avals, **_: list(avals))
    mlir.register_lowering(marker, lambda _, *values, **__: list(values))

    def present(values: Sequence[Any], name: str, kind: str) -> list[Any]:
        """Mark the tangents or cotangents that are not known to be zero."""
        places = [i for i, value in enumerate(values) if type(value) is not ad.Zero]
        out = list(values)
        if places:
            through = marker.bind(*(values[i] for i in places), name=name, kind=kind)
            for place, value in zip(places, through, strict=True):
                out[place] = value
        return out

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], name: str, kind: str) -> tuple[list[Any], list[Any]]:
        out = marker.bind(*primals, name=name, kind=kind)
        return out, list(tangents) if kind == "evaluations" else present(tangents, name, "jvps")

    def transpose(cotangents: Sequence[Any], *_: Any, name: str, kind: str) -> list[Any]:
        return present(cotangents, name, "vjps")

    def batch(values: Sequence[Any], axes: Sequence[Any], **params: str) -> tuple[list[Any], Sequence[Any]]:
        return marker.bind(*values, **params), axes

    ad.primitive_jvps[marker] = jvp
    ad.primitive_transposes[marker] = transpose
    batching.primitive_batchers[marker] = batch
    return marker


@cache
def _torch_marker() -> Any:
    """Build the PyTorch function: the identity, which counts when it is pulled back or pushed forward."""
    import torch

    class Marker(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(calls: Calls, *values: Any) -> tuple[Any, ...]:
            return tuple(value.view_as(value) for value in values)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            ctx.calls = inputs[0]

        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
            ctx.calls.vjps += 1
            return (None, *cotangents)

        @staticmethod
        def jvp(ctx: Any, _: None, *tangents: Any) -> tuple[Any, ...]:
            ctx.calls.jvps += 1
            return tuple(tangent.view_as(tangent) for tangent in tangents)

    return Marker
