"""A function that is traced once and can be evaluated on balls many times."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import jax
import numpy as np
from jax._src import custom_derivatives, linear_util, source_info_util  # no public API keeps a line

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_jax import rules
from gradgate.suites.exact.on_jax.block import Block, Flat, Run, Watch
from gradgate.suites.exact.tiles import Tiles


class Program:
    """A traced function, reusable for any values of the same shapes and dtypes.

    Attributes:
        narrowed: floating dtype to which values are cast in the program -> the line of a cast. A cast changes nothing
            here. So a program with such a cast rounds where this evaluation does not.
        structure: the tree of the outputs, for `jax.tree.unflatten`.
        notes: what kernels of the last evaluation computed from memory that nobody wrote.
        tiles: how the blocks of its kernels lay in their arrays.
    """

    def __init__(self, closed: Any, inputs: Any, structure: Any) -> None:
        self.structure = structure
        self.notes: list[str] = []
        self.tiles: Tiles = {}
        self._inputs, self._avals = inputs, [variable.aval for variable in closed.jaxpr.invars]
        self._closed = closed
        self._block: Block | None = None
        self._narrowed: dict[str, str] = {}

    @property
    def narrowed(self) -> dict[str, str]:
        """See the class."""
        self._compiled()
        return self._narrowed

    def _compiled(self) -> Block:
        if balls.standing_now():
            return Flat(self._closed.jaxpr, self._closed.consts, self._narrowed, {}).block()[0]
        if self._block is None:
            flat = Flat(self._closed.jaxpr, self._closed.consts, self._narrowed, {})
            self._block, _ = flat.block()
        return self._block

    def evaluate(self, *args: Any, digits: int = balls.DIGITS, watch: Watch | None = None) -> list[Any]:
        """The outputs as a flat list: arrays of balls for floats, NumPy arrays for integers and booleans.

        Args:
            args: trees of the same structure as when the function was traced; a leaf may be an array of balls.
            digits: decimal digits of the midpoints.
            watch: called after every equation, within loops too, with the name of its primitive, its line
                (``file.py:123``) and the values of its outputs.

        Raises:
            Unknown: a primitive has no rule; the message has its name and line.
            Undecided: a comparison was not decided; the message has its line.
        """
        leaves, structure = jax.tree.flatten(args)
        if structure != self._inputs:
            raise TypeError(f"the program was traced with {self._inputs}, not with {structure}")
        with balls.digits(digits), np.errstate(all="ignore"):
            given = [rules.data(leaf, aval.dtype) for leaf, aval in zip(leaves, self._avals, strict=True)]
            for value, aval in zip(given, self._avals, strict=True):
                if value.shape != aval.shape:
                    raise TypeError(f"the program was traced with shape {aval.shape}, not with {value.shape}")
            self.notes, self.tiles = [], {}
            return self._compiled()([given], Run(watch=watch, notes=self.notes, tiles=self.tiles))[0]


def trace(function: Callable[..., Any], *args: Any) -> Program:
    """Trace a function of trees of arrays.

    Args:
        args: arrays of JAX or NumPy, numbers, random keys, or arrays of balls, which count as float64 or complex128.
            With one of 64 bits among them the function is traced with 64 bits.
    """
    leaves, inputs = jax.tree.flatten(args)
    shaped = [_shaped(leaf) for leaf in leaves]
    outputs: list[Any] = []

    def flat(*values: Any) -> list[Any]:
        found, structure = jax.tree.flatten(function(*jax.tree.unflatten(inputs, values)))
        outputs[:] = [structure]
        return found

    wide = jax.dtypes.canonicalize_dtype(np.float64) == np.float64 or any(_wide(leaf) for leaf in shaped)
    with jax.enable_x64(wide), _lines_of_backward_passes():
        closed = jax.make_jaxpr(flat)(*shaped)
    return Program(closed, inputs, outputs[0])


@contextlib.contextmanager
def _lines_of_backward_passes() -> Iterator[None]:
    """The scope in which what the backward pass of a `jax.custom_vjp` computes has the lines of that pass.

    JAX gives it the line that calls the function, as it gives all that it transposes the line of the forward pass.
    """
    flatten = getattr(custom_derivatives, "_flatten_bwd", None)
    if flatten is None:  # another JAX; a test fails then
        yield
        return

    def flattened(backward: Any, *args: Any) -> Any:
        def with_own_lines(*given: Any) -> Any:
            now = source_info_util._source_info_context
            with mock.patch.object(now, "context", source_info_util.SourceInfo(None, now.context.name_stack)):
                return backward.call_wrapped(*given)

        return flatten(linear_util.wrap_init(with_own_lines, debug_info=backward.debug_info), *args)

    with mock.patch.object(custom_derivatives, "_flatten_bwd", flattened):
        yield


def _shaped(leaf: Any) -> Any:
    """What JAX traces in the place of a leaf."""
    if isinstance(leaf, np.ndarray) and leaf.dtype == object:
        return jax.ShapeDtypeStruct(leaf.shape, np.complex128 if balls.is_complex(leaf) else np.float64)
    return leaf


def _wide(leaf: Any) -> bool:
    """Whether a leaf has a dtype of 64 bits, or a complex one with 64 bits for each part."""
    return str(getattr(leaf, "dtype", "")) in ("float64", "int64", "uint64", "complex128")
