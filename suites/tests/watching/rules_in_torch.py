"""Small rules of PyTorch as libraries write them, each with a caller; `MUTANTS` has two ways to break each."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        x, y = ctx.saved_tensors
        return dy * y, dy * x


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x.sigmoid()

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        (x,) = ctx.saved_tensors
        s = x.sigmoid()
        return dy * s * (1 + x * (1 - s))


class RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, epsilon: float) -> Any:
        scale = (x.pow(2).mean(-1, keepdim=True) + epsilon).rsqrt()
        ctx.save_for_backward(x, weight, scale)
        return x * scale * weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Any) -> Any:
        x, weight, scale = ctx.saved_tensors
        n = x * scale
        dn = dy * weight
        dx = scale * (dn - n * (dn * n).mean(-1, keepdim=True))
        return dx, (dy * n).reshape(-1, x.shape[-1]).sum(0), None


class CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Any, labels: Any, reduction: str) -> Any:
        ctx.save_for_backward(logits.softmax(-1), labels)
        ctx.count = len(labels) if reduction == "mean" else 1
        picked = logits.log_softmax(-1).gather(1, labels[:, None])
        return -picked.sum() / ctx.count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Any) -> Any:
        p, labels = ctx.saved_tensors
        hot = torch.nn.functional.one_hot(labels, p.shape[1])
        return dy * (p - hot) / ctx.count, None, None


class Linear(torch.autograd.Function):
    @staticmethod
    def forward(x: Any, w: Any, b: Any) -> Any:
        return x @ w.t() + b

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        x, w = ctx.saved_tensors
        dx = dy @ w if ctx.needs_input_grad[0] else None
        dw = dy.t() @ x if ctx.needs_input_grad[1] else None
        return dx, dw, dy.sum(0)


class Exponential(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        (y,) = ctx.saved_tensors
        return dy * y


class LogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, axis: int) -> Any:
        top = x.max(axis, keepdim=True)[0]
        y = (x - top).exp().sum(axis, keepdim=True).log() + top
        ctx.axis = axis
        ctx.save_for_backward(x, y)
        return y.squeeze(axis)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        x, y = ctx.saved_tensors
        return dy.unsqueeze(ctx.axis) * (x - y).exp(), None


class LeakyRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, slope: float) -> Any:
        ctx.save_for_backward(x)
        ctx.slope = slope
        return torch.where(x > 0, x, slope * x)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        (x,) = ctx.saved_tensors
        return torch.where(x > 0, dy, ctx.slope * dy), None


class Direction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        size = x.norm(dim=-1, keepdim=True)
        u = x / size
        ctx.save_for_backward(u, size)
        return u

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Any) -> Any:
        u, size = ctx.saved_tensors
        return (dy - u * (u * dy).sum(-1, keepdim=True)) / size


class SinCos(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x.sin(), x.cos()

    @staticmethod
    def backward(ctx: Any, ds: Any, dc: Any) -> Any:
        (x,) = ctx.saved_tensors
        return ds * x.cos() - dc * x.sin()


class ClampInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x > 0)
        ctx.mark_dirty(x)
        return x.clamp_(min=0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Any) -> Any:
        (on,) = ctx.saved_tensors
        return dy * on


class Scaled(torch.autograd.Function):
    """Its second output is a float without a gradient."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        size = x.abs().amax()
        ctx.save_for_backward(x)
        ctx.mark_non_differentiable(size)
        return x * x.sigmoid(), size

    @staticmethod
    def backward(ctx: Any, dy: Any, _: Any) -> Any:
        (x,) = ctx.saved_tensors
        return dy * torch.sigmoid(x) * (1 + x * torch.sigmoid(-x))


class PrefixSum(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any, w: Any) -> Any:
        return (x * w).cumsum(-1)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        x, w = ctx.saved_tensors
        back = dy.flip(-1).cumsum(-1).flip(-1)
        return back * w, back * x

    @staticmethod
    def jvp(ctx: Any, dx: Any, dw: Any) -> Any:
        x, w = ctx.saved_tensors
        return (dx * w + x * dw).cumsum(-1)


class Recomputed(torch.autograd.Function):
    """A rule of a function that holds one of the arrays of its call."""

    @staticmethod
    def forward(ctx: Any, function: Any, x: Any, w: Any) -> Any:
        ctx.function = function
        ctx.save_for_backward(x, w)
        return function(x)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        x, w = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            dx, dw = torch.autograd.grad(ctx.function(x), (x, w), dy)
        return None, dx, dw


