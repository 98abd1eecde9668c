"""Activations and their derivatives, where PyTorch has separate operations for them.

Constants are the mathematical ones, not their floats: √(2/π) in the digits in use.
"""

from __future__ import annotations

from typing import Any

from flint import arb

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_torch.rules import number, numbers

ZERO, ONE = arb(0), arb(1)


def chosen(mask: Any, one: Any, other: Any) -> Any:
    """`one` where the mask is true, elsewhere `other`; neither needs to be a number where it is not taken."""
    return balls.elementwise(balls._chosen, mask, one, other)


@numbers("relu")
def relu(a: Any) -> Any:
    """The larger of a and 0."""
    return balls.maximum(a, ZERO)


@numbers("threshold")
def threshold(a: Any, threshold: Any, value: Any) -> Any:
    """A above the threshold, elsewhere the value."""
    return chosen(balls.compare("gt", a, number(threshold)), a, number(value))


@numbers("threshold_backward")
def threshold_backward(grad: Any, a: Any, threshold: Any) -> Any:
    """The cotangent where a is above the threshold."""
    return chosen(balls.compare("gt", a, number(threshold)), grad, ZERO)


@numbers("hardtanh_backward")
def hardtanh_backward(grad: Any, a: Any, low: Any, high: Any) -> Any:
    """The cotangent strictly within the bounds."""
    inside = balls.compare("gt", a, number(low)) & balls.compare("lt", a, number(high))
    return chosen(inside, grad, ZERO)


@numbers("tanh_backward")
def tanh_backward(grad: Any, y: Any) -> Any:
    """The derivative of y = tanh x."""
    return grad * (1 - y * y)


@numbers("sigmoid_backward")
def sigmoid_backward(grad: Any, y: Any) -> Any:
    """The derivative of y = 1/(1 + e⁻ˣ)."""
    return grad * (y * (1 - y))


@numbers("silu")
def silu(a: Any) -> Any:
    """X/(1 + e⁻ˣ)."""
    return a * balls.unary("logistic", a)


@numbers("silu_backward")
def silu_backward(grad: Any, a: Any) -> Any:
    """The derivative of x·σ(x)."""
    s = balls.unary("logistic", a)
    return grad * (s * (1 + a * (1 - s)))


@numbers("softplus")
def softplus(a: Any, beta: Any = 1, threshold: Any = 20) -> Any:
    """Log(1 + e^(βx))/β, and x where βx is above the threshold, as PyTorch defines it."""
    scaled = a * number(beta)
    smooth = balls.elementwise(lambda x: (1 + x.exp()).log(), scaled) / number(beta)
    return chosen(balls.compare("gt", scaled, number(threshold)), a, smooth)


@numbers("softplus_backward")
def softplus_backward(grad: Any, a: Any, beta: Any, threshold: Any) -> Any:
    """The derivative of `softplus`."""
    scaled = a * number(beta)
    inside = grad * balls.unary("logistic", scaled)
    return chosen(balls.compare("gt", scaled, number(threshold)), grad, inside)


def _gelu(x: Any) -> Any:
    return x * (1 + (x / arb(2).sqrt()).erf()) / 2


def _gelu_tanh(x: Any) -> Any:
    return x * (1 + _inner(x).tanh()) / 2


def _inner(x: Any) -> Any:
    return (2 / arb.pi()).sqrt() * (x + _KAPPA * x * x * x)


_KAPPA = arb(0.044715)  # a number of the definition, as the float that programs write


@numbers("gelu")
def gelu(a: Any, approximate: str = "none") -> Any:
    """X·Φ(x), or its approximation by tanh."""
    return balls.elementwise(_gelu if approximate == "none" else _gelu_tanh, a)


def _gelu_slope(x: Any) -> Any:
    density = (-x * x / 2).exp() / (2 * arb.pi()).sqrt()
    return (1 + (x / arb(2).sqrt()).erf()) / 2 + x * density


def _gelu_tanh_slope(x: Any) -> Any:
    t = _inner(x).tanh()
    return (1 + t) / 2 + x / 2 * (1 - t * t) * (2 / arb.pi()).sqrt() * (1 + 3 * _KAPPA * x * x)


@numbers("gelu_backward")
def gelu_backward(grad: Any, a: Any, approximate: str = "none") -> Any:
    """The derivative of `gelu`."""
    return grad * balls.elementwise(_gelu_slope if approximate == "none" else _gelu_tanh_slope, a)


@numbers("leaky_relu")
def leaky_relu(a: Any, slope: Any = 0.01) -> Any:
    """X above zero, elsewhere slope·x."""
    return chosen(balls.compare("gt", a, ZERO), a, a * number(slope))


@numbers("leaky_relu_backward")
def leaky_relu_backward(grad: Any, a: Any, slope: Any, is_result: bool = False) -> Any:
    """The derivative of `leaky_relu`, from its argument or its result: both have the same sign."""
    return chosen(balls.compare("gt", a, ZERO), grad, grad * number(slope))


@numbers("elu")
def elu(a: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    """Scale·x above zero, elsewhere scale·alpha·(e^(input_scale·x) − 1)."""
    below = number(scale) * number(alpha) * balls.unary("expm1", a * number(input_scale))
    return chosen(balls.compare("gt", a, ZERO), a * number(scale), below)


@numbers("elu_backward")
def elu_backward(grad: Any, alpha: Any, scale: Any, input_scale: Any, is_result: bool, a: Any) -> Any:
    """The derivative of `elu`, from its argument or its result."""
    alpha, scale, inner = number(alpha), number(scale), number(input_scale)
    below = inner * (a + alpha * scale) if is_result else scale * alpha * inner * balls.unary("exp", a * inner)
    return chosen(balls.compare("gt", a, ZERO), grad * scale, grad * below)


@numbers("log_sigmoid_forward")
def log_sigmoid_forward(a: Any) -> Any:
    """−log(1 + e⁻ˣ); PyTorch's buffer is only for its derivative."""
    return balls.elementwise(lambda x: -(1 + (-x).exp()).log(), a), None


@numbers("log_sigmoid_backward")
def log_sigmoid_backward(grad: Any, a: Any, buffer: Any) -> Any:
    """The derivative of log σ(x)."""
    return grad * balls.unary("logistic", -a)


@numbers("hardsigmoid_backward")
def hardsigmoid_backward(grad: Any, a: Any) -> Any:
    """A sixth of the cotangent within −3 … 3."""
    inside = balls.compare("gt", a, arb(-3)) & balls.compare("lt", a, arb(3))
    return chosen(inside, grad / arb(6), ZERO)


@numbers("softshrink_backward", "hardshrink_backward")
def shrink_backward(grad: Any, a: Any, bound: Any) -> Any:
    """The cotangent where a is farther than the bound from zero."""
    near = balls.compare("ge", a, -number(bound)) & balls.compare("le", a, number(bound))
    return chosen(near, ZERO, grad)
