"""As `right_torch`, in JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from gradgate import Pair, key, normal, order, uniform, within

INPUTS = {"x": normal("T H"), "w": normal("H")}
SIN, COS = jnp.sin, jnp.cos
STOP = lax.stop_gradient
SMALL = {"x": uniform("T H", -0.5, 0.5), "w": normal("H")}
STEPS = {"h": (0.1, 0.05, 0.025, 0.0125)}
DIMS = {"T": (3, 1, 8), "H": (4, 1)}


def handwritten(
    forward: Callable[..., Any], backward: Callable[..., tuple[Any, ...]], factor: float = 1.0
) -> Callable[..., Any]:
    """A function of arrays with this backward pass (upstream, *inputs), whose first gradient is times a factor."""

    @jax.custom_vjp
    def function(*inputs: Any) -> Any:
        return forward(*inputs)

    def pull(inputs: Any, upstream: Any) -> Any:
        first, *others = backward(upstream, *inputs)
        return (factor * first, *others)

    function.defvjp(lambda *inputs: (forward(*inputs), inputs), pull)
    return lambda *inputs: function(*inputs)


def both(make: Callable[[float], Callable[..., Any]], reference: Callable[..., Any], **more: Any) -> tuple[Pair, Pair]:
    """The pair of the right function, and that of a function whose first gradient is a thousandth too large."""
    more = {"inputs": INPUTS, "dims": DIMS, "dtypes": ("float64", "float32"), **more}
    return tuple(
        Pair(make(factor), reference, name=name, framework="jax", **more)
        for name, factor in (("right", 1.0), ("wrong", 1.001))
    )  # type: ignore[return-value]


def scaled(x: Any, w: Any) -> Any:
    """float32 inside, whatever it gets; `lax` refuses another dtype."""
    return lax.mul(jnp.tanh(x.astype(jnp.float32)), jnp.broadcast_to(w, x.shape))


def scaled_back(upstream: Any, x: Any, w: Any) -> tuple[Any, Any]:
    """As a kernel does it: everything is in float32."""
    t = jnp.tanh(x.astype(jnp.float32))
    return upstream * w.astype(jnp.float32) * (1 - t * t), jnp.einsum("th,th->h", upstream, t)


def half(x: Any, w: Any) -> Any:
    """float16 inside."""
    return jnp.einsum("th,h->t", x.astype(jnp.float16), w.astype(jnp.float16)).astype(jnp.float32)


def half_back(upstream: Any, x: Any, w: Any) -> tuple[Any, Any]:
    """In float32."""
    return upstream[:, None] * w, upstream @ x


def signed(x: Any, w: Any) -> Any:
    """A reference that reads a number."""
    return x * w if x.sum() > 0 else -x * w


def signed_traced(x: Any, w: Any) -> Any:
    """`signed`, which JAX can trace."""
    return jnp.sign(x.sum()) * x * w


def signed_back(upstream: Any, x: Any, w: Any) -> tuple[Any, Any]:
    """The same decision in the backward pass."""
    sign = jnp.sign(x.sum())
    return sign * upstream * w, (sign * upstream * x).sum(0)


def guarded(x: Any, w: Any) -> Any:
    """Rows divided by a mass; 0 where there is none, also where the mass is NaN."""
    mass = jnp.abs(w).sum()
    return jnp.where(mass > 0, x / mass, 0.0)


def guarded_back(upstream: Any, x: Any, w: Any) -> tuple[Any, Any]:
    """Zeros where the output is a constant."""
    mass = jnp.abs(w).sum()
    safe = jnp.where(mass > 0, mass, 1.0)
    slope = jnp.where(mass > 0, -(upstream * x).sum() / safe**2, 0.0)
    return jnp.where(mass > 0, upstream / safe, 0.0), jnp.where(mass > 0, slope * jnp.sign(w), 0.0)


def unguarded(x: Any, w: Any) -> Any:
    """No guard."""
    return x / jnp.abs(w).sum()


@jax.custom_vjp
def attach(x: Any, aux: Any) -> Any:
    """Its input; the backward pass adds the gradient of an auxiliary loss, whatever the upstream gradient."""
    return x


attach.defvjp(lambda x, aux: (x, aux), lambda aux, upstream: (upstream, jnp.ones_like(aux)))


def attached(x: Any, w: Any) -> Any:
    """A product with an auxiliary loss."""
    return attach(x * w, (w * w).sum())


def attaching(factor: float) -> Callable[..., Any]:
    """As `attached`, with the auxiliary loss written in another way."""
    return lambda x, w: attach(w * x, jnp.dot(w, w) * factor)


def series(terms: int) -> Callable[..., Any]:
    """The first terms of the series of the sine, times w."""

    def function(x: Any, w: Any) -> Any:
        total, term = x, x
        for n in range(1, terms):
            term = -term * x * x / ((2 * n) * (2 * n + 1))
            total = total + term
        return total * w

    return function


def sine(x: Any, w: Any) -> Any:
    """What the series approximates."""
    return SIN(x) * w


def decayed(x: Any, w: Any) -> Any:
    """The solution of x' = -w·x at time 1."""
    return x * jnp.exp(-w)


def integrated(power: int, factor: float = 1.0) -> Callable[..., Any]:
    """Steps of the explicit method of this order, 1 or 2; the gradient of x is times a factor."""

    def function(x: Any, w: Any, *, h: float = 0.1) -> Any:
        step = 1 - h * w + (h * w) ** 2 / 2 if power == 2 else 1 - h * w
        plain = x * step ** round(1 / h)
        return plain + (factor - 1) * (plain - STOP(plain))

    return function


