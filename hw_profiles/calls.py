"""Counts of evaluations, JVPs and VJPs of a function, such as a layer, in which papers state claims about work.

In JAX, the function's arguments and results pass through markers that change nothing. An evaluation is counted where
arguments enter, a JVP where their tangents enter, and a VJP where cotangents of the results enter. Differentiation
turns markers into markers of JVPs and VJPs. ``call_count`` adds up the markers in the program's text, and multiplies
those in loops. In PyTorch, a marker reports each call while the program runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any

MARKER = "gradgate_mark"
KINDS = ("evaluations", "jvps", "vjps")
OnCall = Callable[[str, str, int], None]
"""Gets a function's name, the kind of call (one of KINDS), and how many of these calls were made at once."""


@dataclass
class Calls:
    """How often a function was evaluated, and how many JVPs and VJPs of it were computed.

    Under vmap, a call counts once for every element of the batch. A call that does not depend on the batch is computed
    once and counts once. A second derivative counts as JVPs or VJPs of the first derivative.
    """

    evaluations: int = 0
    jvps: int = 0
    vjps: int = 0


def marked(
    function: Callable[..., Any],
    name: str,
    weight: Callable[..., int] = lambda *args, **kwargs: 1,
    on_call: OnCall | None = None,
) -> Callable[..., Any]:
    """Return a JAX function with the same results whose calls ``call_count`` reports under ``name``.

    A recomputation under ``jax.checkpoint`` counts as another evaluation. A call that no result of the program needs is
    not run and does not count. Markers do not change FLOPs, but a marked value may be saved twice: measure bytes of the
    program without markers.

    Args:
        function: the function whose calls are counted.
        name: the name under which they are counted.
        weight: of the same arguments: how many calls one call counts as, such as its number of tokens.
        on_call: called when a marker runs outside of compiled code, for an evaluator of jaxprs.
    """

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        params = {"name": name, "weight": weight(*args, **kwargs), "on_call": on_call}
        (args, kwargs), given = _through((args, kwargs), (), of="arguments", kind="evaluations", **params)
        return _through(function(*args, **kwargs), given, of="results", kind="values", **params)[0]

    return wrapper


def report(name: str, kind: str, weight: int, on_call: OnCall | None, **_: Any) -> None:
    """Call `on_call` for a marker that runs with these parameters."""
    if on_call is not None and kind in KINDS:
        on_call(name, kind, weight)


def _through(values: Any, given: Sequence[Any], **params: Any) -> tuple[Any, list[Any]]:
    """Pass the floating-point arrays of a tree through the marker; returns the tree, and these arrays in a list.

    The arrays `given` pass through the marker too, so that no transformation sees a marker whose operands are only
    constants.
    """
    import jax

    def is_marked(leaf: Any) -> bool:
        return hasattr(leaf, "dtype") and jax.dtypes.issubdtype(leaf.dtype, jax.numpy.inexact)

    leaves, tree = jax.tree.flatten(values)
    places = [i for i, leaf in enumerate(leaves) if is_marked(leaf)]
    found = _bind([leaves[i] for i in places], given, **params) if places else []
    for place, leaf in zip(places, found, strict=True):
        leaves[place] = leaf
    return jax.tree.unflatten(tree, leaves), found


def _bind(values: Sequence[Any], given: Sequence[Any], **params: Any) -> list[Any]:
    """The values after a marker."""
    found: list[Any] = _marker().bind(*values, *given, **{**params, "riders": len(given)})
    return found[: len(values)]


def torch_marked(
    function: Callable[..., Any],
    name: str,
    on_call: OnCall,
    weight: Callable[..., int] = lambda *args, **kwargs: 1,
) -> Callable[..., Any]:
    """Return a PyTorch function with the same results that reports each call to ``on_call`` while the program runs.

    Arguments as for `marked`.
    """

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        import torch
        from torch.utils import _pytree

        number = weight(*args, **kwargs)

        def tell(kind: str, values: Sequence[Any]) -> None:
            on_call(name, kind, number * _batch(values))

        def floating(leaves: Sequence[Any]) -> list[int]:
            return [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]

        given, _ = _pytree.tree_flatten((args, kwargs))
        tell("evaluations", [given[i] for i in floating(given)])  # first: a recomputation may be stopped early
        leaves, tree = _pytree.tree_flatten(function(*args, **kwargs))
        places = floating(leaves)
        if places:
            through = _torch_marker().apply(tell, *(leaves[i] for i in places))
            for place, leaf in zip(places, through, strict=True):
                leaves[place] = leaf
        return _pytree.tree_unflatten(leaves, tree)

    return wrapper


