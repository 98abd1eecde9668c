"""Windows that move over an array: pooling, its derivatives, and convolution by definition."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from flint import arb

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_jax.block import boxed
from gradgate.suites.exact.on_jax.reductions import _limit
from gradgate.suites.exact.on_jax.rules import Run, blank, inexact, kind, lockstep, rule
from gradgate.suites.exact.on_jax.structure import padded


def windows(array: Any, value: Any, size: Any, strides: Any, padding: Any, base: Any, dilation: Any) -> Any:
    """Every window of an array padded with `value`: (…places, …window)."""
    config = [(low, high, between - 1) for (low, high), between in zip(padding, base, strict=True)]
    wide = padded(array, value, config)
    reach = tuple((length - 1) * step + 1 for length, step in zip(size, dilation, strict=True))
    places = [max(0, (n - r) // s + 1) for n, r, s in zip(wide.shape, reach, strides, strict=True)]
    if not math.prod(places):
        return np.empty((*places, *size), wide.dtype)
    found = np.lib.stride_tricks.sliding_window_view(wide, reach)
    steps = [slice(None, None, step) for step in (*strides, *dilation)]
    return found[tuple(steps)]


def _windows_of(params: Any, array: Any, value: Any) -> Any:
    """The windows that a primitive's parameters describe, with the elements of one window along the last dimension."""
    rank = array.ndim
    ones = (1,) * rank
    found = windows(
        array,
        value,
        params["window_dimensions"],
        params["window_strides"],
        params["padding"],
        params.get("base_dilation") or ones,
        params.get("window_dilation") or ones,
    )
    return found.reshape(*found.shape[:rank], -1)


@rule("reduce_window_sum", "reduce_window_max", "reduce_window_min")
def pool(equation: Any) -> Run:
    """Sum, maximum or minimum of every window."""
    params, name = equation.params, equation.primitive.name
    exact, dtype = inexact(equation.invars[0]), equation.invars[0].aval.dtype
    largest = name.endswith("max")
    if name.endswith("sum"):
        zero: Any = blank(equation.outvars[0].aval.update(shape=()))[()]
        return lambda x: np.add.reduce(_windows_of(params, x, zero), axis=-1, initial=zero)
    bound: Any = (arb.neg_inf() if largest else arb.pos_inf()) if exact else _limit(dtype, largest)

    def run(x: Any) -> Any:
        found = _windows_of(params, x, bound)
        if exact:
            return balls.extreme(found, (-1,), largest)
        return np.asarray((np.maximum if largest else np.minimum).reduce(found, axis=-1, initial=bound), dtype)

    return run


@lockstep("reduce_window")
def pool_by(equation: Any, compiled: Any, needed: list[bool]) -> Any:
    """A reduction of every window by a function of the program's own."""
    params = equation.params
    block, _ = compiled(_closed(params["jaxpr"], params["consts"])).block()

    def fold(values: list[Any], run: Any) -> list[Any]:
        half = len(values) // 2
        starts = values[half:]
        found = [_windows_of(params, x, start[()]) for x, start in zip(values[:half], starts, strict=True)]
        shape = found[0].shape[:-1]
        state = [np.broadcast_to(start, shape) for start in starts]
        for place in range(found[0].shape[-1]):
            state = block([[*state, *(boxed(each[..., place]) for each in found)]], run)[0]
        return state

    return lambda lanes, run: [fold(list(values), run) for values in lanes]


def _closed(jaxpr: Any, consts: Any) -> Any:
    from jax.extend.core import ClosedJaxpr

    return jaxpr if hasattr(jaxpr, "consts") else ClosedJaxpr(jaxpr, consts)


def _chosen(params: Any, operand: Any) -> Any:
    """The flat place in the operand of each window's extreme, −1 for a window of padding only.

    The first of equals is chosen, as by XLA.
    """
    largest = params["select_prim"].name == "ge"
    places = _windows_of(params, np.arange(operand.size).reshape(operand.shape), -1)
    values = operand.reshape(-1)
    better = 1 if largest else -1

    def pick(row: list[int]) -> int:
        best = -1
        for place in row:
            if place >= 0 and (best < 0 or balls._decided(values[place], values[best], "greater than") == better):
                best = place
        return best

    chosen = [pick(row) for row in places.reshape(-1, places.shape[-1]).tolist()]
    return np.array(chosen, np.int64).reshape(places.shape[:-1])


@rule("select_and_scatter_add")
def unpool(equation: Any) -> Run:
    """Each source number added where its window has its extreme: the transpose of pooling."""
    params = equation.params
    zero = blank(equation.outvars[0].aval.update(shape=()))[()]

    def run(source: Any, operand: Any) -> Any:
        result = np.empty(operand.size, object)
        result[...] = zero
        for place, value in zip(_chosen(params, operand).ravel().tolist(), source.ravel().tolist(), strict=True):
            if place >= 0:
                result[place] = result[place] + value
        return result.reshape(operand.shape)

    return run


@rule("select_and_gather_add")
def pool_tangents(equation: Any) -> Run:
    """The tangent at the place where a window has its extreme: the derivative of pooling."""
    params = equation.params
    zero = blank(equation.outvars[0].aval.update(shape=()))

    def run(tangents: Any, operand: Any) -> Any:
        chosen = _chosen(params, operand)
        return np.concatenate([tangents.reshape(-1), zero.reshape(1)])[chosen]

    return run


@rule("conv_general_dilated")
def convolution(equation: Any) -> Run:
    """Convolution by definition: every window of the input times the kernel."""
    params = equation.params
    numbers = params["dimension_numbers"]
    groups, batches = params["feature_group_count"], params["batch_group_count"]
    zero = blank(equation.outvars[0].aval.update(shape=()))[()]
    back = np.argsort(numbers.out_spec)
    ones = (1,) * (len(numbers.lhs_spec) - 2)
    held = kind(equation.outvars[0])

    def run(image: Any, kernel: Any) -> Any:
        x, w = image.transpose(numbers.lhs_spec), kernel.transpose(numbers.rhs_spec)
        if batches > 1:  # the groups of the batch become groups of features
            x = np.concatenate(np.split(x, batches, 0), 1)
        count = groups * batches
        config = [(0, 0, 0), (0, 0, 0), *((0, 0, between - 1) for between in params["lhs_dilation"])]
        wide = padded(x, zero, config)
        found = windows(
            wide,
            zero,
            (1, 1, *w.shape[2:]),
            (1, 1, *params["window_strides"]),
            [(0, 0), (0, 0), *params["padding"]],
            (1, 1, *ones),
            (1, 1, *params["rhs_dilation"]),
        )
        out = _grouped(found, w, count, held)
        return out.transpose(back)

    return run


def _grouped(found: Any, w: Any, groups: int, held: str) -> Any:
    """Windows (batch, features, …places, 1, 1, …window) times kernels (out, in, …window), group by group."""
    batch, features, rank = found.shape[0], found.shape[1], w.ndim - 2
    places = found.shape[2 : 2 + rank]
    inner = math.prod(w.shape[1:])
    parts = found.reshape(batch, groups, features // groups, math.prod(places), math.prod(w.shape[2:]))
    left = parts.transpose(1, 0, 3, 2, 4).reshape(groups, batch * math.prod(places), inner)
    right = w.reshape(groups, w.shape[0] // groups, inner).transpose(0, 2, 1)
    product = balls.matmul(left, right) if held in "fc" else np.matmul(left, right)
    columns = w.shape[0] // groups
    shaped = product.reshape(groups, batch, math.prod(places), columns).transpose(1, 0, 3, 2)
    return shaped.reshape(batch, w.shape[0], *places)
