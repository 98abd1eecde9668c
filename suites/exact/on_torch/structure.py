"""Operations that move numbers about and change none of them.

PyTorch itself runs most of them, on the places of the balls in one long row. The places are floats, because some
operations take no integers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from flint import arb

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_torch.elementwise import truncated
from gradgate.suites.exact.on_torch.rules import call, mixed, number, numbers
from gradgate.suites.exact.on_torch.shadows import INEXACT, as_numpy

MOVING = (
    "stack",
    "index",
    "_unsafe_index",
    "index_select",
    "gather",
    "scatter",
    "index_put",
    "_unsafe_index_put",
    "roll",
    "rot90",
    "constant_pad_nd",
    "repeat",
    "masked_scatter",
    "masked_select",
    "take",
    "put",
    "as_strided_scatter",
    "select_scatter",
    "slice_scatter",
    "diagonal_scatter",
    "diagonal_backward",
    "diag_embed",
    "tril",
    "triu",
    "index_copy",
    "index_fill",
    "reflection_pad1d",
    "reflection_pad2d",
    "reflection_pad3d",
    "replication_pad1d",
    "replication_pad2d",
    "replication_pad3d",
    "pixel_shuffle",
    "pixel_unshuffle",
    "channel_shuffle",
    "embedding",
    "expand_copy",
    "permute_copy",
    "transpose_copy",
    "t_copy",
    "squeeze_copy",
    "unsqueeze_copy",
    "select_copy",
    "slice_copy",
    "view_copy",
    "_reshape_copy",
    "as_strided_copy",
    "diagonal_copy",
    "unfold_copy",
    "alias_copy",
    "detach_copy",
    "split_copy",
    "split_with_sizes_copy",
    "unbind_copy",
    "narrow_copy",
    "_unsafe_masked_index",
)

VALUES = {"value", "values", "fill_value", "fill"}
"""Names of arguments that are a number to insert, not a place."""


class _Row:
    """All balls of a call in one row; the place 0 is a zero."""

    def __init__(self, read: Any) -> None:
        self.read = read
        self.parts: list[Any] = [np.array([arb(0)], object)]
        self.size = 1

    def places(self, value: Any) -> Any:
        """An argument with places instead of floats."""
        if isinstance(value, torch.Tensor):
            return self._add(self.read(value)) if value.dtype in INEXACT else value.cpu()
        if isinstance(value, (list, tuple)):
            return [self.places(item) for item in value]
        return value

    def _add(self, array: Any) -> Any:
        first = self.size
        self.parts.append(array.reshape(-1))
        self.size += array.size
        return torch.arange(first, self.size, dtype=torch.float64).reshape(array.shape)

    def place(self, value: Any) -> Any:
        """The place of a Python number that is inserted."""
        self.parts.append(np.array([number(value)], object))
        self.size += 1
        return self.size - 1

    def take(self, found: Any) -> Any:
        """The balls at the places that the operation returned."""
        row = np.concatenate(self.parts)
        if isinstance(found, (list, tuple)):
            return [row[as_numpy(item).astype(np.int64)] for item in found]
        return row[as_numpy(found).astype(np.int64)]


def move(this: Any) -> Any:
    """Run the operation itself on the places of balls."""
    row, given = _Row(this.read), this.named()
    if given.get("accumulate"):
        return put_accumulated(this, given)
    changed: dict[str, Any] = {}
    for name, value in given.items():
        scalar = name in VALUES and isinstance(value, (bool, int, float, complex))
        changed[name] = row.place(value) if scalar else row.places(value)
    if this.name == "constant_pad_nd" and "value" not in changed:
        changed["value"] = 0
    return row.take(this.functional()(**changed))


for _name in MOVING:
    call(_name)(move)


def put_accumulated(this: Any, given: dict[str, Any]) -> Any:
    """`index_put` that adds: each number is added where its index says."""
    target = this.read(given["self"])
    places = torch.arange(target.size).reshape(target.shape)
    if this.name == "put":
        return added(target, as_numpy(given["index"].cpu()), this.read(given["source"]))
    indices = [index if index is None else index.cpu() for index in given["indices"]]
    where = as_numpy(torch.ops.aten.index.Tensor(places, indices))
    return added(target, where, np.broadcast_to(balls.whole(this.read(given["values"])), where.shape))


def added(target: Any, where: Any, values: Any) -> Any:
    """A copy of `target` with `values` added at flat places."""
    result = target.reshape(-1).copy()
    for place, value in zip(where.reshape(-1).tolist(), values.reshape(-1).tolist(), strict=True):
        result[place] = result[place] + value
    return result.reshape(target.shape)


@numbers("select_backward")
def select_backward(upstream: Any, input_sizes: Any, dim: int, index: int) -> Any:
    """Zeros with the upstream numbers at one place of an axis; the most frequent call in a loop's backward pass."""
    return _put(upstream, input_sizes, dim, index)


