"""The largest and smallest of many, where they are, and sorting: decided by balls."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_torch.rules import axes_of, numbers, with_axes


@numbers("amax")
def amax(a: Any, dim: Any = (), keepdim: bool = False) -> Any:
    """The largest over axes."""
    axes = axes_of(dim, a.ndim)
    return with_axes(balls.extreme(a, axes, largest=True), axes, keepdim)


@numbers("amin")
def amin(a: Any, dim: Any = (), keepdim: bool = False) -> Any:
    """The smallest over axes."""
    axes = axes_of(dim, a.ndim)
    return with_axes(balls.extreme(a, axes, largest=False), axes, keepdim)


@numbers("aminmax")
def aminmax(a: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """The smallest and the largest."""
    return amin(a, dim, keepdim), amax(a, dim, keepdim)


def place_of_extreme(row: list[Any], largest: bool) -> int:
    """The place of the largest or smallest ball in a row; the first NaN if there is one.

    Raises:
        Undecided: two balls overlap, and are neither the same object nor equal points.
    """
    best = 0
    for place in range(1, len(row)):
        if row[best].is_nan():
            break
        if row[place].is_nan() or balls.compare("gt" if largest else "lt", row[place], row[best]):
            best = place
    return best


def places(a: Any, axis: int, largest: bool) -> Any:
    """Where the extremes along an axis are."""
    if not a.ndim:
        return np.zeros((), np.int64)
    turned = np.moveaxis(a, axis, -1)
    rows = turned.reshape(-1, turned.shape[-1]).tolist()
    return np.array([place_of_extreme(row, largest) for row in rows], np.int64).reshape(turned.shape[:-1])


def picked(a: Any, where: Any, axis: int) -> Any:
    """The elements at places along an axis."""
    return np.take_along_axis(a, np.expand_dims(where, axis), axis).squeeze(axis) if a.ndim else a


def _argument(largest: bool) -> Callable[..., Any]:
    def rule(a: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if dim is None:
            found = places(a.reshape(-1), 0, largest)
            return found.reshape((1,) * a.ndim) if keepdim else found
        return with_axes(places(a, dim, largest), axes_of(dim, a.ndim), keepdim)

    return rule


numbers("argmax")(_argument(True))
numbers("argmin")(_argument(False))


def _extreme(largest: bool) -> Callable[..., Any]:
    def rule(a: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if dim is None:
            return balls.extreme(a, axes_of(None, a.ndim), largest)
        where = places(a, dim, largest)
        axes = axes_of(dim, a.ndim)
        return with_axes(picked(a, where, dim), axes, keepdim), with_axes(where, axes, keepdim)

    return rule


numbers("max")(_extreme(True))
numbers("min")(_extreme(False))


def ordered(row: list[Any], descending: bool) -> list[int]:
    """The places of a row's balls in sorted order; equal points keep their order.

    Raises:
        Undecided: two balls overlap, and are neither the same object nor equal points.
    """

    def after(one: int, other: int) -> int:
        if balls.compare("lt", row[one], row[other]):
            return -1
        return 0 if balls.compare("eq", row[one], row[other]) else 1

    def before(one: int, other: int) -> int:
        return after(other, one)

    order = sorted(range(len(row)), key=functools.cmp_to_key(after))
    return sorted(order, key=functools.cmp_to_key(before)) if descending else order


@numbers("sort")
def sort(a: Any, dim: Any = -1, descending: bool = False, stable: Any = None) -> Any:
    """In order along an axis, and where each was."""
    if isinstance(dim, bool):
        raise balls.Unknown("aten.sort with arguments in an unusual order")
    if not a.ndim:
        return a, np.zeros((), np.int64)
    turned = np.moveaxis(a, dim, -1)
    rows = [ordered(row, descending) for row in turned.reshape(-1, turned.shape[-1]).tolist()]
    where = np.moveaxis(np.array(rows, np.int64).reshape(turned.shape), -1, dim)
    return np.take_along_axis(a, where, dim), where


@numbers("topk")
def topk(a: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The k largest or smallest along an axis, and where each was."""
    values, where = sort(a, dim, largest)
    first = [slice(None)] * a.ndim
    if a.ndim:
        first[dim] = slice(0, k)
    return values[tuple(first)], where[tuple(first)]


@numbers("median", "nanmedian")
def median(a: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """The lower of the middle numbers, and where it was."""
    if dim is None:
        row = a.reshape(-1)
        return row[ordered(row.tolist(), False)[(row.size - 1) // 2]]
    values, where = sort(a, dim)
    middle, axes = (a.shape[dim] - 1) // 2, axes_of(dim, a.ndim)
    found = [np.take(each, middle, axis=dim) for each in (values, where)]
    return tuple(with_axes(each, axes, keepdim) for each in found)


def _cumulative(largest: bool) -> Callable[..., Any]:
    def rule(a: Any, dim: int) -> Any:
        if not a.ndim:
            return a, np.zeros((), np.int64)
        turned = np.moveaxis(a, dim, -1)
        where = np.zeros(turned.shape, np.int64)
        for index in np.ndindex(turned.shape[:-1]):
            row, best = turned[index], 0
            for place in range(len(row)):
                if balls.compare("ge" if largest else "le", row[place], row[best]):
                    best = place
                where[(*index, place)] = best
        where = np.moveaxis(where, -1, dim)
        return np.take_along_axis(a, where, dim), where

    return rule


numbers("cummax")(_cumulative(True))
numbers("cummin")(_cumulative(False))
