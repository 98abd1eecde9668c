"""Normalisation over a batch or groups of channels, with derivatives; PyTorch itself decomposes the other layers."""

from __future__ import annotations

from typing import Any

import numpy as np
from flint import arb

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_torch.rules import call, number, numbers


def _wide(channels: Any, ndim: int) -> Any:
    """One number per channel, to be broadcast along the others."""
    return channels.reshape(1, -1, *(1,) * (ndim - 2))


def _others(array: Any) -> tuple[int, ...]:
    return (0, *range(2, array.ndim))


@call("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training")
def batch_norm(this: Any) -> Any:
    """Each channel less its mean, over its deviation; in training the running moments are written in place."""
    given = {name: this.read(value) for name, value in this.named().items()}
    x, eps = given["input"], number(given["eps"])
    training = given.get("training", "no_training" not in this.name)
    running = [this.named().get(name) for name in ("running_mean", "running_var")]
    results = this.run()
    if training:
        size, axes = x.size // max(x.shape[1], 1), _others(x)
        mean = balls.total(x, axes) / arb(size)
        apart = x - _wide(mean, x.ndim)
        var = balls.total(apart * apart, axes) / arb(size)
        _write_running(this, running, given, mean, var * size / arb(size - 1) if size > 1 else None)
    else:
        mean, var = given["running_mean"], given["running_var"]
        apart = x - _wide(mean, x.ndim)
    invstd = balls.unary("rsqrt", var + eps)
    result = apart * _wide(invstd, x.ndim)
    if given["weight"] is not None:
        result = result * _wide(given["weight"], x.ndim)
    if given["bias"] is not None:
        result = result + _wide(given["bias"], x.ndim)
    empty = np.empty((0,), object)
    return result, mean if results[1].numel() else empty, invstd if results[2].numel() else empty


def _write_running(this: Any, running: list[Any], given: dict[str, Any], mean: Any, var: Any) -> None:
    share = number(given["momentum"])
    for tensor, name, now in zip(running, ("running_mean", "running_var"), (mean, var), strict=True):
        if tensor is not None and now is not None:
            this.shadows.write(tensor, given[name] * (1 - share) + now * share)


@numbers("native_batch_norm_backward")
def batch_norm_backward(
    grad: Any,
    x: Any,
    weight: Any,
    running_mean: Any,
    running_var: Any,
    mean: Any,
    invstd: Any,
    train: bool,
    eps: float,
    mask: Any,
) -> Any:
    """Cotangents of x, weight and bias."""
    axes, size = _others(x), x.size // max(x.shape[1], 1)
    if not train:
        mean, invstd = running_mean, balls.unary("rsqrt", running_var + number(eps))
    scale = _wide(invstd, x.ndim)
    normal = (x - _wide(mean, x.ndim)) * scale
    of_bias = balls.total(grad, axes)
    of_weight = balls.total(grad * normal, axes)
    into = grad
    if train:
        into = grad - _wide(of_bias, x.ndim) / arb(size) - normal * _wide(of_weight, x.ndim) / arb(size)
    into = into * scale if weight is None else into * scale * _wide(weight, x.ndim)
    return tuple(each if asked else None for each, asked in zip((into, of_weight, of_bias), mask, strict=True))


@numbers("native_group_norm_backward")
def group_norm_backward(
    grad: Any, x: Any, mean: Any, rstd: Any, weight: Any, batch: int, channels: int, size: int, groups: int, mask: Any
) -> Any:
    """Cotangents of x, weight and bias."""
    shape, count = (batch, groups, channels // groups, size), arb(channels // groups * size)
    normal = (x.reshape(shape) - mean.reshape(batch, groups, 1, 1)) * rstd.reshape(batch, groups, 1, 1)
    g = grad.reshape(shape)
    of_weight = balls.total(g * normal, (0, 3)).reshape(channels)
    of_bias = balls.total(g, (0, 3)).reshape(channels)
    scaled = g if weight is None else g * weight.reshape(1, groups, -1, 1)
    first = balls.total(scaled, (2, 3))[:, :, None, None]
    second = balls.total(scaled * normal, (2, 3))[:, :, None, None]
    into = (scaled - first / count - normal * second / count) * rstd.reshape(batch, groups, 1, 1)
    found = into.reshape(x.shape), of_weight, of_bias
    return tuple(each if asked else None for each, asked in zip(found, mask, strict=True))
