"""Operations that make fewer numbers of many, or run along an axis: sums, norms, extremes, softmax, sorting."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from flint import acb, arb

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_torch.elementwise import log_add
from gradgate.suites.exact.on_torch.rules import axes_of, kept, mixed, number, numbers

ZERO = arb(0)


@numbers("sum")
def total(a: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> Any:
    """Sum over axes."""
    axes = axes_of(dim, a.ndim)
    return kept(balls.total(a, axes), axes, keepdim)


@numbers("nansum")
def nansum(a: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> Any:
    """Sum over axes of what is a number."""
    return total(balls.elementwise(lambda x: ZERO if x.is_nan() else x, a), dim, keepdim)


def _count(a: Any, axes: tuple[int, ...]) -> int:
    return math.prod(a.shape[axis] for axis in axes)


@numbers("mean")
def mean(a: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> Any:
    """Sum over axes by their size."""
    axes = axes_of(dim, a.ndim)
    return kept(balls.total(a, axes), axes, keepdim) / arb(_count(a, axes))


def _moments(a: Any, dim: Any, correction: Any, keepdim: bool) -> tuple[Any, Any]:
    """Variance and mean; `dim` may be the old overload's `unbiased`."""
    if isinstance(dim, bool):
        dim, correction = None, int(dim)
    axes = axes_of(dim, a.ndim)
    size = _count(a, axes)
    middle = np.expand_dims(balls.whole(balls.total(a, axes)), axes) / arb(size) if axes else a
    apart = balls.whole(a - middle)
    squares = balls.elementwise(lambda x: (x * x.conjugate()).real if isinstance(x, acb) else x * x, apart)
    freedom = size - number(1 if correction is None else correction)
    variance = balls.total(squares, axes) / (arb(0) if freedom < 0 else freedom)
    middle = balls.whole(middle)
    return kept(variance, axes, keepdim), middle if keepdim or not axes else middle.reshape(np.shape(variance))


@numbers("var")
def var(a: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, correction: Any = None) -> Any:
    """Variance over axes."""
    return _moments(a, dim, _correction(unbiased, correction), keepdim)[0]


@numbers("std")
def std(a: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, correction: Any = None) -> Any:
    """√ of the variance over axes."""
    return balls.unary("sqrt", balls.whole(var(a, dim, unbiased, keepdim, correction)))


@numbers("var_mean")
def var_mean(a: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, correction: Any = None) -> Any:
    """Variance and mean over axes."""
    return _moments(a, dim, _correction(unbiased, correction), keepdim)


@numbers("std_mean")
def std_mean(a: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, correction: Any = None) -> Any:
    """Deviation and mean over axes."""
    variance, middle = _moments(a, dim, _correction(unbiased, correction), keepdim)
    return balls.unary("sqrt", balls.whole(variance)), middle


def _correction(unbiased: Any, correction: Any) -> Any:
    return correction if unbiased is None else int(unbiased)


