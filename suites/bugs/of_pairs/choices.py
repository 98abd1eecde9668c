"""Functions that choose by comparing numbers, each of another kind, with backward passes by hand; in both frameworks.

They are right, at ties too: there a gradient is an element of the generalised gradient.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gradgate import Pair, normal
from gradgate.references.backends import namespace

ONE = {"x": normal("T H")}
TWO = {"x": normal("T H"), "y": normal("T H")}


@dataclass(frozen=True)
class Kind:
    """A function in two ways, and the gradient of the first one.

    Attributes:
        function, plain: (xp, *inputs) -> the output.
        backward: (xp, cotangent, *inputs) -> the gradients.
    """

    function: Callable[..., Any]
    plain: Callable[..., Any]
    backward: Callable[..., Any]
    inputs: Mapping[str, Any] = field(default_factory=lambda: ONE)


def _total(xp: Any, x: Any) -> Any:
    return xp.sum(x, axis=-1, keepdims=True)


def _highest(xp: Any, x: Any) -> Any:
    return xp.max(x, axis=-1, keepdims=True)


def _sigmoid(xp: Any, x: Any) -> Any:
    return xp.where(x > 0, 1 / (1 + xp.exp(-abs(x))), xp.exp(-abs(x)) / (1 + xp.exp(-abs(x))))


def _between(xp: Any, x: Any, low: float, high: float) -> Any:
    return xp.minimum(xp.maximum(x, low + 0 * x), high + 0 * x)


def _share(xp: Any, x: Any) -> Any:
    """The share of each number in the largest one of its row."""
    at = xp.where(x == _highest(xp, x), 1.0 + 0 * x, 0 * x)
    return at / _total(xp, at)


def _norm(xp: Any, x: Any) -> Any:
    return xp.sqrt(_total(xp, x * x))


def _shrunk_backward(xp: Any, g: Any, x: Any) -> tuple[Any]:
    size = _norm(xp, x)
    inner = _total(xp, g * x)
    return (xp.where(size > 2, 2 * (g / size - x * inner / size**3), g),)


def _positive_mean(xp: Any, x: Any) -> Any:
    count = _total(xp, xp.where(x > 0, 1.0 + 0 * x, 0 * x))
    return _total(xp, xp.where(x > 0, x, 0 * x)) / xp.maximum(count, 1 + 0 * count)


def _positive_mean_backward(xp: Any, g: Any, x: Any) -> tuple[Any]:
    count = _total(xp, xp.where(x > 0, 1.0 + 0 * x, 0 * x))
    return (xp.where(x > 0, g / xp.maximum(count, 1 + 0 * count), 0 * x),)


def _swiglu(xp: Any, x: Any, y: Any) -> Any:
    gate = xp.minimum(x, 2 + 0 * x)
    return gate * _sigmoid(xp, gate) * (_between(xp, y, -2, 2) + 1)


def _swiglu_backward(xp: Any, g: Any, x: Any, y: Any) -> tuple[Any, Any]:
    gate, linear = xp.minimum(x, 2 + 0 * x), _between(xp, y, -2, 2)
    s = _sigmoid(xp, gate)
    dx = g * (linear + 1) * s * (1 + gate * (1 - s))
    return xp.where(x < 2, dx, 0 * x), xp.where(abs(y) < 2, g * gate * s, 0 * y)


def _pinball_backward(xp: Any, g: Any, x: Any, y: Any) -> tuple[Any, Any]:
    slope = xp.where(y > x, -0.7 + 0 * x, 0.3 + 0 * x)
    return g * slope, -g * slope


def _triplet_backward(xp: Any, g: Any, x: Any, y: Any) -> tuple[Any, Any]:
    on = xp.where(_total(xp, x * x - y * y) + 1 > 0, 2 * g, 0 * g)
    return on * x, -on * y


def _softmin_pair(xp: Any, x: Any, y: Any) -> Any:
    return xp.maximum(x, y) + xp.log1p(xp.exp(-abs(x - y)))


def _weighed(xp: Any, x: Any) -> Any:
    """1 where |x| ≤ 1, else 1/|x|: the weights of a Huber loss."""
    return xp.where(abs(x) <= 1, 1 + 0 * x, 1 / xp.maximum(abs(x), 1 + 0 * x))


def _weighed_backward(xp: Any, g: Any, x: Any) -> tuple[Any]:
    return (xp.where(abs(x) <= 1, g, 0 * g),)


def _cosine(xp: Any, x: Any, y: Any) -> Any:
    one, other = _norm(xp, x), _norm(xp, y)
    return _total(xp, x * y) / (xp.maximum(one, 0.5 + 0 * one) * xp.maximum(other, 0.5 + 0 * other))


def _cosine_backward(xp: Any, g: Any, x: Any, y: Any) -> tuple[Any, Any]:
    inner, one, other = _total(xp, x * y), _norm(xp, x), _norm(xp, y)
    a, b = xp.maximum(one, 0.5 + 0 * one), xp.maximum(other, 0.5 + 0 * other)
    dx = y / (a * b) - xp.where(one > 0.5, x * inner / (a**3 * b), 0 * x)
    dy = x / (a * b) - xp.where(other > 0.5, y * inner / (a * b**3), 0 * y)
    return g * dx, g * dy


KINDS: dict[str, Kind] = {
    "rectified": Kind(
        lambda xp, x: xp.maximum(x, 0 * x),
        lambda xp, x: (abs(x) + x) / 2,
        lambda xp, g, x: (xp.where(x > 0, g, 0 * g),),
    ),
    "leaky": Kind(
        lambda xp, x: xp.where(x > 0, x, 0.1 * x),
        lambda xp, x: xp.maximum(x, 0.1 * x),
        lambda xp, g, x: (xp.where(x > 0, g, 0.1 * g),),
    ),
    "exponential_unit": Kind(
        lambda xp, x: xp.where(x > 0, x, xp.expm1(xp.minimum(x, 0 * x))),
        lambda xp, x: xp.maximum(x, 0 * x) + xp.expm1(xp.minimum(x, 0 * x)),
        lambda xp, g, x: (xp.where(x > 0, g, g * xp.exp(xp.minimum(x, 0 * x))),),
    ),
    "guarded_softplus": Kind(
        lambda xp, x: xp.maximum(x, 0 * x) + xp.log1p(xp.exp(-abs(x))),
        lambda xp, x: xp.log1p(xp.exp(x)),
        lambda xp, g, x: (g * _sigmoid(xp, x),),
    ),
    "clipped": Kind(
        lambda xp, x: _between(xp, x, -1, 1),
        lambda xp, x: (abs(x + 1) - abs(x - 1)) / 2,
        lambda xp, g, x: (xp.where(abs(x) < 1, g, 0 * g),),
    ),
    "hard_swish": Kind(
        lambda xp, x: x * _between(xp, x + 3, 0, 6) / 6,
        lambda xp, x: x * (abs(x + 3) - abs(x - 3) + 6) / 12,
        lambda xp, g, x: (g * xp.where(x < -3, 0 * x, xp.where(x > 3, 1 + 0 * x, (2 * x + 3) / 6)),),
    ),
    "huber": Kind(
        lambda xp, x, y: xp.where(abs(x - y) <= 1, (x - y) ** 2 / 2, abs(x - y) - 0.5),
        lambda xp, x, y: _between(xp, x - y, -1, 1) * (x - y - _between(xp, x - y, -1, 1) / 2),
        lambda xp, g, x, y: (
            g * xp.where(abs(x - y) <= 1, x - y, xp.sign(x - y)),
            -g * xp.where(abs(x - y) <= 1, x - y, xp.sign(x - y)),
        ),
        TWO,
    ),
    "hinge": Kind(
        lambda xp, x, y: xp.maximum(1 - x * y, 0 * x),
        lambda xp, x, y: (abs(1 - x * y) + 1 - x * y) / 2,
        lambda xp, g, x, y: (xp.where(x * y < 1, -g * y, 0 * g), xp.where(x * y < 1, -g * x, 0 * g)),
        TWO,
    ),
    "soft_threshold": Kind(
        lambda xp, x: xp.sign(x) * xp.maximum(abs(x) - 0.5, 0 * x),
        lambda xp, x: x - _between(xp, x, -0.5, 0.5),
        lambda xp, g, x: (xp.where(abs(x) > 0.5, g, 0 * g),),
    ),
    "pinball": Kind(
        lambda xp, x, y: xp.where(y > x, 0.7 * (y - x), 0.3 * (x - y)),
        lambda xp, x, y: xp.maximum(0.7 * (y - x), 0.3 * (x - y)),
        _pinball_backward,
        TWO,
    ),
    "shrunk_norm": Kind(
        lambda xp, x: x * xp.where(_norm(xp, x) > 2, 2 / _norm(xp, x), 1.0),
        lambda xp, x: 2 * x / xp.maximum(_norm(xp, x), 2 + 0 * _norm(xp, x)),
        _shrunk_backward,
    ),
    "pooled": Kind(
        lambda xp, x: _highest(xp, x),
        lambda xp, x: _total(xp, _share(xp, x) * x),
        lambda xp, g, x: (g * _share(xp, x),),
    ),
    "log_of_two": Kind(
        lambda xp, x, y: _softmin_pair(xp, x, y),
        lambda xp, x, y: xp.log(xp.exp(x) + xp.exp(y)),
        lambda xp, g, x, y: (g * _sigmoid(xp, x - y), g * _sigmoid(xp, y - x)),
        TWO,
    ),
    "positive_mean": Kind(
        _positive_mean,
        lambda xp, x: (
            _total(xp, (abs(x) + x) / 2)
            / xp.maximum(_total(xp, xp.where(x > 0, 1.0 + 0 * x, 0 * x)), 1 + 0 * _total(xp, x))
        ),
        _positive_mean_backward,
    ),
    "absolute": Kind(
        lambda xp, x: abs(x) * x + abs(x),
        lambda xp, x: xp.where(x > 0, x * x + x, -x * x - x),
        lambda xp, g, x: (g * (2 * abs(x) + xp.sign(x)),),
    ),
    "larger_of_two": Kind(
        lambda xp, x, y: xp.maximum(x, y),
        lambda xp, x, y: (x + y + abs(x - y)) / 2,
        lambda xp, g, x, y: (
            g * xp.where(x > y, 1 + 0 * x, xp.where(x < y, 0 * x, 0.5 + 0 * x)),
            g * xp.where(x > y, 0 * x, xp.where(x < y, 1 + 0 * x, 0.5 + 0 * x)),
        ),
        TWO,
    ),
    "triplet": Kind(
        lambda xp, x, y: xp.maximum(_total(xp, x * x - y * y) + 1, 0 * _total(xp, x)),
        lambda xp, x, y: (abs(_total(xp, x * x - y * y) + 1) + _total(xp, x * x - y * y) + 1) / 2,
        _triplet_backward,
        TWO,
    ),
    "floored_divisor": Kind(
        lambda xp, x, y: x / xp.where(y * y > 0.25, y * y, 0.25 + 0 * y),
        lambda xp, x, y: x / xp.maximum(y * y, 0.25 + 0 * y),
        lambda xp, g, x, y: (
            g / xp.maximum(y * y, 0.25 + 0 * y),
            xp.where(y * y > 0.25, -2 * g * x * y / xp.maximum(y * y, 0.25 + 0 * y) ** 2, 0 * y),
        ),
        TWO,
    ),
    "floored_log": Kind(
        lambda xp, x: xp.log(xp.maximum(x, 0.5 + 0 * x)),
        lambda xp, x: xp.where(x > 0.5, xp.log(xp.maximum(x, 0.5 + 0 * x)), xp.log(0.5 + 0 * x)),
        lambda xp, g, x: (xp.where(x > 0.5, g / xp.maximum(x, 0.5 + 0 * x), 0 * g),),
    ),
    "rooted": Kind(
        lambda xp, x: xp.sqrt(1 + xp.maximum(x, 0 * x)),
        lambda xp, x: xp.where(x > 0, xp.sqrt(1 + xp.maximum(x, 0 * x)), 1 + 0 * x),
        lambda xp, g, x: (xp.where(x > 0, g / (2 * xp.sqrt(1 + xp.maximum(x, 0 * x))), 0 * g),),
    ),
    "cosine": Kind(
        _cosine,
        lambda xp, x, y: _total(
            xp,
            x
            / xp.maximum(_norm(xp, x), 0.5 + 0 * _norm(xp, x))
            * (y / xp.maximum(_norm(xp, y), 0.5 + 0 * _norm(xp, y))),
        ),
        _cosine_backward,
        TWO,
    ),
    "gated": Kind(
        lambda xp, x, y: xp.where(x > 0, x * y, 0 * y),
        lambda xp, x, y: (abs(x) + x) / 2 * y,
        lambda xp, g, x, y: (xp.where(x > 0, g * y, 0 * g), xp.where(x > 0, g * x, 0 * g)),
        TWO,
    ),
    "clamped_swiglu": Kind(
        _swiglu,
        lambda xp, x, y: (
            xp.minimum(x, 2 + 0 * x) / (1 + xp.exp(-xp.minimum(x, 2 + 0 * x))) * (_between(xp, y, -2, 2) + 1)
        ),
        _swiglu_backward,
        TWO,
    ),
    "smooth_step": Kind(
        lambda xp, x: _between(xp, x, 0, 1) ** 2 * (3 - 2 * _between(xp, x, 0, 1)),
        lambda xp, x: xp.where(x < 0, 0 * x, xp.where(x > 1, 1 + 0 * x, 3 * x**2 - 2 * x**3)),
        lambda xp, g, x: (xp.where((x > 0) & (x < 1), 6 * g * x * (1 - x), 0 * g),),
    ),
    "weighed": Kind(
        lambda xp, x: _weighed(xp, x) * x,
        lambda xp, x: _between(xp, x, -1, 1),
        _weighed_backward,
    ),
    "top_of_row": Kind(
        lambda xp, x, y: xp.where(x == _highest(xp, x), y, 0 * y),
        lambda xp, x, y: y * xp.where(x < _highest(xp, x), 0 * x, 1 + 0 * x),
        lambda xp, g, x, y: (0 * x, xp.where(x == _highest(xp, x), g, 0 * g)),
        TWO,
    ),
    "spread": Kind(
        lambda xp, x: _highest(xp, x) + _highest(xp, -x),
        lambda xp, x: _highest(xp, x) - xp.min(x, axis=-1, keepdims=True),
        lambda xp, g, x: (g * (_share(xp, x) - _share(xp, -x)),),
    ),
}
"""Name of a pair -> function, reference and gradient; all of two dims, and of one or two inputs."""


def in_jax(kind: Kind) -> Callable[..., Any]:
    """The function with its backward pass."""
    import jax

    xp = namespace("jax")
    function = jax.custom_vjp(functools.partial(kind.function, xp))
    function.defvjp(
        lambda *inputs: (kind.function(xp, *inputs), inputs), lambda inputs, g: kind.backward(xp, g, *inputs)
    )
    return lambda *inputs: function(*inputs)


def in_torch(kind: Kind) -> Callable[..., Any]:
    """The function with its backward pass."""
    import torch

    xp = namespace("torch")

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            ctx.save_for_backward(*inputs)
            return kind.function(xp, *inputs)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return kind.backward(xp, g, *ctx.saved_tensors)

    return lambda *inputs: Function.apply(*inputs)


def pairs(framework: str) -> dict[str, Pair]:
    """Name -> pair, in one framework."""
    made = {"jax": in_jax, "torch": in_torch}[framework]
    xp = namespace(framework)
    return {
        name: Pair(
            made(kind),
            functools.partial(kind.plain, xp),
            inputs=kind.inputs,
            dims={"T": (2, 1, 3), "H": (3, 1, 4)},
            framework=framework,
            name=name,
        )
        for name, kind in KINDS.items()
    }
