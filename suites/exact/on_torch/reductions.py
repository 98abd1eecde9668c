"""Operations that reduce many numbers to fewer, or run along an axis: sums, norms, extremes, softmax, sorting."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from flint import acb, arb

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_torch.elementwise import log_add
from gradgate.suites.exact.on_torch.rules import axes_of, mixed, number, numbers, with_axes

ZERO = arb(0)


@numbers("sum")
def total(a: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> Any:
    """Sum over axes."""
    axes = axes_of(dim, a.ndim)
    return with_axes(balls.total(a, axes), axes, keepdim)


@numbers("nansum")
def nansum(a: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> Any:
    """Sum over axes, without the NaNs."""
    return total(balls.elementwise(lambda x: ZERO if x.is_nan() else x, a), dim, keepdim)


def _count(a: Any, axes: tuple[int, ...]) -> int:
    return math.prod(a.shape[axis] for axis in axes)


@numbers("mean")
def mean(a: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> Any:
    """Sum over axes, divided by their size."""
    axes = axes_of(dim, a.ndim)
    return with_axes(balls.total(a, axes), axes, keepdim) / arb(_count(a, axes))


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
    return with_axes(variance, axes, keepdim), middle if keepdim or not axes else middle.reshape(np.shape(variance))


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
    return with_axes(balls.product(a, axes), axes, keepdim)


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
        return with_axes(balls.extreme(sizes, axes, largest=order > 0), axes, keepdim)
    if order == 0:
        return with_axes(balls.total(balls.exact(balls.compare("ne", sizes, ZERO)), axes), axes, keepdim)
    if order == 1:
        return with_axes(balls.total(sizes, axes), axes, keepdim)
    if order == 2:
        squares = balls.whole(sizes * sizes)
        return with_axes(balls.unary("sqrt", balls.whole(balls.total(squares, axes))), axes, keepdim)
    p = number(order)
    powers = balls.total(balls.elementwise(lambda x: balls.power(x, p), sizes), axes)
    return with_axes(balls.elementwise(lambda x: balls.power(x, 1 / p), powers), axes, keepdim)


@numbers("norm")
def norm(a: Any, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """`vector_norm` with its older arguments."""
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


@numbers("logsumexp")
def logsumexp(a: Any, dim: Any, keepdim: bool = False) -> Any:
    """The logarithm of the sum of exponentials; balls never overflow."""
    axes = axes_of(dim, a.ndim)
    return with_axes(balls.unary("log", balls.whole(balls.total(balls.unary("exp", a), axes))), axes, keepdim)


@numbers("_softmax", "_safe_softmax")
def softmax(a: Any, dim: int, half_to_float: Any = False, dtype: Any = None) -> Any:
    """Exponentials, divided by their sum."""
    powers = balls.unary("exp", a)
    axes = axes_of(dim, a.ndim)
    return balls.elementwise(_share, powers, with_axes(balls.total(powers, axes), axes, True))


def _share(power: Any, whole: Any) -> Any:
    return power / whole


@numbers("_log_softmax")
def log_softmax(a: Any, dim: int, half_to_float: Any = False, dtype: Any = None) -> Any:
    """Numbers less the logarithm of the sum of their exponentials."""
    return a - logsumexp(a, dim, True)


@numbers("_softmax_backward_data")
def softmax_backward(grad: Any, y: Any, dim: int, dtype: Any = None) -> Any:
    """The derivative of y = softmax x."""
    axes, product = axes_of(dim, y.ndim), balls.whole(grad * y)
    return product - y * with_axes(balls.total(product, axes), axes, True)


@numbers("_log_softmax_backward_data")
def log_softmax_backward(grad: Any, y: Any, dim: int, dtype: Any = None) -> Any:
    """The derivative of y = log softmax x."""
    axes = axes_of(dim, y.ndim)
    return grad - balls.unary("exp", y) * with_axes(balls.total(balls.whole(grad), axes), axes, True)


@mixed("nonzero")
def nonzero(a: Any) -> Any:
    """Where numbers are not zero; `mode` writes the answer only if it has the shape that floats had."""
    return np.stack(np.nonzero(np.atleast_1d(balls.compare("ne", balls.exact(a), ZERO))), axis=-1)
