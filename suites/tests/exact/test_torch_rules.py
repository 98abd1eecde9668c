"""Every rule against PyTorch in float64, and its derivatives against differences of the rule itself, to thirty digits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
flint = pytest.importorskip("flint")

from gradgate.suites.exact import balls  # noqa: E402
from gradgate.suites.exact.on_torch import evaluate  # noqa: E402
from gradgate.suites.exact.on_torch.rules import RULES, Rule  # noqa: E402

A = torch.ops.aten
F = torch.nn.functional
INDEX = torch.tensor([[0, 2, 1], [2, 1, 0]])
MASK = torch.tensor([[True, False, True], [False, True, True]])


def r(*shape: int) -> tuple[str, tuple[int, ...]]:
    """Any numbers."""
    return "any", shape


def p(*shape: int) -> tuple[str, tuple[int, ...]]:
    """Numbers from 0.3 to 1.3."""
    return "positive", shape


def u(*shape: int) -> tuple[str, tuple[int, ...]]:
    """Numbers from −0.8 to 0.8."""
    return "unit", shape


def made(specs: Any, seed: int = 5) -> list[Any]:
    generator = np.random.default_rng(seed)
    draw: dict[str, Callable[[Any], Any]] = {
        "any": generator.standard_normal,
        "positive": lambda shape: 0.3 + generator.random(shape),
        "unit": lambda shape: 1.6 * generator.random(shape) - 0.8,
    }
    return [torch.from_numpy(np.asarray(draw[kind](shape))) for kind, shape in specs]


def symmetric(x: Any) -> Any:
    return x @ x.mT + 3 * torch.eye(x.shape[-1], dtype=x.dtype)


def parts(z: Any) -> Any:
    return torch.view_as_real(z)


def dropped(x: Any) -> Any:
    torch.manual_seed(3)
    return A.native_dropout(x, 0.25, True)[0]


# Rule -> (function, what its arguments are): the derivative is taken too. A list holds several.
SMOOTH: dict[str, Any] = {
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
    "lerp": [(lambda x, y, w: torch.lerp(x, y, w), (r(3), r(3), u(3))), (lambda x, y: torch.lerp(x, y, 0.3), (r(3), r(3)))],
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
    **{name: (getattr(torch, name), (r(2, 3),)) for name in (
        "exp", "expm1", "exp2", "sin", "cos", "sinh", "cosh", "tanh", "atan", "asinh", "erf", "erfc", "abs", 
        "sigmoid", "neg", "frac", "sinc", "deg2rad", "rad2deg", "sgn", "relu",
    )},
    **{name: (getattr(torch, name), (u(2, 3),)) for name in ("tan", "asin", "acos", "atanh", "erfinv")},
    **{name: (getattr(torch, name), (p(2, 3),)) for name in (
        "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "lgamma", "digamma",
    )},
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
    "gelu_backward": [(lambda x, a=a: torch.func.grad(lambda y: F.gelu(y, approximate=a).sum())(x), (r(6),)) for a in ("none", "tanh")],
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
    "native_batch_norm": (lambda x, w, b: A.native_batch_norm(x, w, b, None, None, True, 0.1, 0.1)[0], (r(5, 2, 2), r(2), r(2))),
    "native_batch_norm_backward": (
        lambda x, w: torch.func.grad(lambda y: F.batch_norm(y, None, None, w, training=True).square().sum())(x),
        (r(5, 2), r(2)),
    ),
    "_native_batch_norm_legit": (lambda x: A._native_batch_norm_legit.no_stats(x, None, None, True, 0.1, 0.1)[0], (r(5, 2),)),
    "_trilinear": (lambda x, y, w: F.bilinear(x, y, w), (r(3, 2), r(3, 4), r(2, 2, 4))),
    # structure
    "cat": (lambda x, y: torch.cat([x, y * 2, x], 1), (r(2, 3), r(2, 1))),
    "stack": (lambda x, y: A.stack([x, y], 1), (r(2, 3), r(2, 3))),
    "clone": (lambda x: x.clone() * x.mT.contiguous().mT, (r(2, 3),)),
    "copy": (lambda x, y: torch.zeros(2, 3, dtype=x.dtype).copy_(x) * y, (r(3), r(2, 3))),
    "_to_copy": (lambda x: torch.arange(3).double() * x.to(torch.complex128).real, (r(3),)),
    "index": (lambda x: x[INDEX[0], 1:][:, [0, 0, 1]], (r(3, 4),)),
    "_unsafe_index": (lambda x: A._unsafe_index(x, [INDEX, None]), (r(3, 2),)),
    "index_select": (lambda x: x.index_select(0, INDEX[0]), (r(3, 4),)),
    "gather": (lambda x: x.gather(1, INDEX), (r(2, 3),)),
    "scatter": [
        (lambda x, y: x.scatter(1, INDEX, y), (r(2, 3), r(2, 3))), (lambda x: x.scatter(1, INDEX[:, :1], 0.1), (r(2, 3),)),
    ],
    "scatter_add": (lambda x, y: x.scatter_add(0, INDEX, y), (r(3, 3), r(2, 3))),
    "index_put": [
        (lambda x, y: x.index_put((INDEX[0],), y), (r(3, 4), r(3, 4))),
        (lambda x, y: x.index_put((torch.tensor([0, 1, 0]),), y, accumulate=True), (r(3, 4), r(3, 4))),
    ],
    "_unsafe_index_put": (lambda x, y: A._unsafe_index_put(x, [INDEX[0]], y), (r(3, 4), r(3, 4))),
    "index_add": (lambda x, y: x.index_add(1, torch.tensor([0, 0]), y, alpha=0.3), (r(2, 3), r(2, 2))),
    "index_copy": (lambda x, y: x.index_copy(0, torch.tensor([2, 0]), y), (r(3, 2), r(2, 2))),
    "index_fill": (lambda x: x.index_fill(0, torch.tensor([2, 0]), 0.1), (r(3, 2),)),
    "roll": (lambda x: x.roll(1, 0) * x, (r(3, 2),)),
    "rot90": (lambda x: torch.rot90(x) * 2, (r(3, 2),)),
    "flip": (lambda x: x.flip(0, 1) * x, (r(3, 2),)),
    "constant_pad_nd": (lambda x: F.pad(x, (1, 2, 0, -1), value=0.1), (r(3, 2),)),
    "repeat": (lambda x: x.repeat(2, 2, 1), (r(3, 2),)),
    "where": (lambda x, y: torch.where(MASK, x, y) + torch.where(MASK, x, 0.1), (r(2, 3), r(3))),
    "masked_fill": [(lambda x: x.masked_fill(MASK, 0.1), (r(2, 3),)), (lambda x, y: x.masked_fill(MASK, y), (r(2, 3), r()))],
    "masked_scatter": (lambda x, y: x.masked_scatter(MASK, y), (r(2, 3), r(4))),
    "masked_scatter_backward": (lambda x, y: x.masked_scatter(MASK, y), (r(2, 3), r(7))),
    "masked_select": (lambda x: x.masked_select(MASK), (r(2, 3),)),
    "take": (lambda x: torch.take(x, INDEX), (r(2, 3),)),
    "put": (lambda x, y: torch.put(x, torch.tensor([0, 3]), y), (r(2, 3), r(2))),
    "select_scatter": (lambda x, y: torch.select_scatter(x, y, 0, 1), (r(2, 3), r(3))),
    "slice_scatter": (lambda x, y: torch.slice_scatter(x, y, 0, 1, 3), (r(3, 3), r(2, 3))),
    "diagonal_scatter": (lambda x, y: torch.diagonal_scatter(x, y), (r(3, 3), r(3))),
    "select_backward": (lambda x: A.select_backward(x, (2, 3), 0, 1), (r(3),)),
    "slice_backward": (lambda x: A.slice_backward(x, (3, 3), 0, 1, 3, 1), (r(2, 3),)),
    "diagonal_backward": (lambda x: A.diagonal_backward(x, (3, 3), 0, 0, 1), (r(3),)),
    "unfold_backward": (lambda x: torch.func.grad(lambda y: y.unfold(0, 3, 2).square().sum())(x), (r(7),)),
    "_unsafe_masked_index_put_accumulate": (
        lambda x, y: A._unsafe_masked_index_put_accumulate(x, torch.tensor([True, False, True]), [INDEX[1]], y),
        (r(3), r(3)),
    ),
    "_unsafe_masked_index": (
        lambda x: A._unsafe_masked_index(x, torch.tensor([True, False, True]), [INDEX[1]], 0.5), (r(3),),
    ),
    "diag_embed": (torch.diag_embed, (r(2, 3),)),
    "tril": (lambda x: x.tril(1), (r(3, 4),)),
    "triu": (lambda x: x.triu(1), (r(3, 4),)),
    "trace": (torch.trace, (r(3, 3),)),
    "linspace": (lambda x: torch.linspace(0, 1, 4, dtype=x.dtype) * x, (r(4),)),
    "arange": (lambda x: torch.arange(0.5, 2.0, 0.1, dtype=x.dtype) * x, (r(15),)),
    "fill": (lambda x, y: torch.empty_like(x).fill_(y) * x + torch.empty_like(x).fill_(0.1), (r(3), r())),
    **{name: ((lambda how, d=d: lambda x: F.pad(x, (1, 1) * d, how))(name.split("_")[0].replace("replication", "replicate").replace("reflection", "reflect")), (r(1, 1, *(3,) * d),))
       for d in (1, 2, 3) for how in ("reflection", "replication")
       for name in (f"{how}_pad{d}d", f"{how}_pad{d}d_backward")},
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), (r(1, 4, 2, 2),)),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), (r(1, 1, 4, 2),)),
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 2), (r(1, 4, 2, 2),)),
    "embedding": (lambda x: F.embedding(INDEX, x), (r(3, 4),)),
    "embedding_dense_backward": (lambda x: A.embedding_dense_backward(x, INDEX[0], 4, 2, False), (r(3, 2),)),
    **{name: (function, (r(3, 4),)) for name, function in {
        "expand_copy": lambda x: torch.expand_copy(x[:1], (3, 4)), "permute_copy": lambda x: torch.permute_copy(x, (1, 0)),
        "transpose_copy": lambda x: torch.transpose_copy(x, 0, 1), "t_copy": torch.t_copy,
        "squeeze_copy": lambda x: torch.squeeze_copy(x[:1]), "unsqueeze_copy": lambda x: torch.unsqueeze_copy(x, 0),
        "select_copy": lambda x: torch.select_copy(x, 0, 1), "slice_copy": lambda x: torch.slice_copy(x, 0, 1),
        "view_copy": lambda x: torch.view_copy(x, (12,)), "_reshape_copy": lambda x: A._reshape_copy(x, (12,)),
        "as_strided_copy": lambda x: torch.as_strided_copy(x, (2, 2), (1, 3)),
        "diagonal_copy": torch.diagonal_copy, "unfold_copy": lambda x: torch.unfold_copy(x, 0, 2, 1),
        "alias_copy": torch.alias_copy,
        "split_copy": lambda x: torch.split_copy(x, 2)[0], "unbind_copy": lambda x: torch.unbind_copy(x)[1],
        "split_with_sizes_copy": lambda x: torch.split_with_sizes_copy(x, [1, 2])[1],
        "narrow_copy": lambda x: A.narrow_copy(x, 0, 1, 2), "lift": lambda x: A.lift(x),
    }.items()},
    "native_dropout": (dropped, (r(8),)),
    "native_dropout_backward": (lambda x: A.native_dropout_backward(x, MASK, 1.25), (r(2, 3),)),
    **{f"{how}{d}d_backward": (
        lambda x, d=d, how=how: torch.func.grad(
            lambda y: F.interpolate(y, scale_factor=2, mode="nearest-exact" if "exact" in how else "nearest").square().sum()
        )(x), (r(1, 1, *(2,) * d),),
    ) for how in ("upsample_nearest", "_upsample_nearest_exact") for d in (1, 2, 3)},
    # reductions
    "sum": [(lambda x: x.sum(0, keepdim=True) + x.sum(), (r(2, 3),)), (lambda x: x.sum((0, 2)), (r(2, 3, 2),))],
    "nansum": (torch.nansum, (r(2, 3),)),
    "mean": (lambda x: x.mean(0, keepdim=True) + x.mean(), (r(3, 3),)),
    "var": (lambda x: x.var(0) + x.var(dim=1, correction=0) + x.var(), (r(3, 3),)),
    "std": (lambda x: x.std(0) + x.std(dim=1, correction=0), (r(3, 3),)),
    "var_mean": (lambda x: torch.stack(torch.var_mean(x, 1, keepdim=True)), (r(3, 4),)),
    "std_mean": (lambda x: torch.stack(torch.std_mean(x, 1)), (r(3, 4),)),
    "prod": (lambda x: x.prod(0) + x.prod(), (r(3, 3),)),
    "amax": (lambda x: x.amax(0) + x.amax(), (r(3, 3),)),
    "amin": (lambda x: x.amin(0, keepdim=True), (r(3, 3),)),
    "aminmax": (lambda x: torch.stack(torch.aminmax(x, dim=0)), (r(3, 3),)),
    "max": (lambda x: x.max(1)[0] + x.max(), (r(3, 4),)),
    "min": (lambda x: x.min(1)[0] + x.min(), (r(3, 4),)),
    "sort": (lambda x: x.sort(1, descending=True)[0] * torch.sort(x, 0)[0], (r(3, 4),)),
    "topk": (lambda x: x.topk(2)[0] + x.topk(2, largest=False)[0], (r(3, 4),)),
    "median": (lambda x: x.median(1)[0] + x.median(), (r(3, 4),)),
    "nanmedian": (lambda x: x.nanmedian(1)[0], (r(3, 4),)),
    "linalg_vector_norm": [
        (lambda x, o=o: torch.linalg.vector_norm(x, o, 0), (r(3, 4),)) for o in (1, 2, 3.5, math.inf, -math.inf)
    ],
    "norm": (lambda x: A.norm.ScalarOpt_dim(x, 3, [0], True), (r(3, 4),)),
    "cumsum": (lambda x: x.cumsum(0), (r(3, 4),)),
    "cumprod": (lambda x: x.cumprod(1), (r(3, 4),)),
    "logcumsumexp": (lambda x: x.logcumsumexp(1), (r(3, 4),)),
    "cummax": (lambda x: x.cummax(1)[0], (r(3, 4),)),
    "cummin": (lambda x: x.cummin(1)[0], (r(3, 4),)),
    "logsumexp": (lambda x: x.logsumexp(1) + x.logsumexp((0, 1)), (r(3, 3),)),
    "_softmax": (lambda x: x.softmax(1), (r(3, 4),)),
    "_safe_softmax": (lambda x: A._safe_softmax(x, 1), (r(3, 4),)),
    "_log_softmax": (lambda x: x.log_softmax(0), (r(3, 4),)),
    "_softmax_backward_data": (lambda g, y: A._softmax_backward_data(g, y, 1, torch.float64), (r(3, 4), r(3, 4))),
    "_log_softmax_backward_data": (lambda g, y: A._log_softmax_backward_data(g, y, 1, torch.float64), (r(3, 4), r(3, 4))),
    # products
    "mm": (lambda x, y: x @ y.T, (r(3, 9), r(4, 9))),
    "bmm": (lambda x, y: x @ y, (r(2, 3, 4), r(2, 4, 3))),
    "mv": (lambda x, y: x @ y, (r(3, 4), r(4))),
    "dot": (lambda x, y: x @ y, (r(4), r(4))),
    "vdot": (lambda x, y: parts(torch.vdot(torch.complex(x, y), torch.complex(y, 2 * x))), (r(4), r(4))),
    "addmm": (lambda b, x, y: torch.addmm(b, x, y, beta=0.3, alpha=0.7), (r(4), r(3, 2), r(2, 4))),
    "baddbmm": (lambda b, x, y: torch.baddbmm(b, x, y, beta=0.3), (r(2, 3, 4), r(2, 3, 2), r(2, 2, 4))),
    "addbmm": (lambda b, x, y: torch.addbmm(b, x, y, alpha=0.3), (r(3, 4), r(2, 3, 2), r(2, 2, 4))),
    "addmv": (lambda b, x, y: torch.addmv(b, x, y, alpha=0.3), (r(3), r(3, 2), r(2))),
    "addr": (lambda b, x, y: A.addr(b, x, y, beta=0.3), (r(3, 2), r(3), r(2))),
    # convolutions and pooling
    "convolution": [
        (lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=1), (r(2, 2, 5), r(3, 2, 3), r(3))),
        (lambda x, w: F.conv2d(x, w, stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2), (r(1, 2, 4, 5), r(4, 1, 2, 2))),
        (lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1, 2, (1, 1)), (r(1, 4, 2, 3), r(4, 2, 2, 2), r(4))),
        (lambda x, w: F.conv3d(x, w, padding="same"), (r(1, 1, 2, 2, 2), r(1, 1, 2, 1, 2))),
    ],
    "convolution_backward": (lambda x, w: torch.func.grad(lambda v: F.conv1d(v, w).square().sum())(x), (r(1, 2, 4), r(2, 2, 2))),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False), (r(1, 2, 4, 5),)),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2), (r(1, 1, 2, 2, 4),)),
    "_adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, (2, 3)), (r(1, 2, 3, 5),)),
    "_adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, (1, 2, 2)), (r(1, 1, 2, 3, 3),)),
    "avg_pool2d_backward": (lambda x: torch.func.grad(lambda y: F.avg_pool2d(y, 2).square().sum())(x), (r(1, 1, 2, 4),)),
    "avg_pool3d_backward": (lambda x: torch.func.grad(lambda y: F.avg_pool3d(y, 2).square().sum())(x), (r(1, 1, 2, 2, 4),)),
    "_adaptive_avg_pool2d_backward": (lambda x: torch.func.grad(lambda y: F.adaptive_avg_pool2d(y, 2).sum())(x) * x, (r(1, 1, 3, 3),)),
    "_adaptive_avg_pool3d_backward": (lambda x: torch.func.grad(lambda y: F.adaptive_avg_pool3d(y, 2).sum())(x) * x, (r(1, 1, 3, 3, 2),)),
    "max_pool2d_with_indices": [(lambda x: F.max_pool2d(x, 3, 2, 1, 1), (r(1, 2, 4, 5),)), (lambda x: F.max_pool1d(x, 2), (r(1, 2, 4),))],
    "max_pool3d_with_indices": (lambda x: F.max_pool3d(x, 2), (r(1, 1, 2, 2, 4),)),
    "max_pool2d_with_indices_backward": (lambda x: torch.func.grad(lambda y: F.max_pool2d(y, 2, 1).square().sum())(x), (r(1, 1, 3, 3),)),
    "max_pool3d_with_indices_backward": (lambda x: torch.func.grad(lambda y: F.max_pool3d(y, 2).square().sum())(x), (r(1, 1, 2, 2, 2),)),
    # linear algebra
    "linalg_lu_factor_ex": (lambda x: torch.linalg.lu_factor(x)[0], (r(2, 3, 3),)),
    "lu_unpack": (lambda x: torch.cat(torch.lu_unpack(*torch.linalg.lu_factor(x))), (r(3, 3),)),
    "linalg_lu": (lambda x: torch.cat(torch.linalg.lu(x)[1:]), (r(3, 3),)),
    "_linalg_solve_ex": [
        (torch.linalg.solve, (r(2, 3, 3), r(2, 3, 2))),
        (lambda a, b: torch.linalg.solve(a.mT, b), (r(3, 3), r(3))),
        (lambda a, b: torch.linalg.solve(a, b, left=False), (r(3, 3), r(2, 3))),
    ],
    "linalg_inv_ex": (torch.linalg.inv, (r(2, 3, 3),)),
    "linalg_lu_solve": (lambda a, b: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), b, adjoint=True), (r(3, 3), r(3, 2))),
    "_linalg_det": (torch.linalg.det, (r(2, 3, 3),)),
    "_linalg_slogdet": (lambda a: torch.linalg.slogdet(a)[1], (r(2, 3, 3),)),
    "linalg_solve_triangular": [
        (lambda a, b, u=up, s=left: torch.linalg.solve_triangular(a, b, upper=u, left=s), (r(3, 3), r(3, 3)))
        for up, left in ((True, True), (False, True), (True, False))
    ],
    "triangular_solve": (lambda a, b: torch.triangular_solve(b, a, transpose=True)[0], (r(3, 3), r(3, 2))),
    "linalg_cholesky_ex": (lambda a: torch.linalg.cholesky(symmetric(a)) + torch.linalg.cholesky(symmetric(a), upper=True), (r(3, 3),)),
    "cholesky": (lambda a: torch.cholesky(symmetric(a)), (r(3, 3),)),
    "cholesky_solve": (lambda a, b: torch.cholesky_solve(b, torch.linalg.cholesky(symmetric(a))), (r(3, 3), r(3, 2))),
    "linalg_qr": (lambda a: torch.cat(torch.linalg.qr(a)), (r(4, 3),)),
    "linalg_matrix_exp": (torch.matrix_exp, (r(3, 3),)),
    "linalg_cross": (lambda a, b: torch.linalg.cross(a, b, dim=0), (r(3, 2), r(3, 2))),
    # transforms
    "_fft_r2c": [(lambda x: parts(torch.fft.rfft2(x)), (r(3, 4),)), (lambda x: parts(torch.fft.fft(x, norm="ortho")), (r(3, 4),))],
    "_fft_c2r": [(lambda x, y, n=n: torch.fft.irfftn(torch.complex(x, y), (2, n)), (r(2, 3), r(2, 3))) for n in (4, 5)],
    "_fft_c2c": (lambda x, y: parts(torch.fft.ifft(torch.complex(x, y), norm="forward")), (r(2, 3), r(2, 3))),
}  # fmt: skip

pytestmark = pytest.mark.filterwarnings("ignore:torch.*deprecated", "ignore:Using padding")

PIECEWISE: dict[str, Any] = {
    "floor_divide": (lambda x, y: torch.floor_divide(x, y) + torch.div(x, y, rounding_mode="trunc"), (r(6), p(6))),
    **{name: (getattr(torch, name), (r(2, 3),)) for name in (
        "sign", "floor", "ceil", "trunc", "isnan", "isinf", "isposinf", "isneginf", "signbit",
        "logical_not", "argmax", "argmin", "nonzero", "count_nonzero", "any", "all",
    )},
    "round": (lambda x: torch.round(x) + torch.round(x, decimals=2), (r(6),)),
    **{name: (getattr(torch, name), (r(2, 3), r(3))) for name in (
        "lt", "le", "gt", "ge", "eq", "ne", "logical_and", "logical_or", "logical_xor", "heaviside",
    )},
    "silu_backward": (lambda g, x: A.silu_backward(g, x), (r(6), r(6))),
    "_native_batch_norm_legit_no_training": (
        lambda x, m, v: A._native_batch_norm_legit_no_training(x, None, None, m.detach(), v.detach(), 0.1, 0.1)[0],
        (r(5, 2), r(2), p(2)),
    ),
    "native_group_norm_backward": (
        lambda x, w: torch.autograd.grad(F.group_norm(x, 2, w).pow(3).sum(), x)[0], (r(2, 4, 2), r(4)),
    ),
    "hardsigmoid_backward": (lambda g, x: A.hardsigmoid_backward(g, x), (r(9), r(9))),
    "detach_copy": (torch.detach_copy, (r(3),)),
    "embedding_dense_backward": (lambda x: A.embedding_dense_backward(x, INDEX[0] // 2, 4, 3, True), (r(3, 2),)),
    "as_strided_scatter": (lambda x, y: torch.as_strided_scatter(x, y, (2, 2), (1, 2)), (r(3, 3), r(2, 2))),
    "equal": (lambda x: torch.tensor([torch.equal(x, x * 1), torch.equal(x, x + 1)]), (r(3),)),
    "argmax": (lambda x: x.argmax(1, keepdim=True), (r(3, 4),)),
}  # fmt: skip


def cases(table: dict[str, Any]) -> list[Any]:
    found = []
    for name, entry in table.items():
        many = entry if isinstance(entry, list) else [entry]
        found += [pytest.param(name, *case, id=f"{name}-{i}" if i else name) for i, case in enumerate(many)]
    return found


def test_every_rule_has_a_case() -> None:
    assert set(RULES) == set(SMOOTH) | set(PIECEWISE)


LOOSE = {"polygamma": 1e-8, "hardsigmoid_backward": 1e-7}  # PyTorch itself has no more digits


def watched(name: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls of a rule."""
    calls: list[str] = []
    rule = RULES[name]

    def function(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        return rule.function(*args, **kwargs)

    monkeypatch.setitem(RULES, name, Rule(function, rule.kind))
    return calls


def near(found: Any, wanted: Any, tolerance: float = 1e-11) -> None:
    if balls.is_balls(found):
        found = balls.floats(found)
    np.testing.assert_allclose(found, wanted.detach().numpy(force=True), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("name", "function", "specs"), cases(SMOOTH) + cases(PIECEWISE))
def test_a_rule_gives_what_pytorch_gives(
    name: str, function: Callable[..., Any], specs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = [tensor.requires_grad_() for tensor in made(specs)]
    calls = watched(name, monkeypatch)
    if name.endswith("_backward") and name in SMOOTH:
        evaluate(lambda: gradient(weighted(function, []), inputs))
    found = evaluate(function, *inputs)
    near(found.outputs[0], function(*inputs), LOOSE.get(name, 1e-11))
    assert calls
    assert not found.exits


def weighted(function: Callable[..., Any], weights: list[Any]) -> Callable[..., Any]:
    def scalar(*inputs: Any) -> Any:
        answer = function(*inputs)
        while len(weights) < 1:
            weights.append(torch.from_numpy(np.random.default_rng(1).standard_normal(tuple(answer.shape))))
        return (answer * weights[0]).sum()

    return scalar


def gradient(scalar: Callable[..., Any], inputs: list[Any], create: bool = False) -> list[Any]:
    return list(torch.autograd.grad(scalar(*inputs), inputs, create_graph=create, materialize_grads=True))


STEP = flint.arb(2.0**-66)


@pytest.mark.parametrize(("name", "function", "specs"), cases(SMOOTH))
def test_a_derivative_is_what_differences_say(name: str, function: Callable[..., Any], specs: Any) -> None:
    inputs = [tensor.requires_grad_() for tensor in made(specs)]
    directions = made(specs, seed=8)
    scalar = weighted(function, [])
    scalar(*inputs)
    found = evaluate(lambda: gradient(scalar, inputs))
    for output, wanted in zip(found.outputs, gradient(scalar, inputs), strict=True):
        near(output, wanted, 1e-8 if name == "digamma" else 1e-11)  # PyTorch's trigamma has ten digits
    with balls.digits(60):
        slope = sum(
            balls.whole(g * balls.exact(v.numpy())).sum() for g, v in zip(found.outputs, directions, strict=True)
        )
        values = []
        for sign in (1, -1):
            moved = [
                (t, balls.exact(t.detach().numpy()) + sign * STEP * balls.exact(v.numpy()))
                for t, v in zip(inputs, directions, strict=True)
            ]
            values.append(evaluate(lambda: scalar(*inputs), given=moved).outputs[0][()])
        difference = (values[0] - values[1]) / (2 * STEP)
        assert abs(difference - slope) < 1e-30 * (1 + abs(slope))


TWICE = (
    "tanh", "pow", "mul", "div", "gelu", "silu", "softplus", "_softmax", "_log_softmax", "convolution", "mm", "bmm",
    "addmm", "_linalg_solve_ex", "linalg_inv_ex", "var", "prod", "cumprod", "logsumexp", "amax", "elu", "gather",
    "index_put", "embedding", "avg_pool2d", "_fft_r2c", "linalg_cholesky_ex", "where", "linalg_vector_norm", "cumsum",
)  # fmt: skip


@pytest.mark.parametrize(("name", "function", "specs"), cases({name: SMOOTH[name] for name in TWICE}))
def test_a_second_derivative_is_pytorchs(name: str, function: Callable[..., Any], specs: Any) -> None:
    inputs = [tensor.requires_grad_() for tensor in made(specs)]
    scalar = weighted(lambda *given: function(*given) ** 2, [])

    def second() -> list[Any]:
        first = gradient(scalar, inputs, create=True)
        return gradient(lambda *_: sum((g * g.detach()).sum() for g in first), inputs)

    for output, wanted in zip(evaluate(second).outputs, second(), strict=True):
        near(output, wanted, 1e-9)
