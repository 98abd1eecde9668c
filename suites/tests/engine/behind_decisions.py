"""Functions of one array with a backward pass by hand, in both frameworks: a fault sits behind one decision there.

Every entry is right wherever the decision goes the usual way. `k` is 1 in the right twin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gradgate.references.backends import namespace


@dataclass(frozen=True)
class Rule:
    """A function, its gradient, and where the gradient is wrong.

    Attributes:
        forward: (xp, x) -> the function, which is the reference, too.
        slope: (xp, x) -> its derivative, elementwise.
        where: (xp, x) -> where the fault is: booleans for each number, or one for all.
        adds: whether the fault adds (k − 1) to the derivative, which may be zero, and does not multiply it by k.
        wrong: k of the wrong twin; at a kink, a derivative that lies between those on both sides is right.
    """

    forward: Callable[[Any, Any], Any]
    slope: Callable[[Any, Any], Any]
    where: Callable[[Any, Any], Any]
    adds: bool = False
    wrong: float = 1.1

    def gradient(self, xp: Any, x: Any, g: Any, k: float) -> Any:
        """The gradient for the cotangent g."""
        slope = self.slope(xp, x)
        wrong = slope + (k - 1.0) if self.adds else k * slope
        return g * xp.where(self.where(xp, x) & (x == x), wrong, slope)


def nowhere(xp: Any, x: Any) -> Any:
    """No number."""
    return x != x


def cubic(where: Callable[[Any, Any], Any]) -> Rule:
    """X + x³, wrong where `where` says."""
    return Rule(lambda xp, x: x + x**3, lambda xp, x: 1 + 3 * x**2, where)


def larger(xp: Any, x: Any) -> Any:
    """The share of each number in the largest one: ties share."""
    at = x == xp.max(x)
    return xp.where(at, 1.0, 0.0) / xp.sum(xp.where(at, 1.0, 0.0))


def guarded(xp: Any, x: Any) -> Any:
    """Softplus with a guard against overflow."""
    return xp.where(x > 88, x, xp.log1p(xp.exp(xp.minimum(x, 88 + 0 * x))))


def positive(xp: Any, x: Any) -> Any:
    """How many numbers are positive, at least 1."""
    count = xp.sum(xp.where(x > 0, 1.0, 0.0))
    return xp.where(count < 1, 1.0, count)


def mean_of_positive(xp: Any, x: Any) -> Any:
    """The mean of the positive numbers; it jumps where a number becomes positive."""
    return xp.sum(xp.where(x > 0, x, 0 * x)) / positive(xp, x)


RULES: dict[str, Rule] = {
    "above a number": cubic(lambda xp, x: x > 20),
    "below a number": cubic(lambda xp, x: x < -20),
    "far away": cubic(lambda xp, x: abs(x) > 1e6),
    "tiny": cubic(lambda xp, x: abs(x) < 1e-6),
    "zero": cubic(lambda xp, x: x == 0),
    "subnormal": cubic(lambda xp, x: (x != 0) & (abs(x) < 1e-37)),
    "exactly three": cubic(lambda xp, x: x == 3),
    "border of a clamp": Rule(
        lambda xp, x: xp.minimum(x, 6 + 0 * x), lambda xp, x: xp.where(x < 6, 1.0, 0.0), lambda xp, x: x > 6, True
    ),
    "clipping from below": Rule(
        lambda xp, x: xp.maximum(x, -7 + 0 * x), lambda xp, x: xp.where(x > -7, 1.0, 0.0), lambda xp, x: x < -7, True
    ),
    "overflow guard": Rule(guarded, lambda xp, x: 1 / (1 + xp.exp(-xp.maximum(x, -80 + 0 * x))), lambda xp, x: x > 88),
    "tail of a Huber loss": Rule(
        lambda xp, x: xp.where(abs(x) <= 10, x * x / 2, 10 * abs(x) - 50),
        lambda xp, x: xp.where(abs(x) <= 10, x, 10 * xp.sign(x)),
        lambda xp, x: abs(x) > 10,
    ),
    "hinge": Rule(
        lambda xp, x: xp.maximum(5 - x, 0 * x), lambda xp, x: xp.where(x < 5, -1.0, 0.0), lambda xp, x: x > 5, True
    ),
    "masked lane": Rule(
        lambda xp, x: xp.where(x > -10, x * x, 0 * x),
        lambda xp, x: xp.where(x > -10, 2 * x, 0 * x),
        lambda xp, x: x <= -10,
        True,
    ),
    "sign of zero": Rule(lambda xp, x: abs(x) * x, lambda xp, x: 2 * abs(x), lambda xp, x: x == 0, True),
    "kink of abs": Rule(lambda xp, x: abs(x) + x, lambda xp, x: xp.sign(x) + 1, lambda xp, x: x == 0, True, 3.0),
    "tie of a maximum": Rule(
        lambda xp, x: xp.max(x),
        larger,
        lambda xp, x: xp.sum(xp.where(x == xp.max(x), 1.0, 0.0)) > 1,
        wrong=4.0,
    ),
    "padding": cubic(lambda xp, x: xp.all(x == 0)),
    "all equal": cubic(lambda xp, x: xp.max(x) == xp.min(x)),
    "neighbours equal": cubic(lambda xp, x: xp.any(x[1:] == x[:-1])),
    "sorted": cubic(lambda xp, x: xp.all(x[1:] >= x[:-1])),
    "all negative": cubic(lambda xp, x: xp.max(x) < 0),
    "none negative": cubic(lambda xp, x: xp.min(x) >= 0),
    "large sum": cubic(lambda xp, x: abs(xp.sum(x)) > 1000),
    "negative mean": cubic(lambda xp, x: xp.sum(x) < -40),
    "small norm": cubic(lambda xp, x: xp.sum(x * x) < 1e-4),
    "clipping by norm": cubic(lambda xp, x: xp.sum(x * x) > 1e5),
    "temperature": cubic(lambda xp, x: xp.max(x) - xp.min(x) > 50),
    "order of two": cubic(lambda xp, x: x[0] > x[1] + 30),
    "order of two, other way": cubic(lambda xp, x: x[1] > x[0] + 30),
    "second of the largest": cubic(lambda xp, x: xp.sum(xp.where(x > 15, 1.0, 0.0)) > 1),
    "whole numbers": cubic(lambda xp, x: x == xp.floor(x)),
    "rounded to zero": cubic(lambda xp, x: xp.round(x * 1000) == 0),
    "beside a jump": Rule(
        lambda xp, x: x + x**3 + xp.sign(x[0]), lambda xp, x: 1 + 3 * x**2, lambda xp, x: (x[0] == 0) & (x == x[1])
    ),
    "shifted exponent": cubic(lambda xp, x: xp.max(x) > 60),
}


def in_jax(rule: Rule, k: float) -> Callable[[Any], Any]:
    """The function with its own backward pass."""
    import jax

    xp = jax.numpy

    @jax.custom_vjp
    def function(x: Any) -> Any:
        return rule.forward(xp, x)

    function.defvjp(lambda x: (function(x), x), lambda x, g: (rule.gradient(xp, x, g, k),))
    return function


def in_torch(rule: Rule, k: float) -> Callable[[Any], Any]:
    """The function with its own backward pass."""
    import array_api_compat.torch as xp
    import torch

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return rule.forward(xp, x)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return rule.gradient(xp, ctx.saved_tensors[0], g, k)

    return lambda x: Function.apply(x)


def reference(framework: str, forward: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """A function of (xp, x) without a backward pass of its own."""
    xp = namespace(framework)  # type: ignore[arg-type]
    return lambda x: forward(xp, x)


RIGHT: dict[str, tuple[Rule, Callable[[Any, Any], Any], str]] = {
    "approximate far away": (
        Rule(
            lambda xp, x: xp.where(x > 20, x, xp.log1p(xp.exp(xp.minimum(x, 20 + 0 * x)))),
            lambda xp, x: xp.where(x > 20, 1.0, 1 / (1 + xp.exp(-x))),
            nowhere,
        ),
        lambda xp, x: xp.log1p(xp.exp(x)),
        "less than plain backprop loses in float32",
    ),
    "saturated far away": (
        Rule(
            lambda xp, x: xp.where(abs(x) > 20, xp.sign(x), xp.tanh(x)),
            lambda xp, x: xp.where(abs(x) > 20, 0 * x, 1 - xp.tanh(x) ** 2),
            nowhere,
        ),
        lambda xp, x: xp.tanh(x),
        "less than plain backprop loses in float32",
    ),
    "clamped where the reference overflows": (
        Rule(
            lambda xp, x: xp.exp(xp.minimum(x, 700 + 0 * x)),
            lambda xp, x: xp.exp(xp.minimum(x, 700 + 0 * x)),
            nowhere,
        ),
        lambda xp, x: xp.exp(x),
        "not finite",
    ),
    "better at a tie": (
        Rule(
            lambda xp, x: xp.maximum(x[0], x[1]) + xp.log1p(xp.exp(-abs(x[0] - x[1]))),
            lambda xp, x: xp.stack([1 / (1 + xp.exp(x[1] - x[0])), 1 / (1 + xp.exp(x[0] - x[1])), *(0 * x[2:])]),
            nowhere,
        ),
        lambda xp, x: xp.where(x[0] > x[1], x[0], x[1]) + xp.log1p(xp.exp(xp.minimum(x[0] - x[1], x[1] - x[0]))),
        "generalised gradient",
    ),
    "another convention at the kink of abs": (
        Rule(lambda xp, x: abs(x), lambda xp, x: xp.where(x > 0.25, 1.0, xp.where(x == 0, 0.25, xp.sign(x))), nowhere),
        lambda xp, x: abs(x),
        "generalised gradient",
    ),
    "another convention at the kink of relu": (
        Rule(lambda xp, x: xp.maximum(x, 0 * x), lambda xp, x: xp.where(x >= 0, 1.0, 0.0), lambda xp, x: x == 0),
        lambda xp, x: xp.maximum(x, 0 * x),
        "generalised gradient",
    ),
    "where the reference jumps": (
        Rule(mean_of_positive, lambda xp, x: xp.where(x >= 0, 1 / positive(xp, x), 0.0), nowhere),
        mean_of_positive,
        "jumps",
    ),
    "first of two largest": (
        Rule(
            lambda xp, x: xp.max(x),
            lambda xp, x: xp.where(xp.arange(len(x)) == xp.argmax(x), 1.0, 0.0),
            nowhere,
        ),
        lambda xp, x: xp.max(x),
        "generalised gradient",
    ),
    "at a jump": (
        Rule(lambda xp, x: x - xp.floor(x), lambda xp, x: xp.where(x == xp.floor(x), 0.0, 1.0), nowhere),
        lambda xp, x: x - xp.floor(x),
        "the reference jumps",
    ),
    "not finite at a kink": (
        Rule(lambda xp, x: xp.sqrt(x * x), lambda xp, x: x / xp.sqrt(x * x), lambda xp, x: x > 1e5),
        lambda xp, x: abs(x),
        "not finite at a kink",
    ),
    "domain of the logarithm": (
        Rule(
            lambda xp, x: xp.log(xp.where(x > -9, x + 9, 1.0)),
            lambda xp, x: xp.where(x > -9, 1 / (x + 9), 5.0),
            nowhere,
        ),
        lambda xp, x: xp.log(x + 9),
        "not finite",
    ),
    "division by zero": (
        Rule(
            lambda xp, x: 1 / xp.where(x == 0, 1.0, x),
            lambda xp, x: xp.where(x == 0, 3.0, -1 / xp.where(x == 0, 1.0, x) ** 2),
            nowhere,
        ),
        lambda xp, x: 1 / x,
        "not finite",
    ),
    "border of a domain": (
        Rule(
            lambda xp, x: xp.sqrt(xp.maximum(x + 8, 0 * x)) ** 3,
            lambda xp, x: 1.5 * xp.sqrt(xp.maximum(x + 8, 0 * x)),
            nowhere,
        ),
        lambda xp, x: xp.sqrt(x + 8) ** 3,
        "not finite",
    ),
}
"""Name -> right function, another reference, and what is said of inputs where the two differ."""