@numbers("prod")
def product(a: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> Any:
    """Product over axes."""
    axes = axes_of(dim, a.ndim)
    return kept(balls.product(a, axes), axes, keepdim)


# Extremes -------------------------------------------------------------------------------------------------------------


@numbers("amax")
def amax(a: Any, dim: Any = (), keepdim: bool = False) -> Any:
    """The largest over axes."""
    axes = axes_of(dim, a.ndim)
    return kept(balls.extreme(a, axes, largest=True), axes, keepdim)


@numbers("amin")
def amin(a: Any, dim: Any = (), keepdim: bool = False) -> Any:
    """The smallest over axes."""
    axes = axes_of(dim, a.ndim)
    return kept(balls.extreme(a, axes, largest=False), axes, keepdim)


@numbers("aminmax")
def aminmax(a: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """The smallest and the largest."""
    return amin(a, dim, keepdim), amax(a, dim, keepdim)


def place_of_extreme(row: list[Any], largest: bool) -> int:
    """Where in a row the largest or smallest ball is, the first NaN if there is one.

    Raises:
        Undecided: two balls are not told apart, and are not one and the same object or equal points.
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
        return kept(places(a, dim, largest), axes_of(dim, a.ndim), keepdim)

    return rule


numbers("argmax")(_argument(True))
numbers("argmin")(_argument(False))


def _extreme(largest: bool) -> Callable[..., Any]:
    def rule(a: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if dim is None:
            return balls.extreme(a, axes_of(None, a.ndim), largest)
        where = places(a, dim, largest)
        axes = axes_of(dim, a.ndim)
        return kept(picked(a, where, dim), axes, keepdim), kept(where, axes, keepdim)

    return rule


numbers("max")(_extreme(True))
numbers("min")(_extreme(False))


def ordered(row: list[Any], descending: bool) -> list[int]:
    """The places of a row's balls in order; equal points stay in theirs.

    Raises:
        Undecided: two of them are not told apart.
    """

    def after(one: int, other: int) -> int:
        if balls.compare("lt", row[one], row[other]):
            return -1
        return 0 if balls.compare("eq", row[one], row[other]) else 1

    order = sorted(range(len(row)), key=functools.cmp_to_key(after))
    return sorted(order, key=functools.cmp_to_key(lambda i, j: after(j, i))) if descending else order


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
    return tuple(kept(each, axes, keepdim) for each in found)


@numbers("any")
def any_of(a: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """Whether any is not zero."""
    return np.any(balls.compare("ne", a, ZERO), axis=axes_of(dim, a.ndim), keepdims=keepdim)


@numbers("all")
def all_of(a: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """Whether none is zero."""
    return np.all(balls.compare("ne", a, ZERO), axis=axes_of(dim, a.ndim), keepdims=keepdim)


@numbers("count_nonzero")
def count_nonzero(a: Any, dim: Any = None) -> Any:
    """How many are not zero."""
    return np.sum(balls.compare("ne", a, ZERO), axis=axes_of(dim, a.ndim), dtype=np.int64)


# Norms ----------------------------------------------------------------------------------------------------------------


@numbers("linalg_vector_norm")
def vector_norm(a: Any, order: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """The norm of an order over axes."""
    axes = axes_of(dim, a.ndim)
    sizes = balls.elementwise(abs, a)
    if order == math.inf or order == -math.inf:
        return kept(balls.extreme(sizes, axes, largest=order > 0), axes, keepdim)
    if order == 0:
        return kept(balls.total(balls.exact(balls.compare("ne", sizes, ZERO)), axes), axes, keepdim)
    if order == 1:
        return kept(balls.total(sizes, axes), axes, keepdim)
    if order == 2:
        squares = balls.whole(sizes * sizes)
        return kept(balls.unary("sqrt", balls.whole(balls.total(squares, axes))), axes, keepdim)
    p = number(order)
    powers = balls.total(balls.elementwise(lambda x: balls.power(x, p), sizes), axes)
    return kept(balls.elementwise(lambda x: balls.power(x, 1 / p), powers), axes, keepdim)


@numbers("norm")
def norm(a: Any, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """`vector_norm` with its arguments of old."""
    if balls.is_balls(p):
        raise balls.Unknown("aten.norm with a tensor for its order")
    return vector_norm(a, 2 if p is None else p, dim, keepdim)


# Along an axis --------------------------------------------------------------------------------------------------------


def _running(function: Callable[[Any, Any], Any], a: Any, dim: int) -> Any:
    return balls.running(function, a, dim) if a.ndim else a


@numbers("cumsum")
def cumsum(a: Any, dim: int, dtype: Any = None) -> Any:
    """The running sum."""
    return _running(lambda x, y: x + y, a, dim)


@numbers("cumprod")
def cumprod(a: Any, dim: int, dtype: Any = None) -> Any:
    """The running product."""
    return _running(lambda x, y: x * y, a, dim)


@numbers("logcumsumexp")
def logcumsumexp(a: Any, dim: int) -> Any:
    """The logarithm of the running sum of exponentials."""
    return _running(log_add, a, dim)


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


@numbers("logsumexp")
def logsumexp(a: Any, dim: Any, keepdim: bool = False) -> Any:
    """The logarithm of the sum of exponentials; balls never overflow."""
    axes = axes_of(dim, a.ndim)
    return kept(balls.unary("log", balls.whole(balls.total(balls.unary("exp", a), axes))), axes, keepdim)


@numbers("_softmax", "_safe_softmax")
def softmax(a: Any, dim: int, half_to_float: Any = False, dtype: Any = None) -> Any:
    """Exponentials by their sum."""
    powers = balls.unary("exp", a)
    axes = axes_of(dim, a.ndim)
    return balls.elementwise(_share, powers, kept(balls.total(powers, axes), axes, True))


def _share(power: Any, whole: Any) -> Any:
    return power / whole


@numbers("_log_softmax")
def log_softmax(a: Any, dim: int, half_to_float: Any = False, dtype: Any = None) -> Any:
    """Numbers less the logarithm of the sum of their exponentials."""
    return a - logsumexp(a, dim, True)


@numbers("_softmax_backward_data")
def softmax_backward(grad: Any, y: Any, dim: int, dtype: Any = None) -> Any:
    """Of y = softmax x."""
    axes, product = axes_of(dim, y.ndim), balls.whole(grad * y)
    return product - y * kept(balls.total(product, axes), axes, True)


@numbers("_log_softmax_backward_data")
def log_softmax_backward(grad: Any, y: Any, dim: int, dtype: Any = None) -> Any:
    """Of y = log softmax x."""
    axes = axes_of(dim, y.ndim)
    return grad - balls.unary("exp", y) * kept(balls.total(balls.whole(grad), axes), axes, True)


@mixed("nonzero")
def nonzero(a: Any) -> Any:
    """Where numbers are not zero; `mode` writes the answer only if it has the shape that floats had."""
    return np.stack(np.nonzero(np.atleast_1d(balls.compare("ne", balls.exact(a), ZERO))), axis=-1)
