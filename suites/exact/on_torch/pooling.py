"""Pooling over windows: averages and maxima, with their derivatives."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from flint import arb

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_torch.extremes import place_of_extreme
from gradgate.suites.exact.on_torch.rules import call

Window = tuple[tuple[int, ...], tuple[slice, ...], int]
"""The place of the output, the slices of the input, and what the sum is divided by."""


def _many(value: Any, count: int, default: Any = None) -> list[int]:
    if value is None or (isinstance(value, (list, tuple)) and not value):
        return list(default)
    many = list(value) if isinstance(value, (list, tuple)) else [value]
    return many * count if len(many) == 1 else many


def _average_windows(spatial: Any, output: Any, given: dict[str, Any]) -> Iterator[Window]:
    count = len(output)
    kernel = _many(given["kernel_size"], count)
    stride = _many(given.get("stride"), count, kernel)
    padding = _many(given.get("padding", 0), count)
    include, forced = given.get("count_include_pad", True), given.get("divisor_override")
    for place in itertools.product(*(range(size) for size in output)):
        start = [p * s - pad for p, s, pad in zip(place, stride, padding, strict=True)]
        end = [min(a + k, n + pad) for a, k, n, pad in zip(start, kernel, spatial, padding, strict=True)]
        cut = [slice(max(a, 0), min(b, n)) for a, b, n in zip(start, end, spatial, strict=True)]
        size = math.prod(b - a for a, b in zip(start, end, strict=True))
        clipped = math.prod(each.stop - each.start for each in cut)
        yield place, tuple(cut), forced or (size if include else clipped)


def _adaptive_windows(spatial: Any, output: Any) -> Iterator[Window]:
    for place in itertools.product(*(range(size) for size in output)):
        cut = tuple(slice(p * n // m, -(-(p + 1) * n // m)) for p, n, m in zip(place, spatial, output, strict=True))
        yield place, cut, math.prod(each.stop - each.start for each in cut)


def _averaged(x: Any, shape: tuple[int, ...], windows: Iterator[Window], count: int) -> Any:
    result: Any = np.empty(shape, object)
    axes = tuple(range(x.ndim - count, x.ndim))
    for place, cut, divisor in windows:
        result[(..., *place)] = balls.total(x[(..., *cut)], axes) / arb(divisor)
    return result


def _spread(grad: Any, shape: tuple[int, ...], windows: Iterator[Window], count: int) -> Any:
    result = balls.full(shape, 0)
    for place, cut, divisor in windows:
        share = balls.whole(grad[(..., *place)] / arb(divisor))
        result[(..., *cut)] = result[(..., *cut)] + share[(..., *(None,) * count)]
    return result


def _dimensions(name: str) -> int:
    return 3 if "3d" in name else 2 if "2d" in name else 1


@call("avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
def average(this: Any) -> Any:
    """The mean of each window; the size of the output is PyTorch's."""
    given, count, shape = this.named(), _dimensions(this.name), tuple(this.run().shape)
    x = this.read(given["self"])
    spatial, output = x.shape[-count:], shape[-count:]
    adaptive = "adaptive" in this.name
    windows = _adaptive_windows(spatial, output) if adaptive else _average_windows(spatial, output, given)
    return _averaged(x, shape, windows, count)


@call("avg_pool2d_backward", "avg_pool3d_backward", "_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward")
def average_backward(this: Any) -> Any:
    """The cotangent of each window, divided among its elements."""
    given, count = this.named(), _dimensions(this.name)
    grad, shape = this.read(given["grad_output"]), tuple(given["self"].shape)
    spatial, output = shape[-count:], grad.shape[-count:]
    adaptive = "adaptive" in this.name
    windows = _adaptive_windows(spatial, output) if adaptive else _average_windows(spatial, output, given)
    return _spread(grad, shape, windows, count)


@call("max_pool2d_with_indices", "max_pool3d_with_indices")
def largest(this: Any) -> Any:
    """The largest of each window and its place, decided by the balls."""
    given, count = this.named(), _dimensions(this.name)
    shape = tuple(this.run()[0].shape)
    x = this.read(given["self"])
    spatial, output, lead = x.shape[-count:], shape[-count:], shape[:-count]
    kernel = _many(given["kernel_size"], count)
    stride = _many(given.get("stride"), count, kernel)
    padding, dilation = _many(given.get("padding", 0), count), _many(given.get("dilation", 1), count)
    places = np.arange(math.prod(spatial)).reshape(spatial)
    values, where = np.empty(shape, object), np.empty(shape, np.int64)
    for place in itertools.product(*(range(size) for size in output)):
        seen = [
            [i for i in range(p * s - pad, p * s - pad + k * d, d) if 0 <= i < n]
            for p, s, pad, k, d, n in zip(place, stride, padding, kernel, dilation, spatial, strict=True)
        ]
        window = places[np.ix_(*seen)].reshape(-1)
        for index in itertools.product(*(range(size) for size in lead)):
            row = x[index].reshape(-1)[window].tolist()
            best = place_of_extreme(row, True)
            values[(*index, *place)], where[(*index, *place)] = row[best], window[best]
    return values, where


@call("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward")
def largest_backward(this: Any) -> Any:
    """Each cotangent to the place where the largest was."""
    given, count = this.named(), _dimensions(this.name)
    grad, where, shape = this.read(given["grad_output"]), this.read(given["indices"]), tuple(given["self"].shape)
    lead, size = math.prod(shape[:-count]), math.prod(shape[-count:])
    result = balls.full((lead, size), 0)
    for row, (values, places) in enumerate(zip(grad.reshape(lead, -1), where.reshape(lead, -1), strict=True)):
        for value, place in zip(values.tolist(), places.tolist(), strict=True):
            result[row, place] = result[row, place] + value
    return result.reshape(shape)
