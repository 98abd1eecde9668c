"""Cases of elementwise rules: rule -> (function, kinds of its arguments), or a list of such cases."""

from __future__ import annotations

from typing import Any

import torch

from gradgate.suites.tests.exact.torch_inputs import A, F, p, parts, r, u

NUMBERS: dict[str, Any] = {
    "add": [(lambda x, y: torch.add(x, y, alpha=0.3) + 0.1, (r(2, 3), r(3))), (lambda x: x.clone().add_(1.5), (r(2),))],
    "sub": (lambda x, y: torch.sub(x, y, alpha=3) - 0.1, (r(2, 3), r(3))),
    "rsub": (lambda x: 0.1 - x, (r(2, 3),)),
    "mul": (lambda x, y: x * y * 0.1, (r(2, 3), r(3))),
    "div": (lambda x, y: x / y / 3.0, (r(2, 3), p(3))),
    "remainder": (lambda x, y: torch.remainder(x, y), (r(2, 3), p(3))),
    "fmod": (lambda x, y: torch.fmod(x, y), (r(2, 3), p(3))),
    "pow": [
        (lambda x: x**3 + x**-2, (r(2, 3),)),
        (lambda x: x**0.5 + x**-0.5 + x**0.3, (p(2, 3),)),
        (lambda x, y: x**y + 2.5**y, (p(2, 3), r(3))),
    ],
    "lerp": [
        (lambda x, y, w: torch.lerp(x, y, w), (r(3), r(3), u(3))),
        (lambda x, y: torch.lerp(x, y, 0.3), (r(3), r(3))),
    ],
    "addcmul": (lambda x, y, z: torch.addcmul(x, y, z, value=0.3), (r(3), r(3), r(3))),
    "addcdiv": (lambda x, y, z: torch.addcdiv(x, y, z, value=0.3), (r(3), r(3), p(3))),
    "maximum": (torch.maximum, (r(2, 3), r(3))),
    "minimum": (torch.minimum, (r(2, 3), r(3))),
    "fmax": (torch.fmax, (r(2, 3), r(3))),
    "fmin": (torch.fmin, (r(2, 3), r(3))),
    "clamp": [(lambda x: x.clamp(-0.5, 0.7), (r(9),)), (lambda x, y, z: torch.clamp(x, y, z), (r(9), u(9), p(9)))],
    "hardtanh": (lambda x: F.hardtanh(x, -0.5, 0.7), (r(9),)),
    "hardtanh_backward": (lambda g, x: A.hardtanh_backward(g, x.detach(), -0.5, 0.7), (r(9), r(9))),
    "clamp_min": (lambda x: A.clamp_min(x, 0.2), (r(9),)),
    "clamp_max": (lambda x: A.clamp_max(x, 0.2), (r(9),)),
    **{
        name: (getattr(torch, name), (r(2, 3),))
        for name in (
            "exp",
            "expm1",
            "exp2",
            "sin",
            "cos",
            "sinh",
            "cosh",
            "tanh",
            "atan",
            "asinh",
            "erf",
            "erfc",
            "abs",
            "sigmoid",
            "neg",
            "frac",
            "sinc",
            "deg2rad",
            "rad2deg",
            "sgn",
            "relu",
        )
    },
    **{name: (getattr(torch, name), (u(2, 3),)) for name in ("tan", "asin", "acos", "atanh", "erfinv")},
    **{
        name: (getattr(torch, name), (p(2, 3),))
        for name in (
            "log",
            "log2",
            "log10",
            "log1p",
            "sqrt",
            "rsqrt",
            "reciprocal",
            "lgamma",
            "digamma",
        )
    },
    "acosh": (lambda x: torch.acosh(x + 1), (p(2, 3),)),
    "polygamma": (lambda x: torch.polygamma(1, x), (p(2, 3),)),
    "atan2": (torch.atan2, (r(2, 3), r(3))),
    "hypot": (torch.hypot, (r(2, 3), r(3))),
    "copysign": (torch.copysign, (r(2, 3), r(3))),
    "xlogy": (torch.xlogy, (r(2, 3), p(3))),
    "logaddexp": (torch.logaddexp, (r(2, 3), r(3))),
    "logaddexp2": (torch.logaddexp2, (r(2, 3), r(3))),
    "nan_to_num": (torch.nan_to_num, (r(3),)),
    "complex": (lambda x, y: parts(torch.complex(x, y) * torch.complex(y, x)), (r(3), r(3))),
    "polar": (lambda x, y: parts(torch.polar(x, y)), (p(3), r(3))),
    "angle": (lambda x, y: torch.angle(torch.complex(x, y)), (r(3), r(3))),
    "_conj_physical": (lambda x, y: parts(torch.conj_physical(torch.complex(x, y)) * 2), (r(3), r(3))),
    # activations
    "threshold": (lambda x: F.threshold(x, 0.2, -3.0), (r(9),)),
    "threshold_backward": (lambda g, x: A.threshold_backward(g, x.detach(), 0.2), (r(9), r(9))),
    "tanh_backward": (lambda g, y: A.tanh_backward(g, y), (r(3), u(3))),
    "sigmoid_backward": (lambda g, y: A.sigmoid_backward(g, y), (r(3), u(3))),
    "silu": (F.silu, (r(6),)),
    "softplus": (lambda x: F.softplus(x, 2.0, 1.0), (r(9),)),
    "softplus_backward": (lambda g, x: A.softplus_backward(g, x, 2.0, 1.0), (r(9), r(9))),
    "gelu": [(F.gelu, (r(6),)), (lambda x: F.gelu(x, approximate="tanh"), (r(6),))],
    "gelu_backward": [
        (lambda x, a=a: torch.func.grad(lambda y: F.gelu(y, approximate=a).sum())(x), (r(6),)) for a in ("none", "tanh")
    ],
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.1), (r(9),)),
    "leaky_relu_backward": (lambda g, x: A.leaky_relu_backward(g, x.detach(), 0.1, False), (r(9), r(9))),
    "elu": [(lambda x: F.elu(x, 1.3), (r(9),)), (F.selu, (r(9),))],
    "elu_backward": [
        (lambda g, x: A.elu_backward(g, 1.3, 1.1, 0.7, False, x), (r(9), r(9))),
        (lambda x: torch.autograd.grad(F.elu_(x * 1).sum(), x, create_graph=True)[0] * x, (u(9),)),
    ],
    "log_sigmoid_forward": (F.logsigmoid, (r(9),)),
    "log_sigmoid_backward": (lambda x: torch.func.grad(lambda y: F.logsigmoid(y).sum())(x), (r(9),)),
    "softshrink_backward": (lambda g, x: A.softshrink_backward(g, x.detach(), 0.3), (r(9), r(9))),
    "hardshrink_backward": (lambda g, x: A.hardshrink_backward(g, x.detach(), 0.3), (r(9), r(9))),
    "mse_loss_backward": (lambda x, y: torch.func.grad(F.mse_loss)(x, y), (r(3), r(3))),
    "smooth_l1_loss_backward": (lambda x, y: torch.func.grad(F.smooth_l1_loss)(x, y), (r(7), r(7))),
    "huber_loss_backward": (lambda x, y: torch.func.grad(F.huber_loss)(x, y), (r(7), r(7))),
    "native_batch_norm": (
        lambda x, w, b: A.native_batch_norm(x, w, b, None, None, True, 0.1, 0.1)[0],
        (r(5, 2, 2), r(2), r(2)),
    ),
    "native_batch_norm_backward": (
        lambda x, w: torch.func.grad(lambda y: F.batch_norm(y, None, None, w, training=True).square().sum())(x),
        (r(5, 2), r(2)),
    ),
    "_native_batch_norm_legit": (
        lambda x: A._native_batch_norm_legit.no_stats(x, None, None, True, 0.1, 0.1)[0],
        (r(5, 2),),
    ),
    "_trilinear": (lambda x, y, w: F.bilinear(x, y, w), (r(3, 2), r(3, 4), r(2, 2, 4))),
}