@numbers("slice_backward")
def slice_backward(upstream: Any, input_sizes: Any, dim: int, start: int, end: int, step: int) -> Any:
    """Zeros with the upstream numbers in a slice of an axis."""
    return _put(upstream, input_sizes, dim, slice(start, end, step))


def _put(upstream: Any, shape: Any, dim: int, where: int | slice) -> Any:
    result = balls.full(tuple(shape), 0)
    np.moveaxis(result, dim, 0)[where] = upstream if isinstance(where, int) else np.moveaxis(upstream, dim, 0)
    return result


@mixed("cat")
def cat(tensors: list[Any], dim: int = 0) -> Any:
    """Tensors, one after the other, along an axis; PyTorch leaves out empty tensors of one axis."""
    arrays = [balls.exact(each) for each in tensors]
    arrays = [each for each in arrays if each.shape != (0,)] or arrays[:1]
    return np.concatenate(arrays, axis=dim)


@mixed("clone", "lift", "_to_copy")
def copy_of(a: Any, **_: Any) -> Any:
    """The same numbers in new memory, perhaps in another dtype."""
    return a


@call("copy")
def copied(this: Any) -> Any:
    """The numbers of another tensor, broadcast."""
    return np.broadcast_to(this.read(this.args[1]), tuple(this.args[0].shape))


@mixed("where")
def where(mask: Any, one: Any, other: Any) -> Any:
    """`one` where the mask is true, elsewhere `other`."""
    balls.selected(mask)
    return balls.choose(mask, balls.exact(number(one)), balls.exact(number(other)))


@mixed("masked_fill")
def masked_fill(a: Any, mask: Any, value: Any) -> Any:
    """`value` where the mask is true, elsewhere `a`."""
    return where(mask, value, a)


@mixed("flip")
def flip(a: Any, dims: Any) -> Any:
    """Reversed along axes."""
    return np.flip(a, tuple(dims))


@mixed("scatter_add")
def scatter_add(a: Any, dim: int, index: Any, src: Any) -> Any:
    """`src` added where the index says along an axis."""
    places = np.arange(a.size).reshape(a.shape)
    if not a.ndim:
        return added(a, np.zeros(index.size, int), np.broadcast_to(src, index.shape))
    part = tuple(slice(0, size) for size in index.shape)
    grid = list(np.meshgrid(*(np.arange(size) for size in index.shape), indexing="ij"))
    grid[dim % a.ndim] = index
    return added(a, places[tuple(grid)], src[part])


@mixed("index_add")
def index_add(a: Any, dim: int, index: Any, source: Any, alpha: Any = 1) -> Any:
    """Slices of `source` added where the index says along an axis."""
    result = np.moveaxis(a.copy(), dim, 0) if a.ndim else a.copy().reshape(1)
    pieces = np.moveaxis(source, dim, 0) if source.ndim else source.reshape(1)
    for place, piece in zip(np.atleast_1d(index).tolist(), pieces, strict=True):
        result[place] = result[place] + (piece if alpha == 1 else piece * number(alpha))
    return np.moveaxis(result, 0, dim) if a.ndim else result.reshape(())


@mixed("_unsafe_masked_index_put_accumulate")
def masked_put(a: Any, mask: Any, indices: list[Any], values: Any) -> Any:
    """Values added where the indices say and the mask holds."""
    axes = [axis for axis, each in enumerate(indices) if each is not None]
    if axes != list(range(len(axes))):
        raise balls.Unknown("aten._unsafe_masked_index_put_accumulate with a gap in its indices")
    clear = tuple(np.clip(indices[axis], 0, a.shape[axis] - 1) for axis in axes)
    at = np.arange(a.size).reshape(a.shape)[clear]
    wide = np.broadcast_to(values, at.shape)
    full = np.broadcast_to(mask, at.shape)
    return added(a, at[full], wide[full])


