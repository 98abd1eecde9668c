"""Primitives that move values and compute nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradgate.hw_profiles.calls import MARKER, report
from gradgate.suites.exact.on_jax.block import boxed
from gradgate.suites.exact.on_jax.rules import Run, rule


@rule("reshape")
def reshape(equation: Any) -> Run:
    """Another shape of as many elements."""
    shape, order = equation.outvars[0].aval.shape, equation.params.get("dimensions")
    if order is not None:
        return lambda x: x.transpose(order).reshape(shape)
    return lambda x: x.reshape(shape)


@rule(MARKER)
def marker(equation: Any) -> Run:
    """The values unchanged; each run reports what the marker counts."""

    def run(*values: Any) -> list[Any]:
        report(**equation.params)
        return list(values)

    return run


@rule("squeeze")
def squeeze(equation: Any) -> Run:
    """Fewer dimensions of length one."""
    shape = equation.outvars[0].aval.shape
    return lambda x: x.reshape(shape)


@rule("transpose")
def transpose(equation: Any) -> Run:
    """Dimensions in another order."""
    order = tuple(equation.params["permutation"])
    return lambda x: x.transpose(order)


@rule("broadcast_in_dim")
def broadcast(equation: Any) -> Run:
    """A larger shape, in which the dimensions of the smaller one have given places."""
    shape, places = equation.outvars[0].aval.shape, equation.params["broadcast_dimensions"]
    between = [1] * len(shape)
    for place, length in zip(places, equation.invars[0].aval.shape, strict=True):
        between[place] = length
    inner = tuple(between)
    if inner == tuple(shape):
        return lambda x, *_: x.reshape(inner)
    return lambda x, *_: np.broadcast_to(x.reshape(inner), shape)


@rule("rev")
def reverse(equation: Any) -> Run:
    """Dimensions read backwards."""
    axes = tuple(equation.params["dimensions"])
    return lambda x: np.flip(x, axes)


@rule("concatenate")
def concatenate(equation: Any) -> Run:
    """Arrays, one after another, along a dimension."""
    axis = equation.params["dimension"]
    return lambda *arrays: np.concatenate(arrays, axis)


@rule("stack")
def stack(equation: Any) -> Run:
    """Arrays side by side along a new dimension."""
    axis = equation.params["axis"]
    return lambda *arrays: np.stack(arrays, axis)


@rule("slice")
def static_slice(equation: Any) -> Run:
    """A part at fixed places."""
    params = equation.params
    steps = params["strides"] or (1,) * len(params["start_indices"])
    where = tuple(map(slice, params["start_indices"], params["limit_indices"], steps))
    return lambda x: x[where]


@rule("split")
def split(equation: Any) -> Run:
    """Parts of given lengths."""
    axis, sizes = equation.params["axis"], equation.params["sizes"]
    ends = np.cumsum(sizes)[:-1].tolist()
    return lambda x: np.split(x, ends, axis)


@rule("unstack")
def unstack(equation: Any) -> Run:
    """The parts along a dimension, without it."""
    axis = equation.params["axis"]
    return lambda x: [boxed(part) for part in np.moveaxis(x, axis, 0)]


@rule("tile")
def tile(equation: Any) -> Run:
    """Repetitions along each dimension."""
    reps = equation.params["reps"]
    return lambda x: np.tile(x, reps)


def padded(array: Any, value: Any, config: Any) -> Any:
    """`array` with `value` before, after and between its elements; negative amounts cut elements off."""
    for axis, (low, high, between) in enumerate(config):
        length = array.shape[axis]
        if between and length > 1:
            spread = list(array.shape)
            spread[axis] = length + (length - 1) * between
            wide = np.empty(spread, array.dtype)
            wide[...] = value
            wide[(slice(None),) * axis + (slice(None, None, between + 1),)] = array
            array = wide
        if low < 0 or high < 0:
            length = array.shape[axis]
            array = array[(slice(None),) * axis + (slice(max(-low, 0), length - max(-high, 0)),)]
    before = [max(low, 0) for low, _, _ in config]
    after = [max(high, 0) for _, high, _ in config]
    if not any(before) and not any(after):
        return array
    result = np.empty([b + n + a for b, n, a in zip(before, array.shape, after, strict=True)], array.dtype)
    result[...] = value
    result[tuple(slice(b, b + n) for b, n in zip(before, array.shape, strict=True))] = array
    return result


@rule("pad")
def pad(equation: Any) -> Run:
    """A border and gaps of one value."""
    config = equation.params["padding_config"]
    return lambda x, value: padded(x, value.item() if value.dtype == object else value, config)
