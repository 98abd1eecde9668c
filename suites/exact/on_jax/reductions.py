"""Sums, products, extremes and orders along dimensions."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from flint import acb, arb

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_jax.choices import LARGER, SMALLER, total_order
from gradgate.suites.exact.on_jax.rules import Run, inexact, kind, lockstep, rule


@rule("reduce_sum", "reduce_prod")
def total(equation: Any) -> Run:
    """Sum or product over dimensions; of integers with wraparound."""
    axes, sums = tuple(equation.params["axes"]), equation.primitive.name == "reduce_sum"
    function = np.add if sums else np.multiply
    if inexact(equation.invars[0]):
        start = (acb if kind(equation.invars[0]) == "c" else arb)(0 if sums else 1)
        if axes and all(equation.invars[0].aval.shape[axis] for axis in axes):
            return lambda x: (balls.adding() if sums else function).reduce(x, axis=axes)
        return (lambda x: function.reduce(x, axis=axes, initial=start)) if axes else lambda x: x
    dtype = equation.outvars[0].aval.dtype
    return lambda x: np.asarray(function.reduce(x, axis=axes, dtype=dtype))


@rule("reduce_and", "reduce_or", "reduce_xor")
def logical(equation: Any) -> Run:
    """Bits combined over dimensions."""
    axes = tuple(equation.params["axes"])
    function = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[equation.primitive.name[7:]]
    dtype = equation.invars[0].aval.dtype
    return lambda x: np.asarray(function.reduce(x, axis=axes), dtype)


def most(values: Any, axes: tuple[int, ...], largest: bool, aval: Any) -> Any:
    """Maximum or minimum over dimensions, one of the objects themselves; over none, an infinity or dtype limit."""
    if values.dtype == object:
        return balls.extreme(values, axes, largest)
    bound = _limit(values.dtype, largest)
    return np.asarray((np.maximum if largest else np.minimum).reduce(values, axis=axes, initial=bound))


def _limit(dtype: Any, largest: bool) -> Any:
    """The smallest number of the dtype, with which a maximum starts; or the largest, for a minimum."""
    if dtype == np.bool_:
        return not largest
    return np.iinfo(dtype).min if largest else np.iinfo(dtype).max


@rule("reduce_max", "reduce_min")
def extreme(equation: Any) -> Run:
    """Maximum or minimum over dimensions."""
    axes, largest = tuple(equation.params["axes"]), equation.primitive.name == "reduce_max"
    if kind(equation.invars[0]) == "c":
        raise balls.Unknown("reduce_max of complex numbers")
    return lambda x: most(x, axes, largest, equation.outvars[0].aval)


@rule("argmax", "argmin")
def position(equation: Any) -> Run:
    """The first place of the extreme; the first NaN if there is one."""
    (axis,), dtype = equation.params["axes"], equation.params["index_dtype"]
    largest = equation.primitive.name == "argmax"

    def first(row: list[Any]) -> int:
        best = 0
        for place, ball in enumerate(row):
            if ball.is_nan():
                return place
            if balls._decided(ball, row[best], "greater than") == (1 if largest else -1):
                best = place
        return best

    def run(x: Any) -> Any:
        if x.dtype != object:
            return np.asarray((np.argmax if largest else np.argmin)(x, axis), dtype)
        rows = np.moveaxis(x, axis, -1)
        found = [first(row.tolist()) for row in rows.reshape(-1, rows.shape[-1])]
        return np.array(found, dtype).reshape(rows.shape[:-1])

    return run


# Running ones ---------------------------------------------------------------------------------------------------------


def _log_sum(one: Any, other: Any) -> Any:
    if not one.is_finite() and one < 0:
        return other
    if not other.is_finite() and other < 0:
        return one
    return one + (other - one).exp().log1p()


_RUNNING: dict[str, tuple[Any, Any]] = {
    "cumsum": (np.add, np.add),
    "cumprod": (np.multiply, np.multiply),
    "cummax": (LARGER, np.maximum),
    "cummin": (SMALLER, np.minimum),
    "cumlogsumexp": (np.frompyfunc(_log_sum, 2, 1), None),
}


@rule(*_RUNNING)
def running(equation: Any) -> Run:
    """The running sum, product, extreme or log-sum along a dimension."""
    axis, backwards = equation.params["axis"], equation.params["reverse"]
    real, plain = _RUNNING[equation.primitive.name]
    function = real if inexact(equation.invars[0]) else plain
    dtype = object if inexact(equation.invars[0]) else equation.outvars[0].aval.dtype

    def run(x: Any) -> Any:
        if not x.size:
            return x
        turned = np.flip(x, axis) if backwards else x
        found = function.accumulate(turned, axis=axis, dtype=dtype)
        return np.flip(found, axis) if backwards else found

    return run


# Any function ---------------------------------------------------------------------------------------------------------


@lockstep("reduce")
def reduce(equation: Any, compiled: Any, needed: list[bool]) -> Any:
    """A reduction by a function of the program's own, from the first element to the last."""
    block, _ = compiled(equation.params["jaxpr"]).block()
    axes = tuple(equation.params["dimensions"])

    def fold(values: list[Any], run: Any) -> list[Any]:
        half = len(values) // 2
        arrays, state = values[:half], values[half:]
        rest = [axis for axis in range(arrays[0].ndim) if axis not in axes]
        shape = tuple(arrays[0].shape[axis] for axis in rest)
        rows = [array.transpose([*axes, *rest]).reshape(-1, *shape) for array in arrays]
        state = [np.broadcast_to(each, shape) for each in state]
        for place in range(rows[0].shape[0]):
            given = [balls.whole(row[place]) if row.dtype == object else np.asarray(row[place]) for row in rows]
            state = block([[*state, *given]], run)[0]  # on whole arrays: the function is elementwise
        return [np.broadcast_to(each, shape) for each in state]

    return lambda lanes, run: [fold(list(values), run) for values in lanes]