def narrow(x: Any, w: Any) -> Any:
    """A product in bfloat16 of wide numbers."""
    return (x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)).astype(x.dtype)


def narrow_back(upstream: Any, x: Any, w: Any) -> tuple[Any, Any]:
    """Products in bfloat16, too."""
    g = upstream.astype(jnp.bfloat16)
    return (g[:, None] * w.astype(jnp.bfloat16)).astype(x.dtype), (g @ x.astype(jnp.bfloat16)).astype(w.dtype)


def noisy(x: Any, w: Any, key: Any) -> Any:
    """Noise that is drawn in the dtype of the input."""
    half = jnp.exp(0.05 * jax.random.normal(key, x.shape, x.dtype))
    return x * w * half * half


def noising(factor: float) -> Callable[..., Any]:
    """As `noisy`; the backward pass draws the noise again."""

    def noise(like: Any, key: Any) -> Any:
        return jnp.exp(0.1 * jax.random.normal(key, like.shape, like.dtype))

    @jax.custom_vjp
    def function(x: Any, w: Any, key: Any) -> Any:
        return x * w * noise(x, key)

    def pull(kept: Any, upstream: Any) -> Any:
        x, w, key = kept
        again = noise(x, key) * upstream
        return factor * again * w, (again * x).sum(0), None

    function.defvjp(lambda x, w, key: (function(x, w, key), (x, w, key)), pull)
    return lambda x, w, key: function(x, w, key)


@jax.custom_batching.custom_vmap
def shifted(g: Any, x: Any) -> Any:
    """g, by way of a large number, in which it loses digits; under vmap it loses none."""
    return (g + 1024 * x) - 1024 * x


@shifted.def_vmap
def _shifted_lanes(size: int, batched: Any, g: Any, x: Any) -> Any:
    return (g if batched[0] else jnp.broadcast_to(g, (size, *g.shape))), True


def product(x: Any, w: Any) -> Any:
    """A product."""
    return x * w


CASES = {
    "float32 inside": (
        both(lambda factor: handwritten(scaled, scaled_back, factor), scaled, dtypes=("float32",)),
        ("outputs", "gradient_exact", "gradient_float32", "upstream"),
    ),
    "autocast to float16": (
        both(lambda factor: handwritten(half, half_back, factor), half, dtypes=("float32",)),
        ("outputs", "gradient_exact"),
    ),
    "reference reads a number": (
        both(lambda factor: handwritten(signed_traced, signed_back, factor), signed),
        ("outputs", "gradient_float64", "gradient_float32", "upstream", "not_finite"),
    ),
    "guard turns NaN into 0": (
        (
            both(
                lambda factor: handwritten(guarded, guarded_back),
                guarded,
                inputs={**INPUTS, "w": uniform("H", 1.0, 2.0)},
            )[0],
            both(
                lambda factor: handwritten(guarded, guarded_back),
                unguarded,
                inputs={**INPUTS, "w": uniform("H", 1.0, 2.0)},
            )[1],
        ),
        ("not_finite",),
    ),
    "auxiliary loss": (
        both(attaching, attached),
        ("gradient_exact", "gradient_float64", "gradient_float32", "cotangents", "upstream"),
    ),
    "declared error": (
        (
            both(lambda factor: series(6), sine, inputs=SMALL, approximates=within(1e-7))[0],
            both(lambda factor: series(3), sine, inputs=SMALL, approximates=within(1e-7))[0],
        ),
        ("outputs", "gradient_exact", "gradient_float64", "gradient_float32", "cotangents", "upstream"),
    ),
    "declared error, wrong gradient": (
        both(
            lambda factor: handwritten(sine, lambda g, x, w: (g * w * COS(x), (g * SIN(x)).sum(0)), factor),
            sine,
            inputs=SMALL,
            approximates=within(1e-6, absolute=1e-6),
        ),
        ("gradient_exact", "gradient_float64", "gradient_float32"),
    ),
    "order of convergence": (
        (
            both(lambda factor: integrated(2), decayed, options=STEPS, approximates=order(2, "h"))[0],
            both(lambda factor: integrated(1), decayed, options=STEPS, approximates=order(2, "h"))[0],
        ),
        ("gradient_order",),
    ),
    "order of convergence, wrong gradient": (
        (
            both(lambda factor: integrated(2), decayed, options=STEPS, approximates=order(2, "h"))[0],
            both(lambda factor: integrated(2, 1.01), decayed, options=STEPS, approximates=order(2, "h"))[0],
        ),
        ("gradient_order",),
    ),
    "products in bfloat16": (
        (
            both(lambda factor: handwritten(narrow, narrow_back, factor), narrow, dtypes=("float32",))[0],
            both(lambda factor: handwritten(narrow, narrow_back, 1.5 * factor), narrow, dtypes=("float32",))[1],
        ),
        ("outputs", "gradient_exact", "gradient_float32"),
    ),
    "noise drawn in the dtype of the input": (
        both(noising, noisy, inputs={**INPUTS, "key": key()}, dtypes=("float64", "float32", "bfloat16")),
        ("outputs", "gradient_exact", "gradient_float64", "gradient_float32", "gradient_bfloat16"),
    ),
    "loses digits in single calls alone": (
        both(
            lambda factor: handwritten(
                product, lambda g, x, w: ((g * w + 1024 * x) - 1024 * x, (g * x).sum(0)), factor
            ),
            handwritten(product, lambda g, x, w: (shifted(g * w, x), (g * x).sum(0))),
        ),
        ("gradient_float32", "gradient_exact"),
    ),
}
