"""gather, scatter and dynamic slices: XLA's index arithmetic in NumPy, so that nothing compiles."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_jax.choices import LARGER, SMALLER
from gradgate.suites.exact.on_jax.rules import Run, blank, inexact, kind, lockstep, rule


def _starts(indices: Sequence[Any], shape: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Where a dynamic slice begins; the slice is moved so that it fits."""
    pairs = zip(indices, shape, sizes, strict=True)
    return [min(max(int(index), 0), length - size) for index, length, size in pairs]


@rule("dynamic_slice")
def dynamic_slice(equation: Any) -> Run:
    """A part at computed places."""
    sizes = equation.params["slice_sizes"]
    rank = len(sizes)
    ranges = [(length - size, size) for length, size in zip(equation.invars[0].aval.shape, sizes, strict=True)]

    def run(x: Any, *indices: Any) -> Any:
        parts = []
        for index, (last, size) in zip(indices[:rank], ranges, strict=True):
            start = min(max(int(index), 0), last)
            parts.append(slice(start, start + size))
        return x[tuple(parts)]

    return run


@rule("dynamic_update_slice")
def dynamic_update_slice(equation: Any) -> Run:
    """The array with a part at computed places replaced."""

    def run(x: Any, update: Any, *indices: Any) -> Any:
        starts = _starts(indices, x.shape, update.shape)
        result = x.copy()
        result[tuple(slice(at, at + size) for at, size in zip(starts, update.shape, strict=True))] = update
        return result

    return run


@dataclass(frozen=True)
class Layout:
    """What gather and scatter have in common: windows into an operand, one for each row of indices.

    Attributes:
        window: lengths of a window along every dimension of the operand.
        offset: dimensions of the batched side (gather's output, scatter's updates) that run within a window.
        kept: dimensions of the operand that correspond to those of `offset`, in order.
        index_map: dimensions of the operand along which the numbers of one row of indices place the window.
        operand_batching: dimensions of the operand that run with those of the indices in `indices_batching`.
    """

    window: tuple[int, ...]
    offset: tuple[int, ...]
    kept: tuple[int, ...]
    index_map: tuple[int, ...]
    operand_batching: tuple[int, ...]
    indices_batching: tuple[int, ...]

    def places(self, indices: Any, shape: tuple[int, ...], clips: bool) -> tuple[Any, Any]:
        """Where in the flat operand each element of the batched side lies, and whether it lies there at all.

        Both have the shape of the batched side; a place outside is 0. With `clips` windows are moved inside.
        """
        rows = indices.shape[:-1]
        limits, steps, stride, within, nowhere = self._fixed(shape)
        starts = indices.astype(np.int64)
        if indices.dtype == np.uint64:
            starts = np.where(indices > np.iinfo(np.int64).max, np.iinfo(np.int64).max, starts)
        if clips:
            starts = np.clip(starts, 0, np.maximum(limits, 0))
        inside = ((starts >= 0) & (starts <= limits)).all(-1)
        base = (np.where(inside[..., None], starts, 0) * steps).sum(-1)
        for operand_axis, index_axis in zip(self.operand_batching, self.indices_batching, strict=True):
            along = [1] * len(rows)
            along[index_axis] = rows[index_axis]
            base = base + np.arange(rows[index_axis]).reshape(along) * stride[operand_axis]
        return self._spread(base, within), self._spread(inside, nowhere).astype(bool)

    @functools.lru_cache(maxsize=1024)  # noqa: B019 - few numbers for each
    def _fixed(self, shape: tuple[int, ...]) -> tuple[Any, Any, list[int], Any, Any]:
        """What depends on shapes alone: last starts, their strides, all strides, places within a window, zeros."""
        stride = _strides(shape)
        limits = np.array([shape[d] - self.window[d] for d in self.index_map], np.int64)
        steps = np.array([stride[d] for d in self.index_map], np.int64)
        within = np.zeros([self.window[d] for d in self.kept], np.int64)
        for axis, dimension in enumerate(self.kept):
            along = [1] * within.ndim
            along[axis] = self.window[dimension]
            within = within + np.arange(self.window[dimension]).reshape(along) * stride[dimension]
        return limits, steps, stride, within, np.zeros(within.shape, np.int64)

    def _spread(self, rows: Any, within: Any) -> Any:
        """One number for each row plus one for each place within a window, in the batched side's order."""
        rank = rows.ndim + within.ndim
        batch = [d for d in range(rank) if d not in self.offset]
        combined = rows.reshape(rows.shape + (1,) * within.ndim) + within
        before = {place: axis for axis, place in enumerate((*batch, *self.offset))}
        return combined.transpose([before[axis] for axis in range(rank)])


def _strides(shape: tuple[int, ...]) -> list[int]:
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def _gather_layout(equation: Any) -> Layout:
    numbers, window = equation.params["dimension_numbers"], tuple(equation.params["slice_sizes"])
    gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    kept = tuple(d for d in range(len(window)) if d not in gone)
    return Layout(
        window,
        tuple(numbers.offset_dims),
        kept,
        tuple(numbers.start_index_map),
        tuple(numbers.operand_batching_dims),
        tuple(numbers.start_indices_batching_dims),
    )


