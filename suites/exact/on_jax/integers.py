"""Primitives of integers and booleans, with the semantics of XLA: wraparound, shifts by the width or more, bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_jax.rules import Run, rule

_BITWISE: dict[str, Callable[..., Any]] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
}


@rule(*_BITWISE)
def bitwise(equation: Any) -> Run:
    """And, or, exclusive or, not; of booleans logical."""
    return _BITWISE[equation.primitive.name]


def _unsigned(dtype: Any) -> Any:
    return np.dtype(f"u{np.dtype(dtype).itemsize}")


@rule("shift_left", "shift_right_logical", "shift_right_arithmetic")
def shift(equation: Any) -> Run:
    """Shifted bits. A shift by the width or more leaves nothing, except the sign in an arithmetic shift."""
    dtype = np.dtype(equation.outvars[0].aval.dtype)
    width, plain, name = dtype.itemsize * 8, _unsigned(dtype), equation.primitive.name

    def run(value: Any, amount: Any) -> Any:
        by = amount.astype(plain)  # a negative amount becomes a large one
        within = by < width
        safe = np.where(within, by, np.array(0, plain))
        if name == "shift_left":
            return np.where(within, value.astype(plain) << safe, np.array(0, plain)).astype(dtype)
        if name == "shift_right_logical":
            return np.where(within, value.astype(plain) >> safe, np.array(0, plain)).astype(dtype)
        most = np.where(within, by, np.array(width - 1, plain)).astype(dtype)
        return value >> most

    return run


@rule("population_count")
def population_count(equation: Any) -> Run:
    """How many bits are set."""
    dtype = np.dtype(equation.outvars[0].aval.dtype)
    return lambda value: np.bitwise_count(value.astype(_unsigned(dtype))).astype(dtype)


@rule("clz")
def leading_zeros(equation: Any) -> Run:
    """How many bits are zero before the first that is set."""
    dtype = np.dtype(equation.outvars[0].aval.dtype)
    count = np.frompyfunc(lambda number: dtype.itemsize * 8 - int(number).bit_length(), 1, 1)
    return lambda value: np.asarray(count(value.astype(_unsigned(dtype)))).astype(dtype)


@rule("empty2")
def empty(equation: Any) -> Run:
    """A scalar that a scan overwrites before it is read; JAX lowers it to zero."""
    dtype = np.dtype(equation.params["dtype"])
    value = np.zeros((), dtype) if dtype.kind in "iub" else balls.full((), 0)
    return lambda: value


@rule("iota")
def iota(equation: Any) -> Run:
    """Numbers that count along one dimension."""
    params = equation.params
    shape = params["shape"]
    along = [1] * len(shape)
    along[params["dimension"]] = shape[params["dimension"]]
    plain = np.broadcast_to(np.arange(shape[params["dimension"]]).reshape(along), shape)
    value = balls.exact(plain) if np.dtype(params["dtype"]).kind not in "iub" else plain.astype(params["dtype"])
    return lambda: value