def _batch(tensors: Sequence[Any]) -> int:
    """Elements of the enclosing vmaps that a call computes: numbers in memory over numbers that the call sees."""
    import torch

    functorch, most = torch._C._functorch, 1
    for tensor in tensors:
        inner = tensor
        while inner is not None and functorch.is_functorch_wrapped_tensor(inner):
            inner = functorch.get_unwrapped(inner)
        if inner is not None and tensor.numel():
            most = max(most, inner.numel() // tensor.numel())
    return most


# A marker is of a function's arguments or of its results. Differentiation changes its kind as follows:
#                arguments: evaluations    results: values    pushed    vjps    jvps of either
#     a JVP      jvps                      pushed             pushed    jvps    jvps
#     transpose                                               vjps      vjps    nothing; of results: vjps
# So tangents are counted where they enter a function, and cotangents where they enter its VJP. The same holds for
# further derivatives.
@cache
def _marker() -> Any:
    """Build the JAX primitive: the identity on its operands, whose derivatives are markers of other kinds."""
    from jax.extend.core import Primitive
    from jax.interpreters import ad, batching, mlir

    marker = Primitive(MARKER)
    marker.multiple_results = True
    marker.def_abstract_eval(lambda *avals, **_: list(avals))
    mlir.register_lowering(marker, lambda _, *values, **__: list(values))

    def run(*values: Any, **params: Any) -> list[Any]:
        report(**params)
        return list(values)

    def present(values: Sequence[Any], given: Sequence[Any], **params: Any) -> list[Any]:
        """Mark the tangents or cotangents that are not known to be zero."""
        places = [i for i, value in enumerate(values) if type(value) is not ad.Zero]
        out = list(values)
        for place, value in zip(
            places, _bind([values[i] for i in places], given, **params) if places else (), strict=True
        ):
            out[place] = value
        return out

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[list[Any], list[Any]]:
        number = len(primals) - params["riders"]
        out = marker.bind(*primals, **params)
        kind = "pushed" if params["kind"] in ("values", "pushed") else "jvps"
        given = primals if params["of"] == "arguments" else primals[number:]
        moved = present(tangents[:number], given, **{**params, "kind": kind})
        return out, [*moved, *tangents[number:]]

    def transpose(cotangents: Sequence[Any], *primals: Any, **params: Any) -> list[Any]:
        number = len(primals) - params["riders"]
        found, riders = list(cotangents[:number]), [None] * params["riders"]
        if params["of"] == "results":
            found = present(found, primals[number:], **{**params, "kind": "vjps"})
        return [*found, *riders]

    def batch(values: Sequence[Any], axes: Sequence[Any], **params: Any) -> tuple[list[Any], Sequence[Any]]:
        size = next(v.shape[a] for v, a in zip(values, axes, strict=True) if a is not None)
        return marker.bind(*values, **{**params, "weight": params["weight"] * size}), axes

    marker.def_impl(run)
    ad.primitive_jvps[marker] = jvp
    ad.primitive_transposes[marker] = transpose
    batching.primitive_batchers[marker] = batch
    return marker


@cache
def _torch_marker() -> Any:
    """Build the PyTorch function: the identity, which reports its VJPs and JVPs."""
    import torch

    class Marker(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(tell: Callable[..., None], *values: Any) -> tuple[Any, ...]:
            return tuple(value.view_as(value) for value in values)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            ctx.tell = inputs[0]

        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
            ctx.tell("vjps", cotangents)
            return (None, *Marker.apply(ctx.tell, *cotangents))  # marked for a derivative of this derivative

        @staticmethod
        def jvp(ctx: Any, _: None, *tangents: Any) -> tuple[Any, ...]:
            ctx.tell("jvps", tangents)
            return tuple(value.view_as(value) for value in Marker.apply(ctx.tell, *tangents))

    return Marker
