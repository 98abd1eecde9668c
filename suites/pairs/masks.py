"""The same random numbers in every dtype: JAX draws other bits for another dtype, and PyTorch for float64."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

DRAWN = "float32"
"""The dtype in which numbers are drawn, whatever dtype a function asks for."""


@contextlib.contextmanager
def alike() -> Iterator[None]:
    """The scope in which `jax.random` draws in float32, and rounds or widens to the dtype that is asked for.

    A function that draws in the dtype of its input, as in ``jax.random.normal(key, x.shape, x.dtype)``, would otherwise
    be another function in every dtype, and no truth in float64 would be its truth in float32. The same holds for
    `bernoulli`, which dropout calls: it compares uniform numbers with a probability, in the dtype of the probability.
    """
    import jax

    # What the public functions call: other modules may have imported the public functions themselves.
    inside = jax.random.uniform.__globals__
    plain = {name: function for name, function in inside.items() if _draws_floats(name, function)}
    masks = "_bernoulli" if "_bernoulli" in inside else "bernoulli"
    before = {**plain, masks: inside[masks]}
    inside |= {name: _in_float32(function) for name, function in plain.items()}
    inside[masks] = _of_float32(before[masks])
    try:
        yield
    finally:
        inside.update(before)


def _draws_floats(name: str, function: Any) -> bool:
    """Whether a name of JAX is the inner part of a function that draws floating numbers of a dtype."""
    if not name.startswith("_") or name.startswith("__") or not callable(function):
        return False
    try:
        taken = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return False
    return taken[:1] == ["key"] and {"shape", "dtype"} <= set(taken)


def _in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of JAX that draws numbers of a floating dtype, by way of float32."""
    import jax.numpy as jnp
    from jax import lax

    signature = inspect.signature(function)

    def narrow(value: Any) -> Any:
        kind = getattr(value, "dtype", None)
        return value.astype(DRAWN) if kind is not None and jnp.issubdtype(kind, jnp.floating) else value

    @functools.wraps(function)
    def drawn(*given: Any, **how: Any) -> Any:
        bound = signature.bind(*given, **how)
        wanted = jnp.dtype(bound.arguments["dtype"])
        if wanted == DRAWN or not jnp.issubdtype(wanted, jnp.floating):
            return function(*given, **how)
        bound.arguments |= {name: narrow(value) for name, value in bound.arguments.items() if name != "dtype"}
        bound.arguments["dtype"] = jnp.dtype(DRAWN)
        numbers = function(*bound.args, **bound.kwargs)
        if jnp.finfo(wanted).bits < jnp.finfo(DRAWN).bits:
            # Towards zero, so that a number below 1 stays below 1.
            kept = jnp.uint32(0xFFFFFFFF << (23 - jnp.finfo(wanted).nmant) & 0xFFFFFFFF)
            bits = lax.bitcast_convert_type(numbers, jnp.uint32) & kept
            numbers = lax.bitcast_convert_type(bits, jnp.float32)
        return numbers.astype(wanted)

    return drawn


def _of_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """`bernoulli`, or its inner part, with its probability in float32."""
    import jax.numpy as jnp

    def bernoulli(key: Any, p: Any = 0.5, *rest: Any, **how: Any) -> Any:
        return function(key, jnp.asarray(p).astype(DRAWN), *rest, **how)

    return bernoulli