@mixed("embedding_dense_backward")
def embedding_backward(grad: Any, indices: Any, rows: int, padding: int, by_frequency: bool) -> Any:
    """Each cotangent added to the row that was looked up."""
    flat, result = indices.reshape(-1), balls.full((rows, grad.shape[-1]), 0)
    for place, piece in zip(flat.tolist(), grad.reshape(-1, grad.shape[-1]), strict=True):
        if place != padding:
            result[place] = result[place] + (piece / int((flat == place).sum()) if by_frequency else piece)
    return result


@mixed("unfold_backward")
def unfold_backward(grad: Any, sizes: Any, dim: int, size: int, step: int) -> Any:
    """Each cotangent added where `unfold` took its number from."""
    from_places = torch.arange(math.prod(sizes)).reshape(tuple(sizes)).unfold(dim, size, step)
    return added(balls.full(tuple(sizes), 0), as_numpy(from_places), grad)


@mixed("masked_scatter_backward")
def masked_scatter_backward(grad: Any, mask: Any, sizes: Any) -> Any:
    """The cotangents that the mask selects, at the start of a row of zeros."""
    row = balls.full((math.prod(sizes),), 0)
    taken = np.broadcast_to(grad, np.broadcast_shapes(grad.shape, mask.shape))[np.broadcast_to(mask, grad.shape)]
    row[: taken.size] = taken
    return row.reshape(tuple(sizes))


@call(*(f"{how}_pad{count}d_backward" for how in ("reflection", "replication") for count in (1, 2, 3)))
def padding_backward(this: Any) -> Any:
    """Each cotangent added where the padding took its number from."""
    given = this.named()
    shape = tuple(given["self"].shape)
    places = torch.arange(math.prod(shape), dtype=torch.float64).reshape(shape)
    forward = getattr(torch.ops.aten, this.name.removesuffix("_backward"))
    where = as_numpy(forward(places, given["padding"])).astype(np.int64)
    return added(balls.full(shape, 0), where, this.read(given["grad_output"]))


@call(*(f"{how}{count}d_backward" for how in ("upsample_nearest", "_upsample_nearest_exact") for count in (1, 2, 3)))
def repeated_backward(this: Any) -> Any:
    """Each cotangent added where its number was repeated from."""
    grad, _, shape, *scales = this.args
    places = torch.arange(math.prod(shape), dtype=torch.float64).reshape(tuple(shape))
    forward = getattr(torch.ops.aten, this.name.removesuffix("_backward"))
    where = as_numpy(forward(places, tuple(grad.shape[2:]), *scales)).astype(np.int64)
    return added(balls.full(tuple(shape), 0), where, this.read(grad))


@mixed("trace")
def trace(a: Any) -> Any:
    """The sum of the diagonal."""
    return sum(np.diagonal(a).tolist(), arb(0))


@call("fill")
def fill(this: Any) -> Any:
    """One number everywhere."""
    value = this.args[1]
    shape = tuple(this.args[0].shape)
    return np.broadcast_to(balls.exact(this.read(value) if isinstance(value, torch.Tensor) else number(value)), shape)


@call("linspace")
def linspace(this: Any) -> Any:
    """Numbers at equal distances, which floats round."""
    start, end, steps = (this.read(each) if isinstance(each, torch.Tensor) else each for each in this.args[:3])
    start, end = number(start), number(end)
    return np.array([start + (end - start) * i / max(steps - 1, 1) for i in range(steps)] or [], object)


@call("arange")
def arange(this: Any) -> Any:
    """Start + i·step, which floats round if the step is a fraction."""
    given = this.named()
    start, step = number(given.get("start", 0)), number(given.get("step", 1))
    return np.array([start + step * i for i in range(this.run().numel())] or [], object)


@call("native_dropout")
def native_dropout(this: Any) -> Any:
    """Numbers times a random mask over 1 − p; PyTorch draws the mask."""
    a, p, train = this.args[:3]
    value = this.read(a)
    _, mask = this.run()
    if train is False:
        return value, None
    kept = balls.exact(as_numpy(mask))
    return (value * kept / (1 - number(p)) if p < 1 else value * kept), None


@mixed("native_dropout_backward")
def native_dropout_backward(grad: Any, mask: Any, scale: Any) -> Any:
    """The cotangent times the mask, times the scale."""
    return grad * balls.exact(mask) * number(scale)


def whole_numbers(array: Any) -> Any:
    """Balls as whole numbers, cut towards zero as a cast does."""
    return np.asarray(balls.elementwise(lambda ball: int(truncated(ball).unique_fmpz()), array), np.int64)
