"""Parts of complex numbers and other dtypes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from flint import acb, arb

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_jax.choices import COMPARED, same
from gradgate.suites.exact.on_jax.elementwise import truncated
from gradgate.suites.exact.on_jax.rules import Run, data, kind, kind_of, rule

_PARTS = {
    name: np.frompyfunc(function, 1, 1)
    for name, function in {
        "real": lambda z: z.real,
        "imag": lambda z: z.imag,
        "conj": lambda z: acb(z).conjugate(),
    }.items()
}
_PAIRED = np.frompyfunc(acb, 2, 1)
_COMPLEX_BALL = np.frompyfunc(acb, 1, 1)


@rule(*_PARTS)
def part(equation: Any) -> Run:
    """Real part, imaginary part or conjugate."""
    return _PARTS[equation.primitive.name]


@rule("complex")
def paired(equation: Any) -> Run:
    """A complex number made from two real numbers."""
    return _PAIRED


def _whole_number(ball: Any) -> int | float:
    """Truncated towards zero; infinities as floats, so that the cast saturates."""
    if not ball.is_finite():
        return 0.0 if ball.is_nan() else math.inf if ball > 0 else -math.inf
    balls.noted_whole(ball)
    return int(truncated(ball).unique_fmpz())


_WHOLE_NUMBER = np.frompyfunc(_whole_number, 1, 1)


def _to_integers(values: Any, dtype: Any) -> Any:
    limits = np.iinfo(dtype)
    numbers = balls.whole(_WHOLE_NUMBER(values))
    clipped = [int(min(max(number, limits.min), limits.max)) for number in numbers.ravel()]
    return np.array(clipped, dtype).reshape(numbers.shape)


@rule("convert_element_type")
def cast(equation: Any) -> Run:
    """Another dtype: exact between floats and from integers, truncated and decided to integers."""
    before, after = kind(equation.invars[0]), kind(equation.outvars[0])
    dtype = equation.outvars[0].aval.dtype
    if after == "c":
        return (lambda x: x) if before == "c" else lambda x: _COMPLEX_BALL(balls.exact(x))
    if after == "f":
        return _PARTS["real"] if before == "c" else balls.exact
    if before in "fc":
        zero = arb(0) if before == "f" else acb(0)
        compare = COMPARED["ne"] if before == "f" else np.frompyfunc(lambda a, b: not same(a, b), 2, 1)
        if after == "b":
            return lambda x: balls.booleans(compare(x, zero))
        return lambda x: _to_integers(x, dtype)
    return lambda x: x.astype(dtype)


@rule("bitcast_convert_type")
def bits(equation: Any) -> Run:
    """The same bits as another dtype; for floats only if they are data and were not computed."""
    before, after = equation.invars[0].aval, equation.outvars[0].aval
    if "c" in (kind_of(before.dtype), kind_of(after.dtype)):
        raise balls.Unknown("bitcast_convert_type of complex numbers")

    def run(values: Any) -> Any:
        plain = _bits_of(values, before.dtype) if kind_of(before.dtype) == "f" else values
        viewed = np.ascontiguousarray(plain).reshape(-1).view(after.dtype)
        return data(viewed.reshape(after.shape), after.dtype)

    return run


def _bits_of(values: Any, dtype: Any) -> Any:
    """Balls of radius zero as the floats that they equal.

    Raises:
        Unknown: a number was computed and has no bits.
    """
    plain = np.asarray(balls.floats(values)).astype(dtype)
    same = balls.exact(plain)
    if not all((a == b) or (a.is_nan() and b.is_nan()) for a, b in zip(same.ravel(), values.ravel(), strict=True)):
        raise balls.Unknown("the bits of a number that was computed")
    return plain


@rule("nextafter")
def nextafter(equation: Any) -> Run:
    """The next float of the dtype, of a number that is known exactly."""
    dtype = equation.outvars[0].aval.dtype

    def run(one: Any, other: Any) -> Any:
        if not all(ball.is_exact() for ball in np.ravel(one)):
            raise balls.Undecided("which float is next to a number that is not known exactly")
        return balls.exact(np.nextafter(balls.floats(one).astype(dtype), balls.floats(other).astype(dtype)))

    return run
