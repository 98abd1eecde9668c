"""A sequence of the user's own layers, with its gradient by reversing or by Moonwalk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gradgate.references.backends import UNIT_ROUNDOFF
from gradgate.references.contract import Tree, UsageError, check_integer, unknown
from gradgate.references.invertible.chain import Link, advances, finished, pulled, pushed, retreats
from gradgate.references.invertible.in_jax.own_layers import Bound, InvertibleLayer, bound
from gradgate.references.invertible.in_jax.phases import CLOSED, components
from gradgate.references.invertible.refusal import round_trips

METHODS = ("reversible", "moonwalk_mixed", "moonwalk")


def invertible_sequential(
    layers: Sequence[InvertibleLayer], *, method: str = "reversible", coupled: bool = True, tangents: int = 1
) -> Callable[..., Any]:
    """The user's layers in order, as one function whose backward pass rebuilds what plain backprop keeps.

    ``jax.jit``, ``jax.vmap`` and a second derivative work. Forward mode does not work, because the function has a
    reverse rule of its own.

    Args:
        layers: one or more, made by `invertible_layer`, `additive_coupling`, `affine_coupling` and `keep`.
        method: ``reversible`` rebuilds each layer's input from its output by the inverse. ``moonwalk_mixed`` finds the
            gradient of the input by reverse mode with parameters held constant, and from it the others forward, layer
            by layer. ``moonwalk`` finds the gradient of the input by forward mode.
        coupled: whether a sample's output depends on other samples, as with batch norm. Only ``moonwalk`` reads this;
            if it is False, axis 0 of x and of y are samples.
        tangents: how many JVPs ``moonwalk`` pushes forward together, an integer of at least 1.

    Returns:
        ``apply(params, x, *, key=None, state=None)``. `params` has a tree per layer, ``{"f": …, "g": …}`` of a
        coupling; a tree that two layers share is given twice. It returns y, an array; with `state`, ``(y, state)``.
        `key` and `state` are needed where a layer is random or stateful. There is no derivative by the state.

    Raises:
        UsageError: no layers; an unknown method; a layer that lacks what the method needs; another number of parameter
            trees than of layers; functions of a coupling that do not fit its halves; no key or state where a layer
            needs one. Says what is legal.
        IllegalOption: `tangents` is not an integer of at least 1.

    Source:
        RevBackprop: Gomez et al. (2017). Moonwalk: Krylov, Karamzade, Fox (2024), Algorithm 1, §4.1 and §4.2.

    Stores:
        From the forward to the backward pass, besides parameters: ``reversible`` the output; ``moonwalk`` the input;
        ``moonwalk_mixed`` the input and what VJPs by x alone need of every layer. In the backward pass, what one
        layer's VJP needs, and the gradients.

    Computes:
        Beyond plain backprop: ``reversible`` an inverse of every layer, and of a layer that is no coupling one more
        evaluation. ``moonwalk_mixed`` an evaluation, a VJP by x and a vijp of every layer. ``moonwalk`` an evaluation
        and a vijp of every layer, and a JVP through all layers for each number of a sample; if `coupled`, for each
        number of the batch.

    Not for:
        ``reversible``: layers with an ill-conditioned inverse; errors grow from layer to layer. ``moonwalk``: inputs of
        more than a few hundred numbers. All: many equal layers, which compile one by one.
    """
    if isinstance(layers, InvertibleLayer):
        raise UsageError("layers is one layer; legal: a list of one or more")
    layers = tuple(layers)
    _check(layers, method)
    check_integer("tangents", tangents, 1)

    def start(params: Any, key: Any, state: Any) -> list[Link]:
        return [(i, b, p) for i, (b, p) in enumerate(zip(bound(layers, key, state), params, strict=True))]

    def plain(params: Any, x: Any, key: Any, state: Any) -> tuple[Any, Any]:
        y, _, after = _forward(start(params, key, state), x)
        return y, after

    def forward(params: Any, x: Any, key: Any, state: Any) -> tuple[Any, Any]:
        chain, graphs = start(params, key, state), None
        inputs: dict[int, Any] = {}
        if method == "moonwalk_mixed":
            y, graphs = pushed(jax.vjp, chain, x)
            after = [layer.after for layer in _layers(chain)]
        else:
            y, inputs, after = _forward(chain, x)
        end = y if method == "reversible" else x
        return (y, after), (params, key, state, end, inputs if method == "reversible" else {}, graphs)

    def backward(kept: Any, cotangents: Any) -> tuple[Any, ...]:
        params, key, state, end, inputs, graphs = kept
        # The barrier keeps the compiler from finding the forward pass in what is computed again, and saving it all.
        end, h = jax.lax.optimization_barrier((end, cotangents[0]))
        chain = start(params, key, state)
        if method == "reversible":
            for i, layer, _ in chain:
                if isinstance(layer, Bound):
                    layer.saved = inputs.get(i)
            _, dx, grads = finished(retreats(jax.vjp, chain, end, h))
        else:
            dx, handed = pulled(chain, dict(graphs), h) if graphs else (_by_jvps(chain, end, h), {})
            _, _, grads = finished(advances(CLOSED, chain, end, dx, handed))
        found = [grads[i] for i in range(len(chain))]
        return jax.tree.unflatten(jax.tree.structure(params), jax.tree.leaves(found)), dx, None, None

    def _by_jvps(chain: list[Link], x: Any, h: Any) -> Any:
        def losses(x: Any) -> Any:
            shares = _forward(chain, x)[0] * h
            return shares.sum() if coupled else shares.reshape(len(x), -1).sum(1)

        return components(losses, x, coupled, tangents)

    ruled = jax.custom_vjp(plain)
    ruled.defvjp(forward, backward)

    def apply(params: Sequence[Tree], x: Any, *, key: Any = None, state: Any = None) -> Any:
        params = _checked(layers, params, x)
        y, after = ruled(params, x, key, state)
        return y if state is None else (y, after)

    return apply


def check_inverse(
    layers: Sequence[InvertibleLayer],
    params: Sequence[Tree],
    x: Any,
    *,
    key: Any = None,
    state: Any = None,
    digits: float = 0.5,
) -> float:
    """Run every layer and its inverse at its own input, and compare.

    Args:
        layers, params, x, key, state: as of `invertible_sequential`, concrete arrays, not traced ones.
        digits: the share of the dtype's digits that a round trip through one layer must keep.

    Returns:
        The largest relative error of a round trip.

    Raises:
        NotInvertible: names the first layer whose inverse is absent, raises, is not finite, or misses its input by more
            than u^digits, where u is the unit roundoff of the dtype.
        UsageError: arrays are traced.

    Computes:
        A forward pass and every inverse once; one layer is in memory.
    """
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((list(params), x))):
        raise UsageError("check_inverse compares numbers, and within jax.jit there are none; call it outside")
    layers, params = tuple(layers), _checked(layers, params, x)
    chain = [(i, b, p) for i, (b, p) in enumerate(zip(bound(layers, key, state), params, strict=True))]
    return round_trips([link for link in chain if not link[1].hands_over], x, UNIT_ROUNDOFF[str(x.dtype)] ** digits)


def inverse_of(
    layers: Sequence[InvertibleLayer], params: Sequence[Tree], y: Any, *, key: Any = None, state: Any = None
) -> Any:
    """y -> x: the inverses of the layers, the last first. An ordinary function, which jit, vmap and grad work on.

    Args:
        layers, params, key, state: as of `invertible_sequential`.
        y: what the layers gave.

    Raises:
        UsageError: a layer is made by `keep`, and has no inverse; other arguments do not fit.
        NotInvertible: a layer has no inverse.
    """
    layers, params = tuple(layers), _checked(layers, params, y)
    for layer, p in reversed(list(zip(bound(layers, key, state), params, strict=True))):
        if layer.hands_over:
            raise UsageError(f"{layer.name} has no inverse; legal: couplings, and layers with an inverse")
        y = layer.inverse(p, y)
    return y


def with_log_det(
    layers: Sequence[InvertibleLayer], params: Sequence[Tree], x: Any, *, key: Any = None, state: Any = None
) -> tuple[Any, Any]:
    """x -> (y, log |det ∂y/∂x|), as the density of a normalising flow needs it.

    Args:
        layers, params, key, state: as of `invertible_sequential`.
        x: samples along axis 0.

    Returns:
        y, and an array (batch,). An ordinary function, which jit, vmap and grad work on.

    Raises:
        UsageError: a layer is no coupling and was made without ``log_det``; a coupling splits axis 0.

    Stores:
        For a gradient what plain backprop keeps.
    """
    layers, params = tuple(layers), _checked(layers, params, x)
    total = jnp.zeros(x.shape[:1], x.dtype)
    for layer, p in zip(bound(layers, key, state), params, strict=True):
        x, more = layer.with_log_det(p, x)
        total = total + more
    return x, total


class Functional(NamedTuple):
    """A module as a function.

    Attributes:
        function: ``(p, x) -> y``; of a module with a state, ``(p, x, state=…) -> (y, state)``.
        params: its floating parameters.
        state: what else it holds that a call may change: running statistics, generators; None: nothing.
    """

    function: Callable[..., Any]
    params: Any
    state: Any


def functional(module: Any, method: str = "__call__") -> Functional:
    """A module of equinox or flax.nnx as a function for `invertible_layer` and the couplings.

    Args:
        module: an equinox.Module without `eqx.nn.State`; its key, if it draws random numbers, is ``key=``. Or a
            flax.nnx.Module; its generators and running statistics are state, so that a layer of it is stateful.
        method: the method that the function calls, such as ``inverse``.

    Raises:
        UsageError: the module is neither.
    """
    home = {cls.__module__.partition(".")[0] for cls in type(module).__mro__}
    if "equinox" in home:
        import equinox as eqx

        params, static = eqx.partition(module, eqx.is_inexact_array)

        def called(p: Any, *args: Any, **keywords: Any) -> Any:
            return getattr(eqx.combine(p, static), method)(*args, **keywords)

        return Functional(called, params, None)
    if "flax" in home:
        from flax import nnx

        split: Any = nnx.split
        graph, params, rest = split(module, nnx.Param, ...)
        if not jax.tree.leaves(rest):
            return Functional(lambda p, *args: getattr(nnx.merge(graph, p, rest), method)(*args), params, None)

        def with_state(p: Any, *args: Any, state: Any) -> Any:
            made = nnx.merge(graph, p, state, copy=True)  # variables know the trace in which they were made
            answer = getattr(made, method)(*args)
            return (answer, split(made, nnx.Param, ...)[2]) if method == "__call__" else answer

        return Functional(with_state, params, rest)
    raise UsageError(f"{type(module).__name__} is no module of equinox or flax.nnx; legal: write it as (p, x) -> y")


def _forward(chain: list[Link], x: Any) -> tuple[Any, dict[int, Any], list[Any]]:
    """Y, the inputs of kept layers, and the states."""
    inputs, after = {}, []
    for i, layer in enumerate(_layers(chain)):
        if layer.hands_over:
            inputs[i] = x
        x, state = layer.run(chain[i][2], x)
        after.append(state)
    return x, inputs, after


def _layers(chain: list[Link]) -> list[Bound]:
    return [layer for _, layer, _ in chain if isinstance(layer, Bound)]


def _check(layers: Sequence[Any], method: str) -> None:
    if method not in METHODS:
        raise unknown("method", str(method), METHODS)
    if not layers:
        raise UsageError("there are no layers; legal: one or more")
    for i, layer in enumerate(layers):
        if not isinstance(layer, InvertibleLayer):
            raise UsageError(
                f"layer {i} is a {type(layer).__name__}; legal: what invertible_layer, additive_coupling, "
                "affine_coupling and keep make"
            )
        if layer.kind == "keep" and method == "moonwalk":
            raise UsageError(
                f"layer {i}: moonwalk has no reverse phase that could keep a cotangent; use method='moonwalk_mixed'"
            )
        if layer.kind == "layer" and layer.inverse is None and method == "reversible":
            raise UsageError(
                f"layer {i} has no inverse, which reversible needs; make it with keep, which keeps its input"
            )
        if layer.kind == "layer" and layer.inverse is None and layer.vijp is None:
            raise UsageError(
                f"layer {i} has neither a vijp nor an inverse, and Moonwalk needs one of them; with moonwalk_mixed "
                "you can make it with keep"
            )


def _checked(layers: Sequence[Any], params: Any, x: Any) -> list[Any]:
    if not isinstance(params, (list, tuple)) or len(params) != len(layers):
        got = f"{len(params)} trees" if isinstance(params, (list, tuple)) else f"a {type(params).__name__}"
        raise UsageError(f"params are {got}; legal: a list of {len(layers)} trees, one for each layer")
    if not jnp.issubdtype(np.asarray(x).dtype if not hasattr(x, "dtype") else x.dtype, jnp.floating):
        raise UsageError("the input is not of floating numbers; legal: one floating array")
    return list(params)