class Gated(torch.nn.Module):
    """A module with a parameter and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("scale", torch.tensor([0.5]))

    def forward(self, x: Any) -> Any:
        y = torch.tanh(self.linear(x)) * self.scale
        return y * x


RATE = [1.0]


def wave(x: Any) -> Any:
    return torch.sin(x) * torch.tensor(RATE)


def halved(gradient: Any) -> Any:
    return gradient.clone()


def passed(module: Any, grad_input: Any, grad_output: Any) -> Any:
    return tuple(g + 0 for g in grad_input)


def passed_before(module: Any, grad_output: Any) -> Any:
    return tuple(g * 1 for g in grad_output)


def made(power: int) -> Any:
    """A rule that is written within a function, and captures what it needs."""

    class Power(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**power

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            (x,) = ctx.saved_tensors
            return dy * power * x ** (power - 1)

    return Power


@torch.library.custom_op(
    f"{__name__.rpartition('.')[2]}::softplus", mutates_args=(), schema="(Tensor x, *, float beta) -> Tensor"
)
def softplus(x: Any, *, beta: float) -> Any:
    """An operator of `torch.library`."""
    return (1 + (beta * x).exp()).log() / beta


def _softplus_setup(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)
    ctx.beta = keyword_only_inputs["beta"]


def _softplus_backward(ctx: Any, dy: Any) -> Any:
    (x,) = ctx.saved_tensors
    return dy * torch.sigmoid(ctx.beta * x)


softplus.register_autograd(_softplus_backward, setup_context=_softplus_setup)
DRAWS = torch.Generator().manual_seed(0)


def _leaf(*shape: int) -> Any:
    return torch.randn(*shape, generator=DRAWS).requires_grad_()


def product() -> None:
    Product.apply(_leaf(3, 4), _leaf(3, 4)).sum().backward()


def swish() -> None:
    Swish.apply(_leaf(3, 4)).sum().backward()


def rms_norm() -> None:
    RmsNorm.apply(_leaf(2, 3, 4), _leaf(4), 1e-6).sum().backward()


def cross_entropy() -> None:
    CrossEntropy.apply(_leaf(3, 5), torch.tensor([0, 4, 2]), "mean").backward()


def linear() -> None:
    Linear.apply(_leaf(3, 4), _leaf(2, 4), _leaf(2)).sum().backward()


def exponential() -> None:
    Exponential.apply(_leaf(5)).sum().backward()


def log_sum_exp() -> None:
    LogSumExp.apply(_leaf(3, 4), -1).sum().backward()


def leaky_relu() -> None:
    LeakyRelu.apply(_leaf(3, 4), 0.1).sum().backward()


def direction() -> None:
    Direction.apply(_leaf(3, 4)).sum().backward()


def sin_cos() -> None:
    sum(SinCos.apply(_leaf(4))).sum().backward()


def clamp_in_place() -> None:
    ClampInPlace.apply(_leaf(3, 4) * 1).sum().backward()


def scaled() -> None:
    Scaled.apply(_leaf(3, 4))[0].sum().backward()


def prefix_sum() -> None:
    x, w = torch.randn(2, 4), torch.randn(2, 4)
    torch.vmap(torch.func.grad(lambda x, w: PrefixSum.apply(x, w).sum(), (0, 1)))(x, w)


def power() -> None:
    made(3).apply(_leaf(4)).sum().backward()


def recomputed() -> None:
    w = _leaf(3)
    Recomputed.apply(lambda x: torch.sin(x * w), _leaf(3), w).sum().backward()


def gated() -> None:
    checkpoint(Gated(), _leaf(3, 4), use_reentrant=False).sum().backward()


def reentrant() -> None:
    checkpoint(wave, _leaf(3), use_reentrant=True).sum().backward()


def hooked() -> None:
    x = _leaf(3) * 1
    x.register_hook(halved)
    x.register_hook(lambda gradient: None)  # it changes nothing, and is no rule
    (x * x).sum().backward()


def hooked_module() -> None:
    module = torch.nn.Linear(4, 3)
    module.register_full_backward_hook(passed)
    module.register_full_backward_hook(lambda module, grad_input, grad_output: grad_input)  # no rule either
    (module(_leaf(2, 4)) ** 2).sum().backward()


def hooked_module_before() -> None:
    module = torch.nn.Bilinear(4, 3, 2)
    module.register_full_backward_pre_hook(passed_before)
    (module(_leaf(2, 4), torch.ones(2, 3)) ** 2).sum().backward()


def operator() -> None:
    softplus(_leaf(3, 4), beta=1.5).sum().backward()


CALLERS = (
    product,
    swish,
    rms_norm,
    cross_entropy,
    linear,
    exponential,
    log_sum_exp,
    leaky_relu,
    direction,
    sin_cos,
    clamp_in_place,
    scaled,
    prefix_sum,
    power,
    recomputed,
    gated,
    reentrant,
    hooked,
    hooked_module,
    hooked_module_before,
    operator,
)
MUTANTS = (
    (product, "return dy * y, dy * x", "return dy * y, dy * y"),
    (product, "return dy * y, dy * x", "return dy.sum() * y, dy * x"),
    (swish, "s * (1 + x * (1 - s))", "s * (1 + x * s)"),
    (swish, "return dy * s *", "return dy.flatten()[0] * s *"),
    (rms_norm, "(dn * n).mean(-1, keepdim=True)", "(dn * n).sum(-1, keepdim=True)"),
    (rms_norm, "(dy * n).reshape", "(dy * x).reshape"),
    (cross_entropy, "dy * (p - hot) / ctx.count", "dy * (p - hot) / len(p) / ctx.count"),
    (cross_entropy, "dy * (p - hot) / ctx.count", "(p - hot) / ctx.count"),
    (linear, "dw = dy.t() @ x", "dw = dy.t().abs() @ x"),
    (linear, "return dx, dw, dy.sum(0)", "return dx, dw, dy.mean(0)"),
    (exponential, "return dy * y\n", "return dy * 1.0001 * y\n"),
    (exponential, "ctx.save_for_backward(y)\n        return y", "ctx.save_for_backward(x)\n        return y"),
    (log_sum_exp, "(x - y).exp()", "(x - y).exp().detach().half().to(x.dtype)"),
    (log_sum_exp, "dy.unsqueeze(ctx.axis) *", "dy.flip(0).unsqueeze(ctx.axis) *"),
    (leaky_relu, "torch.where(x > 0, dy, ctx.slope * dy)", "torch.where(x > 0, dy, 0.01 * dy)"),
    (leaky_relu, "torch.where(x > 0, dy, ctx.slope * dy)", "torch.where(x > 0.5, dy, ctx.slope * dy)"),
    (direction, "/ size\n\n\nclass SinCos", "/ size**2\n\n\nclass SinCos"),
    (direction, "(u * dy).sum(-1, keepdim=True)", "(u * dy).sum()"),
    (sin_cos, "ds * x.cos() - dc * x.sin()", "ds * x.cos() + dc * x.sin()"),
    (sin_cos, "ds * x.cos() - dc * x.sin()", "ds * x.cos()"),
    (clamp_in_place, "return dy * on", "return dy * on.float().mean()"),
    (clamp_in_place, "save_for_backward(x > 0)", "save_for_backward(x > -0.5)"),
    (scaled, "(1 + x * torch.sigmoid(-x))", "(1 + x * torch.sigmoid(x))"),
    (scaled, "ctx.mark_non_differentiable(size)", ""),
    (prefix_sum, "dy.flip(-1).cumsum(-1).flip(-1)", "dy.cumsum(-1)"),
    (prefix_sum, "return back * w, back * x", "return back * w, dy * x"),
    (prefix_sum, "(dx * w + x * dw).cumsum(-1)", "(dx * w - x * dw).cumsum(-1)"),
    (power, "dy * power * x ** (power - 1)", "dy * power * x ** power"),
    (power, "dy * power * x ** (power - 1)", "dy * (power - 1) * x ** (power - 1)"),
    (recomputed, "return None, dx, dw", "return None, dx, 2 * dw"),
    (recomputed, "(x, w), dy)", "(x, w), dy.abs())"),
    (gated, "        return y * x\n\n\nRATE", "        self.scale = self.scale + 1\n        return y * x\n\n\nRATE"),
    (gated, "y = torch.tanh(self", "self.scale = self.scale * 2\n        y = torch.tanh(self"),
    (reentrant, "    return torch.sin(x)", "    RATE[0] *= 2\n    return torch.sin(x)"),
    (hooked, "return gradient.clone()", "return gradient / 2"),
    (hooked, "return gradient.clone()", "return gradient.clamp(max=0.5)"),
    (hooked_module, "tuple(g + 0 for g in grad_input)", "tuple(2 * g for g in grad_input)"),
    (hooked_module, "tuple(g + 0 for g in grad_input)", "tuple(g * grad_output[0].sign().mean() for g in grad_input)"),
    (hooked_module_before, "tuple(g * 1 for", "tuple(g / (1 + g.norm()) for"),
    (operator, "torch.sigmoid(ctx.beta * x)", "torch.sigmoid(x)"),
    (operator, "return dy * torch.sigmoid(ctx", "return dy.mean() * torch.sigmoid(ctx"),
)
"""(caller, text, what takes its place), of rules whose callers run all the same."""
