"""Reductions, scans, sorts and the functions of libdevice, on balls."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from flint import arb

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_triton.builder import (
    BallBuilder,
    Handle,
    divided,
    floating,
    interpreter,
    language,
    lifted,
    remainder,
    whole_part,
)

standard: Any = language.standard


def tensor(data: Any, dtype: Any) -> Any:
    """An array, or one of its elements, as a tensor of the language; one without axes as a scalar."""
    data = np.asarray(data) if isinstance(data, np.generic) else balls.whole(data)
    scalar = dtype.scalar
    if not data.ndim:
        return language.tensor(Handle(data.reshape(1), scalar), scalar)
    return language.tensor(Handle(data, scalar), language.block_type(scalar, list(data.shape)))


def _along(inputs: Any, axis: int, place: int) -> tuple[Any, ...]:
    """The slices of all inputs at one place of an axis."""
    return tuple(tensor(np.take(each.handle.data, place, axis), each.dtype) for each in inputs)


def _folded(combine: Any, one: Any, other: Any, like: Any) -> tuple[Any, ...]:
    """What `combine` returns for two tuples of slices, in the dtypes of the inputs."""
    found = combine.fn(*one, *other)
    many = found if isinstance(found, (tuple, list)) or type(found).__name__ == "tuple" else (found,)
    convert = interpreter.interpreter_semantic.to_tensor
    shape = np.broadcast_shapes(*(each.handle.data.shape for each in (*one, *other)))
    return tuple(
        tensor(np.broadcast_to(convert(each, False).handle.data, shape), each_like.dtype)
        if each_like.shape and len(each_like.shape) > 1
        else convert(each, False)
        for each, each_like in zip(many, like, strict=True)
    )


_LARGEST = (standard._argmax_combine_tie_break_left, standard._argmax_combine_tie_break_fast)
_SMALLEST = (standard._argmin_combine_tie_break_left, standard._argmin_combine_tie_break_fast)


_REDUCED = {
    standard._elementwise_max: "max",
    standard._elementwise_min: "min",
    **dict.fromkeys(_LARGEST, "argmax"),
    **dict.fromkeys(_SMALLEST, "argmin"),
}


def _decided(operation: str) -> None:
    """`BallBuilder.decided`, within a launch."""
    if isinstance(interpreter.interpreter_builder, BallBuilder):
        interpreter.interpreter_builder.decided(operation)


class Reductions(interpreter.ReduceOps):
    """A reduction; of balls, by its definition, and by any function of pairs from the first number to the last."""

    def apply_impl(self, input: Any) -> Any:
        """Reduce a tuple of tensors."""
        if not any(floating(each.handle) for each in input):
            return super().apply_impl(input)
        first = input[0]
        data = first.handle.data
        axes = tuple(range(data.ndim)) if self.axis is None else (self.axis % data.ndim,)
        found: list[Any]
        if self.combine_fn is standard._sum_combine:
            found = [balls.total(lifted(first.handle), axes)]
        elif self.combine_fn in (standard._elementwise_max, standard._elementwise_min):
            found = [balls.extreme(lifted(first.handle), axes, self.combine_fn is standard._elementwise_max)]
        elif self.combine_fn in _LARGEST + _SMALLEST:
            flat = lifted(first.handle).reshape(-1) if self.axis is None else np.moveaxis(data, axes[0], -1)
            found = _placed(flat, self.combine_fn in _LARGEST)
        else:
            found = self._folded(input)
        _decided(_REDUCED.get(self.combine_fn, "reduce"))
        if self.keep_dims:
            found = [np.expand_dims(balls.whole(each), axes) for each in found]
        kinds = [each.dtype for each in input]
        return [tensor(each, kind) for each, kind in zip(found, kinds, strict=True)]

    def _folded(self, inputs: Any) -> list[Any]:
        if self.axis is None:
            inputs = tuple(tensor(each.handle.data.reshape(-1), each.dtype) for each in inputs)
        axis = self.axis or 0
        state = _along(inputs, axis, 0)
        for place in range(1, inputs[0].handle.data.shape[axis]):
            state = _folded(self.combine_fn, state, _along(inputs, axis, place), inputs)
        flat = inputs[0].handle.data.ndim == 1
        return [each.handle.data.reshape(()) if flat else each.handle.data for each in state]


def _placed(array: Any, largest: bool) -> list[Any]:
    """The extreme along the last axis, and the first place where it is."""
    rows = array.reshape(-1, array.shape[-1])
    values = np.empty(len(rows), object)
    places = np.zeros(len(rows), np.int32)
    for number, row in enumerate(rows):
        for place, ball in enumerate(row.tolist()):
            if place == 0 or balls._decided(ball, values[number], "greater than") == (1 if largest else -1):
                values[number], places[number] = ball, place
    return [values.reshape(array.shape[:-1]), places.reshape(array.shape[:-1])]


class Scans(interpreter.ScanOps):
    """A scan, from the first number to the last or backwards."""

    def apply_impl(self, input: Any) -> Any:
        """Scan a tuple of tensors."""
        if not any(floating(each.handle) for each in input):
            return super().apply_impl(input)
        axis = self.axis % input[0].handle.data.ndim
        if self.combine_fn is standard._sum_combine or self.combine_fn is standard._prod_combine:
            combine: Callable[[Any, Any], Any] = (
                (lambda a, b: a + b) if self.combine_fn is standard._sum_combine else (lambda a, b: a * b)
            )
            return [
                tensor(balls.running(combine, lifted(each.handle), axis, self.reverse), each.dtype) for each in input
            ]
        places = list(range(input[0].handle.data.shape[axis]))
        if self.reverse:
            places.reverse()
        state = _along(input, axis, places[0])
        found = {places[0]: state}
        for place in places[1:]:
            state = found[place] = _folded(self.combine_fn, state, _along(input, axis, place), input)
        shape = tuple(np.delete(input[0].handle.data.shape, axis))
        return [
            tensor(np.stack([found[place][k].handle.data.reshape(shape) for place in sorted(found)], axis), each.dtype)
            for k, each in enumerate(input)
        ]


def sort(x: Any, k: Any = None, dim: Any = None, descending: Any = False) -> Any:
    """`triton.language.sort`, or the first k of it, along the last axis."""
    count, reverse = (getattr(each, "value", each) for each in (k, descending))
    data = x.handle.data
    found = np.empty(data.shape, data.dtype)

    def order(one: Any, other: Any) -> int:
        return balls._decided(one, other, "less than") if balls.is_balls(data) else int(one > other) - int(one < other)

    key = functools.cmp_to_key(order)
    for row, to in zip(data.reshape(-1, data.shape[-1]), found.reshape(-1, data.shape[-1]), strict=True):
        to[:] = sorted(row.tolist(), key=key, reverse=bool(reverse))
    _decided("sort")
    return tensor(found if count is None else found[..., : int(count)], x.dtype)


def flip(x: Any, dim: Any = None) -> Any:
    """`triton.language.flip`."""
    axis = getattr(dim, "value", dim)
    return tensor(np.flip(x.handle.data, -1 if axis is None else int(axis)), x.dtype)


def _atan2(y: Any, x: Any) -> Any:
    if y.is_zero() and x > 0:
        return arb(0)
    return arb.atan2(y, x)


_NAMED: dict[str, Callable[..., Any]] = {
    **{
        name: balls.UNARY[name]
        for name in (
            "exp",
            "expm1",
            "log1p",
            "sqrt",
            "rsqrt",
            "sin",
            "cos",
            "tan",
            "sinh",
            "cosh",
            "tanh",
            "asin",
            "acos",
            "atan",
            "asinh",
            "acosh",
            "atanh",
            "erf",
            "erfc",
            "log",
            "lgamma",
            "cbrt",
            "exp2",
            "floor",
            "ceil",
            "abs",
        )
    },
    "log2": lambda x: balls.UNARY["log"](x) / arb(2).log(),
    "log10": lambda x: balls.UNARY["log"](x) / arb(10).log(),
    "exp10": lambda x: arb(10) ** x,
    "erfinv": balls.UNARY["erf_inv"],
    "fabs": balls.UNARY["abs"],
    "rint": balls.rounded,
    "nearbyint": balls.rounded,
    "round": lambda x: whole_part(x + (balls.HALF if x > 0 else -balls.HALF)),
    "trunc": whole_part,
    "pow": balls.power,
    "powf": balls.power,
    "fmod": remainder,
    "atan2": _atan2,
    "hypot": lambda x, y: (x * x + y * y).sqrt(),
    "fma": lambda x, y, z: x * y + z,
    "fmax": balls._larger,
    "fmin": balls._smaller,
    "div": divided,
    "divide": divided,
    "fdivide": divided,
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "sub": lambda x, y: x - y,
    "rcp": lambda x: divided(arb(1), x),
    "rhypot": lambda x, y: (x * x + y * y).rsqrt(),
    "norm3d": lambda x, y, z: (x * x + y * y + z * z).sqrt(),
    "rnorm3d": lambda x, y, z: (x * x + y * y + z * z).rsqrt(),
    "norm4d": lambda x, y, z, w: (x * x + y * y + z * z + w * w).sqrt(),
    "rnorm4d": lambda x, y, z, w: (x * x + y * y + z * z + w * w).rsqrt(),
    "rcbrt": lambda x: 1 / balls.cbrt(x),
    "saturate": lambda x: balls._smaller(balls._larger(x, arb(0)), arb(1)),
    "fdim": lambda x, y: balls._larger(x - y, arb(0)),
    "remainder": lambda x, y: x - y * balls.rounded(x / y),
    "ldexp": lambda x, n: x * arb(2) ** n,
    "scalbn": lambda x, n: x * arb(2) ** n,
    "tgamma": lambda x: x.gamma(),
    "erfcx": lambda x: (x * x).exp() * x.erfc(),
    "erfcinv": lambda x: (1 - x).erfinv(),
    "normcdfinv": lambda x: arb(2).sqrt() * (2 * x - 1).erfinv(),
    "j0": lambda x: x.bessel_j(0),
    "j1": lambda x: x.bessel_j(1),
    "y0": lambda x: x.bessel_y(0),
    "y1": lambda x: x.bessel_y(1),
    "cyl_bessel_i0": lambda x: x.bessel_i(0),
    "cyl_bessel_i1": lambda x: x.bessel_i(1),
    "sinpi": lambda x: (x * arb.pi()).sin(),
    "cospi": lambda x: (x * arb.pi()).cos(),
    "copysign": lambda x, y: abs(x) if y >= 0 else -abs(x),
    "normcdf": lambda x: (-x / arb(2).sqrt()).erfc() / 2,
}


_TRUTHS: dict[str, Callable[[Any], bool]] = {
    "isnan": lambda x: x.is_nan(),
    "isinf": lambda x: not x.is_finite() and not x.is_nan(),
    "finitef": lambda x: x.is_finite(),
    "isfinited": lambda x: x.is_finite(),
    "signbit": lambda x: balls._decided(x, arb(0), "less than") == -1,
}


def library(name: str, arrays: Any) -> Any:
    """A function of libdevice by its definition: whole numbers for a truth, else balls.

    One called ``fast_…`` is the function that it approximates, and no mode of rounding (``…_rz``) rounds.

    Raises:
        Unknown: it has no definition here.
    """
    if name in _TRUTHS:
        truths = np.asarray(balls.elementwise(_TRUTHS[name], *map(balls.exact, arrays)), np.int32)
        _decided(name)
        return truths
    plain = re.sub("_r[nzdu]$", "", name.removeprefix("fast_"))
    function = _NAMED.get(plain) or _NAMED.get(plain.removesuffix("f"))
    if function is None:
        raise balls.Unknown(f"libdevice.{name} has no rule in gradgate.suites.exact.on_triton")
    found = balls.elementwise(function, *map(balls.exact, arrays))
    _decided(plain)
    return found