def _scatter_layout(equation: Any) -> Layout:
    numbers = equation.params["dimension_numbers"]
    shape, updates = equation.invars[0].aval.shape, equation.invars[2].aval.shape
    gone = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    kept = tuple(d for d in range(len(shape)) if d not in gone)
    window = [1] * len(shape)
    for dimension, axis in zip(kept, numbers.update_window_dims, strict=True):
        window[dimension] = updates[axis]
    return Layout(
        tuple(window),
        tuple(numbers.update_window_dims),
        kept,
        tuple(numbers.scatter_dims_to_operand_dims),
        tuple(numbers.operand_batching_dims),
        tuple(numbers.scatter_indices_batching_dims),
    )


@rule("gather")
def gather(equation: Any) -> Run:
    """Windows of an operand; what lies outside is filled, or the window is moved inside."""
    layout, shape = _gather_layout(equation), equation.invars[0].aval.shape
    fills = equation.params["mode"] == jax.lax.GatherScatterMode.FILL_OR_DROP
    filler = blank(equation.outvars[0].aval.update(shape=()), _fill(equation))[()] if fills else None

    def run(operand: Any, indices: Any) -> Any:
        where, inside = layout.places(indices, shape, not fills)  # XLA clips windows that are promised to lie inside
        if not operand.size:
            result = np.empty(where.shape, operand.dtype)
            result[...] = filler
            return result
        found = operand.reshape(-1)[where]
        if fills and not inside.all():
            found = np.where(inside, found, filler)
        return found

    return run


def _fill(equation: Any) -> Any:
    """The value for places outside the operand: JAX's default, unless the program gives one."""
    asked, held = equation.params["fill_value"], kind(equation.invars[0])
    if asked is not None:
        return np.asarray(asked).item()
    if held in "fc":
        return math.nan
    dtype = equation.invars[0].aval.dtype
    return True if held == "b" else np.iinfo(dtype).max if held == "u" else np.iinfo(dtype).min if held == "i" else 0


_COMBINED: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "scatter-add": (np.add, np.add),
    "scatter-sub": (np.subtract, np.subtract),
    "scatter-mul": (np.multiply,) * 2,
    "scatter-min": (SMALLER, np.minimum),
    "scatter-max": (LARGER, np.maximum),
}


def _landed(equation: Any, indices: Any, layout: Layout) -> tuple[list[int], list[int]]:
    """Which updates fall into the operand, and where."""
    clips = equation.params["mode"] == jax.lax.GatherScatterMode.CLIP
    where, inside = layout.places(indices, equation.invars[0].aval.shape, clips)
    chosen = np.flatnonzero(inside.reshape(-1))
    return chosen.tolist(), where.reshape(-1)[chosen].tolist()


@rule(*_COMBINED)
def scatter_combined(equation: Any) -> Run:
    """Updates combined with the values in their places; updates that fall outside are dropped."""
    layout = _scatter_layout(equation)
    real, plain = _COMBINED[equation.primitive.name]
    exact = inexact(equation.invars[0])

    def run(operand: Any, indices: Any, updates: Any) -> Any:
        result = operand.copy().reshape(-1)
        flat = updates.reshape(-1)
        which, where = _landed(equation, indices, layout)
        if exact:
            for source, target in zip(which, where, strict=True):
                result[target] = real(result[target], flat[source])
        elif which:
            plain.at(result, where, flat[which])  # type: ignore[attr-defined]
        return result.reshape(operand.shape)

    return run


@lockstep("scatter")
def scatter(equation: Any, compiled: Any, needed: list[bool]) -> Any:
    """Updates replace the values in their places; or, for `apply`, a function of these values does."""
    layout = _scatter_layout(equation)
    body = equation.params["update_jaxpr"]
    function = _applied(equation, compiled, body)

    def put(operand: Any, indices: Any, updates: Any, run: Any) -> Any:
        result = operand.copy().reshape(-1)
        which, where = _landed(equation, indices, layout)
        if function is None:
            result[where] = updates.reshape(-1)[which]
        else:
            flat = updates.reshape(-1)
            for source, target in zip(which, where, strict=True):
                result[target] = function(result[target], flat[source], run)
        return result.reshape(operand.shape)

    return lambda lanes, run: [put(values[0], values[1], values[2], run) for values in lanes]


def _applied(equation: Any, compiled: Any, body: Any) -> Callable[..., Any] | None:
    """The function of `x.at[…].apply`, unless the update simply replaces."""
    if body is None or (not body.eqns and body.outvars[0] is body.invars[1]):
        return None
    block, _ = compiled(ClosedJaxpr(body, equation.params["update_consts"])).block()

    def call(one: Any, other: Any, run: Any) -> Any:
        return block([[balls.whole(one), balls.whole(other)]], run)[0][0][()]

    return call
