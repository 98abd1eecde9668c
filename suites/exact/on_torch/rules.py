"""The table of rules: name of an ATen operation -> what it does to balls.

One rule serves all overloads of an operation, also in place and with ``out=``: its result is written into the tensors
that the operation returned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gradgate.suites.exact import balls

Kind = Literal["numbers", "mixed", "call"]


@dataclass(frozen=True)
class Rule:
    """What an operation does to balls.

    Attributes:
        function: takes the operation's own arguments, with tensors as arrays; or takes a `mode.Call`.
        kind: `numbers`, every tensor comes as balls; `mixed`, integers and booleans stay what they are; `call`, the
            rule reads what it needs.
    """

    function: Callable[..., Any]
    kind: Kind


RULES: dict[str, Rule] = {}
"""Name of the operation without namespace, overload and the underscore of writing in place -> rule."""


def _register(kind: Kind, names: tuple[str, ...]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def keep(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            assert name not in RULES, name
            RULES[name] = Rule(function, kind)
        return function

    return keep


def numbers(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A rule that gets all tensors as balls."""
    return _register("numbers", names)


def mixed(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A rule that gets floating tensors as balls, and other tensors as NumPy arrays."""
    return _register("mixed", names)


def call(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A rule that gets the call itself."""
    return _register("call", names)


def number(value: Any) -> Any:
    """A Python number as a ball; arrays and None stay."""
    return balls.ball(value) if isinstance(value, (bool, int, float, complex)) else value


def as_array(value: Any) -> Any:
    """A result of a rule as an array: of balls, or of booleans or integers."""
    return np.asarray(value) if isinstance(value, (bool, np.generic)) else balls.whole(value)


def shown(value: Any) -> tuple[list[Any], Any]:
    """The results of an operation as arrays, and which of them a watch is told: the first of balls, else the first.

    A result without numbers is None.
    """
    many = value if isinstance(value, (list, tuple)) else [value]
    arrays = [None if each is None else balls.whole(each) for each in many]
    there = [each for each in arrays if each is not None]
    return arrays, next(filter(balls.is_balls, there), there[0] if there else None)


def axes_of(dim: Any, ndim: int) -> tuple[int, ...]:
    """PyTorch's `dim` argument as axes: None and () mean all."""
    if dim is None or (isinstance(dim, (tuple, list)) and not len(dim)):
        return tuple(range(ndim))
    many = dim if isinstance(dim, (tuple, list)) else (dim,)
    return tuple(axis % ndim for axis in many) if ndim else ()


def with_axes(array: Any, axes: tuple[int, ...], keepdim: bool) -> Any:
    """A reduced array; with `keepdim`, its axes are put back with length 1."""
    return np.expand_dims(balls.whole(array), axes) if keepdim and axes else array
