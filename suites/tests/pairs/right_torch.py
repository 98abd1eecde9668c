"""Right functions of PyTorch that a strict judge may refuse, each with a wrong twin: name -> (right, wrong)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gradgate import Pair, normal, order, uniform, within

INPUTS = {"x": normal("T H"), "w": normal("H")}
SIN, COS = torch.sin, torch.cos
STOP = torch.Tensor.detach
SMALL = {"x": uniform("T H", -0.5, 0.5), "w": normal("H")}
STEPS = {"h": (0.1, 0.05, 0.025, 0.0125)}
DIMS = {"T": (3, 1, 8), "H": (4, 1)}


def handwritten(
    forward: Callable[..., Any], backward: Callable[..., tuple[Any, ...]], factor: float = 1.0
) -> Callable[..., Any]:
    """A function of tensors with this backward pass (upstream, *inputs), whose first gradient is times a factor."""

    class Handwritten(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            ctx.save_for_backward(*inputs)
            return forward(*inputs)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, upstream: Any) -> Any:
            first, *others = backward(upstream, *ctx.saved_tensors)
            return (factor * first, *others)

    return lambda *inputs: Handwritten.apply(*inputs)


def both(make: Callable[[float], Callable[..., Any]], reference: Callable[..., Any], **more: Any) -> tuple[Pair, Pair]:
    """The pair of the right function, and that of a function whose first gradient is a thousandth too large."""
    more = {"inputs": INPUTS, "dims": DIMS, "dtypes": ("float64", "float32"), **more}
    return tuple(
        Pair(make(factor), reference, name=name, framework="torch", **more)
        for name, factor in (("right", 1.0), ("wrong", 1.001))
    )  # type: ignore[return-value]


def scaled(x: Any, w: Any) -> Any:
    """float32 inside, whatever it gets."""
    return torch.tanh(x.float()) * w.float()


def scaled_back(upstream: Any, x: Any, w: Any) -> tuple[Any, Any]:
    """As a kernel does it: everything is in float32."""
    t = torch.tanh(x.float())
    return upstream * w.float() * (1 - t * t), torch.einsum("th,th->h", upstream, t)


def half(x: Any, w: Any) -> Any:
    """Under autocast to float16."""
    with torch.autocast("cpu", dtype=torch.float16):
        return torch.nn.functional.linear(x, w[None]).float()


def half_back(upstream: Any, x: Any, w: Any) -> tuple[Any, Any]:
    """In float32."""
    return upstream @ w[None], (upstream.T @ x)[0]


def signed(x: Any, w: Any) -> Any:
    """A reference that reads a number."""
    return x * w if float(x.detach().sum()) > 0 else -x * w


def signed_back(upstream: Any, x: Any, w: Any) -> tuple[Any, Any]:
    """The same decision in the backward pass."""
    sign = 1.0 if x.sum().item() > 0 else -1.0
    return sign * upstream * w, (sign * upstream * x).sum(0)


def guarded(x: Any, w: Any) -> Any:
    """Rows divided by a mass; 0 where there is none, also where the mass is NaN."""
    mass = w.abs().sum()
    return torch.where(mass > 0, x / mass, torch.zeros_like(x))


def guarded_back(upstream: Any, x: Any, w: Any) -> tuple[Any, Any]:
    """Zeros where the output is a constant."""
    mass = w.abs().sum()
    if not mass > 0:
        return torch.zeros_like(x), torch.zeros_like(w)
    return upstream / mass, -(upstream * x).sum() / mass**2 * w.sign()


def unguarded(x: Any, w: Any) -> Any:
    """No guard."""
    return x / w.abs().sum()


class Attach(torch.autograd.Function):
    """Its input; the backward pass adds the gradient of an auxiliary loss, whatever the upstream gradient."""

    @staticmethod
    def forward(ctx: Any, x: Any, aux: Any) -> Any:
        ctx.save_for_backward(aux)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Any) -> Any:
        return upstream, torch.ones_like(ctx.saved_tensors[0])


def attached(x: Any, w: Any) -> Any:
    """A product with an auxiliary loss."""
    return Attach.apply(x * w, (w * w).sum())


def attaching(factor: float) -> Callable[..., Any]:
    """As `attached`, with the auxiliary loss written in another way."""
    return lambda x, w: Attach.apply(w * x, torch.dot(w, w) * factor)


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
    return x * torch.exp(-w)


def integrated(power: int, factor: float = 1.0) -> Callable[..., Any]:
    """Steps of the explicit method of this order, 1 or 2; the gradient of x is times a factor."""

    def function(x: Any, w: Any, *, h: float = 0.1) -> Any:
        step = 1 - h * w + (h * w) ** 2 / 2 if power == 2 else 1 - h * w
        plain = x * step ** round(1 / h)
        return plain + (factor - 1) * (plain - STOP(plain))

    return function


def narrow(x: Any, w: Any) -> Any:
    """A product in bfloat16 of wide numbers."""
    return (x.bfloat16() @ w.bfloat16()).to(x.dtype)


def narrow_back(upstream: Any, x: Any, w: Any) -> tuple[Any, Any]:
    """Products in bfloat16, too."""
    g = upstream.bfloat16()
    return (g[:, None] * w.bfloat16()).to(x.dtype), (g @ x.bfloat16()).to(w.dtype)


def noisy(x: Any, w: Any) -> Any:
    """Noise that is drawn in the dtype of the input."""
    half = torch.exp(0.05 * torch.randn_like(x))
    return x * w * half * half


def noising(factor: float) -> Callable[..., Any]:
    """As `noisy`, in one step."""

    def function(x: Any, w: Any) -> Any:
        found = x * w * torch.exp(0.1 * torch.randn_like(x))
        return found + (factor - 1) * (found - found.detach())

    return function


def centred(x: Any, w: Any) -> Any:
    """A layer norm, whose kernel subtracts large numbers in its backward pass, and under vmap does not."""
    return torch.nn.functional.layer_norm(x, x.shape[-1:], w) + x


def centring(factor: float) -> Callable[..., Any]:
    """As `centred`; the gradients are times a factor."""

    def function(x: Any, w: Any) -> Any:
        found = centred(x, w)
        return found + (factor - 1) * (found - found.detach())

    return function


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
        both(lambda factor: handwritten(signed, signed_back, factor), signed),
        ("outputs", "gradient_float64", "gradient_float32", "upstream", "not_finite"),
    ),
    "reference without setup_context": (
        both(
            lambda factor: lambda x, w: handwritten(scaled_wide, scaled_wide_back, factor)(x, w),
            handwritten(
                scaled_wide := lambda x, w: x.sin() * w,
                scaled_wide_back := lambda g, x, w: (g * w * x.cos(), (g * x.sin()).sum(0)),
            ),
        ),
        ("outputs", "gradient_exact", "gradient_float64", "gradient_float32"),
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
        both(noising, noisy, dtypes=("float32", "bfloat16"), random=True),
        ("outputs", "gradient_exact", "gradient_float32", "gradient_bfloat16"),
    ),
    "loses digits in single calls alone": (
        both(centring, centred, dims={"T": (3, 1, 8), "H": (1,)}),
        ("gradient_float32", "gradient_exact"),
    ),
}
