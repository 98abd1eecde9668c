"""The tables of rules: how each primitive is evaluated on balls, integers and booleans.

A rule is built once per equation and then called with values as often as the equation runs. Values are NumPy arrays:
object arrays of balls where the dtype is floating or complex, object arrays of keys for random keys, plain arrays for
integers and booleans.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_jax import keys

Run = Callable[..., Any]
"""Values of the inputs -> value of the output, or a list where the primitive has several outputs."""

RULES: dict[str, Callable[[Any], Run]] = {}
"""Name of a primitive -> equation -> its `Run`."""
LOCKSTEP: dict[str, Callable[..., Any]] = {}
"""Name of a primitive -> (equation, compile, needed outputs) -> function of all devices' values at once.

Control flow and collectives are in this table: `block.Step` says what they get.
"""


def rule(*names: str) -> Callable[[Callable[[Any], Run]], Callable[[Any], Run]]:
    """Enter a function of the equation into `RULES` under these names."""

    def enter(build: Callable[[Any], Run]) -> Callable[[Any], Run]:
        for name in names:
            RULES[name] = build
        return build

    return enter


def lockstep(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function of the equation into `LOCKSTEP` under these names."""

    def enter(build: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            LOCKSTEP[name] = build
        return build

    return enter


@functools.lru_cache(maxsize=256)
def kind_of(dtype: Any) -> str:
    """What a dtype holds: f(loats), c(omplex), i(ntegers), u(nsigned), b(ooleans) or k(eys)."""
    for kind, parent in (("c", np.complexfloating), ("f", np.floating), ("u", np.unsignedinteger), ("i", np.integer)):
        if jax.dtypes.issubdtype(dtype, parent):
            return kind
    if dtype == np.bool_ or dtype == jax.dtypes.float0:
        return "b"
    return "k"


def kind(atom: Any) -> str:
    """`kind_of` the dtype of a variable or literal."""
    return kind_of(atom.aval.dtype)


def inexact(atom: Any) -> bool:
    """Whether the values are balls."""
    return kind_of(atom.aval.dtype) in "fc"


def data(value: Any, dtype: Any) -> Any:
    """A constant, literal or argument as the evaluator holds it."""
    held = kind_of(dtype)
    if held == "k":
        return keys.from_jax(value)
    if isinstance(value, np.ndarray) and value.dtype == object:
        return value
    if dtype == jax.dtypes.float0:
        return np.zeros(np.shape(value), bool)
    plain = np.asarray(value, dtype=dtype)
    return balls.exact(plain) if held in "fc" else plain


def blank(aval: Any, number: Any = 0) -> Any:
    """An array of one number, of an output's shape and kind."""
    if kind_of(aval.dtype) in "fc":
        return balls.full(aval.shape, complex(number) if kind_of(aval.dtype) == "c" else number)
    return np.full(aval.shape, number, aval.dtype)


def passed(*values: Any) -> Any:
    """The first value as it is."""
    return values[0]
