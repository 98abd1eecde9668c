"""The digits of computed values: elementwise functions against mpmath, extreme floats, sums against closed forms."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
mpmath = pytest.importorskip("mpmath")
pytest.importorskip("flint")

from jax import lax  # noqa: E402
from jax import numpy as jnp  # noqa: E402

from gradgate.suites.exact import balls, on_jax  # noqa: E402

POINTS = (0.3, -0.8, 0.05, 0.97, -1.75, 12.5)
KNOWN: dict[str, tuple[Callable[[Any], Any], Any]] = {
    name: (getattr(lax, name), getattr(mpmath, name))
    for name in (
        "exp",
        "expm1",
        "sin",
        "cos",
        "tan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "atan",
        "erf",
        "erfc",
        "digamma",
        "floor",
        "ceil",
        "sign",
        "log",
        "log1p",
        "sqrt",
        "asin",
        "acos",
        "atanh",
    )
} | {
    "rsqrt": (lax.rsqrt, lambda x: 1 / mpmath.sqrt(x)),
    "acosh": (lambda x: lax.acosh(1 + lax.abs(x)), lambda x: mpmath.acosh(1 + abs(x))),
    "erf_inv": (lax.erf_inv, lambda x: mpmath.erfinv(x) if abs(x) < 1 else mpmath.nan),
    "logistic": (lax.logistic, lambda x: 1 / (1 + mpmath.exp(-x))),
    "cbrt": (lax.cbrt, lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x))),
    "exp2": (lax.exp2, lambda x: mpmath.mpf(2) ** x),
    "square": (lax.square, lambda x: x * x),
    "neg": (lax.neg, lambda x: -x),
    "abs": (lax.abs, abs),
    "lgamma": (lax.lgamma, lambda x: mpmath.log(abs(mpmath.gamma(x)))),
    "bessel_i0e": (lax.bessel_i0e, lambda x: mpmath.exp(-abs(x)) * mpmath.besseli(0, x)),
    "bessel_i1e": (lax.bessel_i1e, lambda x: mpmath.exp(-abs(x)) * mpmath.besseli(1, x)),
    "integer_pow": (lambda x: x**-3, lambda x: x**-3),
    "pow": (lambda x: lax.pow(lax.abs(x), jnp.asarray(0.7)), lambda x: abs(x) ** mpmath.mpf(0.7)),
    "atan2": (lambda x: lax.atan2(x, jnp.asarray(-0.4)), lambda x: mpmath.atan2(x, mpmath.mpf(-0.4))),
    "rem": (lambda x: lax.rem(x, jnp.asarray(0.3)), lambda x: x - mpmath.mpf(0.3) * int(x / mpmath.mpf(0.3))),
}


def only(function: Callable[..., Any], *values: Any, digits: int = 60) -> Any:
    """The one output of a function."""
    (found,) = on_jax.trace(function, *values).evaluate(*values, digits=digits)
    return found


@pytest.mark.parametrize("name", KNOWN)
def test_a_function_has_sixty_digits(name: str) -> None:
    function, known = KNOWN[name]
    with mpmath.workdps(75):
        for point, ball in zip(POINTS, only(function, np.array(POINTS)), strict=True):
            wanted = known(mpmath.mpf(point))
            if not mpmath.isfinite(wanted) or isinstance(wanted, mpmath.mpc):
                assert ball.is_nan()
                continue
            found = mpmath.mpf(ball.mid().str(70, radius=False, more=True))
            assert abs(found - wanted) <= 1e-55 * abs(wanted) + mpmath.mpf(10) ** -200
            assert float(ball.rad()) <= 1e-55 * abs(wanted)


EDGES = np.array([0.0, 1.0, -1.0, math.inf, -math.inf, math.nan])


@pytest.mark.parametrize(
    "name",
    [
        "exp",
        "expm1",
        "log",
        "log1p",
        "tanh",
        "sqrt",
        "rsqrt",
        "logistic",
        "erf",
        "erfc",
        "erf_inv",
        "asin",
        "acos",
        "atan",
        "atanh",
        "asinh",
        "sinh",
        "cosh",
        "abs",
        "neg",
        "sign",
        "square",
        "floor",
        "ceil",
        "exp2",
        "cbrt",
        "is_finite",
        "lgamma",
    ],
)
def test_a_function_is_infinite_where_floats_are(name: str) -> None:
    function = getattr(lax, name)
    with jax.enable_x64(True):
        wanted = np.asarray(function(jnp.asarray(EDGES)))
    found = only(function, EDGES)
    np.testing.assert_allclose(balls.floats(found) if balls.is_balls(found) else found, wanted, rtol=1e-14, atol=0)


@pytest.mark.parametrize(
    "function",
    [lax.add, lax.sub, lax.mul, lax.div, lax.max, lax.min, lax.lt, lax.le, lax.eq, lax.ne, lax.pow],
    ids=lambda function: function.__name__,
)
def test_infinities_combine_as_in_floats(function: Any) -> None:
    one, other = np.repeat(EDGES, len(EDGES)), np.tile(EDGES, len(EDGES))
    if function is lax.pow:  # (−1) to an infinite power, and 1 to any power: values that libm defines, not limits
        keep = (np.abs(one) != 1) & np.isfinite(one) & np.isfinite(other)
        one, other = one[keep], other[keep]
    with jax.enable_x64(True):
        wanted = np.asarray(function(jnp.asarray(one), jnp.asarray(other)))
    found = only(function, one, other)
    np.testing.assert_array_equal(balls.floats(found) if balls.is_balls(found) else found, wanted)


def test_a_masked_softmax_and_its_gradient_are_finite() -> None:
    mask, scores = np.array([True, False, True, True]), np.array([0.5, 3.0, -1.0, 2.0])

    def loss(x: Any) -> Any:
        return (jax.nn.softmax(jnp.where(mask, x, -jnp.inf)) * jnp.arange(4.0)).sum()

    with jax.enable_x64(True):
        wanted = np.asarray(jax.grad(loss)(jnp.asarray(scores)))
    np.testing.assert_allclose(balls.floats(only(jax.grad(loss), scores)), wanted, atol=1e-15)


def test_a_sum_keeps_what_floats_lose() -> None:
    values = np.array([1e30, 1.0, -1e30, 2.0**-60])
    with balls.digits(60):
        assert only(jnp.sum, values)[()] == 1 + balls.exact(2.0**-60)[()]


def test_sums_and_products_agree_with_long_doubles() -> None:
    rng = np.random.Generator(np.random.PCG64(5))
    one, other = rng.normal(size=(6, 7)), rng.normal(size=(7, 3))
    wide = one.astype(np.longdouble) @ other.astype(np.longdouble)
    np.testing.assert_allclose(balls.floats(only(jnp.matmul, one, other)), wide.astype(float), rtol=1e-15)
    product = one.astype(np.longdouble).prod(1)
    np.testing.assert_allclose(balls.floats(only(lambda x: x.prod(1), one)), product.astype(float), rtol=1e-15)


def test_more_digits_are_computed_where_asked() -> None:
    value = only(lax.exp, np.array(1.0), digits=200)[()]
    with mpmath.workdps(220):
        assert abs(mpmath.mpf(value.mid().str(210, radius=False, more=True)) - mpmath.e) < mpmath.mpf(10) ** -195


def test_two_formulas_of_one_number_agree_and_a_wrong_one_does_not() -> None:
    x = np.array([0.3, 1.7])
    plain, other = only(jax.grad(lambda x: jnp.log(jnp.cosh(x)).sum()), x), only(jnp.tanh, x)
    with balls.digits(60):
        assert max(float(abs(a - b).upper()) for a, b in zip(plain, other, strict=True)) < 1e-55
    assert not any(a.overlaps(b) for a, b in zip(plain, only(lambda x: jnp.tanh(x) * (1 + 2.0**-52), x), strict=True))


def test_a_sum_of_a_geometric_series_is_exact() -> None:
    powers = functools.partial(lax.scan, lambda c, _: (c / 2, c), xs=None, length=100)
    found = only(lambda x: powers(x)[1].sum(), np.array(1.0))[()]
    with balls.digits(60):
        assert found == 2 - balls.exact(2.0**-99)[()]