# Orders ---------------------------------------------------------------------------------------------------------------


@rule("sort")
def sort(equation: Any) -> Run:
    """Arrays sorted together along a dimension by the first few of them."""
    axis, keys = equation.params["dimension"], equation.params["num_keys"]
    kinds = [kind(atom) for atom in equation.invars[:keys]]
    if "c" in kinds:
        raise balls.Unknown("sort of complex numbers")

    def run(*arrays: Any) -> list[Any]:
        turned = [np.moveaxis(array, axis, -1) for array in arrays]
        order = _order(turned[:keys])
        return [np.moveaxis(np.take_along_axis(array, order, -1), -1, axis) for array in turned]

    return run


def _order(keys: list[Any]) -> Any:
    """The places in sorted order, along the last axis; equal elements keep their order."""
    if all(key.dtype != object for key in keys):
        return np.lexsort(keys[::-1], axis=-1)
    length = keys[0].shape[-1]
    rows = [key.reshape(-1, length) for key in keys]

    def order(row: int) -> list[int]:
        columns = [(key[row].tolist(), key.dtype == object) for key in rows]

        def compare(i: int, j: int) -> int:
            for column, exact in columns:
                one, other = column[i], column[j]
                found = total_order(one, other) if exact else (one > other) - (one < other)
                if found:
                    return found
            return 0

        return sorted(range(length), key=functools.cmp_to_key(compare))

    found = np.array([order(row) for row in range(rows[0].shape[0])], np.int64)
    return found.reshape(keys[0].shape)


@rule("top_k")
def top_k(equation: Any) -> Run:
    """The largest k along a dimension, and their places; NaN counts as largest."""
    count, axis = equation.params["k"], equation.params.get("axis", -1)
    dtype = equation.outvars[1].aval.dtype

    def run(x: Any) -> list[Any]:
        rows = np.moveaxis(x, axis, -1)
        if rows.dtype != object:
            order = np.argsort(-rows.astype(object), -1, kind="stable")
        else:
            length = rows.shape[-1]
            found = [
                sorted(range(length), key=functools.cmp_to_key(lambda i, j, row=row: -total_order(row[i], row[j])))  # type: ignore[misc]
                for row in rows.reshape(-1, length).tolist()
            ]
            order = np.array(found, np.int64).reshape(rows.shape)
        order = order[..., :count]
        values = np.take_along_axis(rows, order, -1)
        return [np.moveaxis(values, -1, axis), np.moveaxis(order.astype(dtype), -1, axis)]

    return run
