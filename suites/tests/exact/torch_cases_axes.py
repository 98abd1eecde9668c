"""Cases of rules that work along axes (reductions, products, convolutions, linear algebra), and of step functions."""

from __future__ import annotations

import math
from typing import Any

import torch

from gradgate.suites.tests.exact.torch_inputs import INDEX, A, F, p, parts, r, symmetric

AXES: dict[str, Any] = {
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
    "_log_softmax_backward_data": (
        lambda g, y: A._log_softmax_backward_data(g, y, 1, torch.float64),
        (r(3, 4), r(3, 4)),
    ),
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
        (
            lambda x, w: F.conv2d(x, w, stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2),
            (r(1, 2, 4, 5), r(4, 1, 2, 2)),
        ),
        (lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1, 2, (1, 1)), (r(1, 4, 2, 3), r(4, 2, 2, 2), r(4))),
        (lambda x, w: F.conv3d(x, w, padding="same"), (r(1, 1, 2, 2, 2), r(1, 1, 2, 1, 2))),
    ],
    "convolution_backward": (
        lambda x, w: torch.func.grad(lambda v: F.conv1d(v, w).square().sum())(x),
        (r(1, 2, 4), r(2, 2, 2)),
    ),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False), (r(1, 2, 4, 5),)),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2), (r(1, 1, 2, 2, 4),)),
    "_adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, (2, 3)), (r(1, 2, 3, 5),)),
    "_adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, (1, 2, 2)), (r(1, 1, 2, 3, 3),)),
    "avg_pool2d_backward": (
        lambda x: torch.func.grad(lambda y: F.avg_pool2d(y, 2).square().sum())(x),
        (r(1, 1, 2, 4),),
    ),
    "avg_pool3d_backward": (
        lambda x: torch.func.grad(lambda y: F.avg_pool3d(y, 2).square().sum())(x),
        (r(1, 1, 2, 2, 4),),
    ),
    "_adaptive_avg_pool2d_backward": (
        lambda x: torch.func.grad(lambda y: F.adaptive_avg_pool2d(y, 2).sum())(x) * x,
        (r(1, 1, 3, 3),),
    ),
    "_adaptive_avg_pool3d_backward": (
        lambda x: torch.func.grad(lambda y: F.adaptive_avg_pool3d(y, 2).sum())(x) * x,
        (r(1, 1, 3, 3, 2),),
    ),
    "max_pool2d_with_indices": [
        (lambda x: F.max_pool2d(x, 3, 2, 1, 1), (r(1, 2, 4, 5),)),
        (lambda x: F.max_pool1d(x, 2), (r(1, 2, 4),)),
    ],
    "max_pool3d_with_indices": (lambda x: F.max_pool3d(x, 2), (r(1, 1, 2, 2, 4),)),
    "max_pool2d_with_indices_backward": (
        lambda x: torch.func.grad(lambda y: F.max_pool2d(y, 2, 1).square().sum())(x),
        (r(1, 1, 3, 3),),
    ),
    "max_pool3d_with_indices_backward": (
        lambda x: torch.func.grad(lambda y: F.max_pool3d(y, 2).square().sum())(x),
        (r(1, 1, 2, 2, 2),),
    ),
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
    "linalg_lu_solve": (
        lambda a, b: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), b, adjoint=True),
        (r(3, 3), r(3, 2)),
    ),
    "_linalg_det": (torch.linalg.det, (r(2, 3, 3),)),
    "_linalg_slogdet": (lambda a: torch.linalg.slogdet(a)[1], (r(2, 3, 3),)),
    "linalg_solve_triangular": [
        (lambda a, b, u=up, s=left: torch.linalg.solve_triangular(a, b, upper=u, left=s), (r(3, 3), r(3, 3)))
        for up, left in ((True, True), (False, True), (True, False))
    ],
    "triangular_solve": (lambda a, b: torch.triangular_solve(b, a, transpose=True)[0], (r(3, 3), r(3, 2))),
    "linalg_cholesky_ex": (
        lambda a: torch.linalg.cholesky(symmetric(a)) + torch.linalg.cholesky(symmetric(a), upper=True),
        (r(3, 3),),
    ),
    "cholesky": (lambda a: torch.cholesky(symmetric(a)), (r(3, 3),)),
    "cholesky_solve": (lambda a, b: torch.cholesky_solve(b, torch.linalg.cholesky(symmetric(a))), (r(3, 3), r(3, 2))),
    "linalg_qr": (lambda a: torch.cat(torch.linalg.qr(a)), (r(4, 3),)),
    "linalg_matrix_exp": (torch.matrix_exp, (r(3, 3),)),
    "linalg_cross": (lambda a, b: torch.linalg.cross(a, b, dim=0), (r(3, 2), r(3, 2))),
    # transforms
    "_fft_r2c": [
        (lambda x: parts(torch.fft.rfft2(x)), (r(3, 4),)),
        (lambda x: parts(torch.fft.fft(x, norm="ortho")), (r(3, 4),)),
    ],
    "_fft_c2r": [(lambda x, y, n=n: torch.fft.irfftn(torch.complex(x, y), (2, n)), (r(2, 3), r(2, 3))) for n in (4, 5)],
    "_fft_c2c": (lambda x, y: parts(torch.fft.ifft(torch.complex(x, y), norm="forward")), (r(2, 3), r(2, 3))),
}

PIECEWISE: dict[str, Any] = {
    "floor_divide": (lambda x, y: torch.floor_divide(x, y) + torch.div(x, y, rounding_mode="trunc"), (r(6), p(6))),
    **{
        name: (getattr(torch, name), (r(2, 3),))
        for name in (
            "sign",
            "floor",
            "ceil",
            "trunc",
            "isnan",
            "isinf",
            "isposinf",
            "isneginf",
            "signbit",
            "logical_not",
            "argmax",
            "argmin",
            "nonzero",
            "count_nonzero",
            "any",
            "all",
        )
    },
    "round": (lambda x: torch.round(x) + torch.round(x, decimals=2), (r(6),)),
    **{
        name: (getattr(torch, name), (r(2, 3), r(3)))
        for name in (
            "lt",
            "le",
            "gt",
            "ge",
            "eq",
            "ne",
            "logical_and",
            "logical_or",
            "logical_xor",
            "heaviside",
        )
    },
    "silu_backward": (lambda g, x: A.silu_backward(g, x), (r(6), r(6))),
    "_native_batch_norm_legit_no_training": (
        lambda x, m, v: A._native_batch_norm_legit_no_training(x, None, None, m.detach(), v.detach(), 0.1, 0.1)[0],
        (r(5, 2), r(2), p(2)),
    ),
    "native_group_norm_backward": (
        lambda x, w: torch.autograd.grad(F.group_norm(x, 2, w).pow(3).sum(), x)[0],
        (r(2, 4, 2), r(4)),
    ),
    "hardsigmoid_backward": (lambda g, x: A.hardsigmoid_backward(g, x), (r(9), r(9))),
    "detach_copy": (torch.detach_copy, (r(3),)),
    "embedding_dense_backward": (lambda x: A.embedding_dense_backward(x, INDEX[0] // 2, 4, 3, True), (r(3, 2),)),
    "as_strided_scatter": (lambda x, y: torch.as_strided_scatter(x, y, (2, 2), (1, 2)), (r(3, 3), r(2, 2))),
    "equal": (lambda x: torch.tensor([torch.equal(x, x * 1), torch.equal(x, x + 1)]), (r(3),)),
    "argmax": (lambda x: x.argmax(1, keepdim=True), (r(3, 4),)),
}
