"""Convolutions and their derivatives, also transposed, for any number of axes, stride, padding, dilation and groups."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from flint import arb

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_torch.rules import numbers


class Geometry:
    """Which place of the input each tap of the kernel sees at each place of the output.

    Attributes:
        groups: number of parts of the channels that do not see each other.
        spatial: sizes of the input.
        taps: (taps, places of the output) -> flat place of the input; the place after the last is the padding.
    """

    def __init__(self, spatial: Any, kernel: Any, output: Any, stride: Any, padding: Any, dilation: Any, groups: int):
        self.groups, self.spatial, self.output = groups, tuple(spatial), tuple(output)
        shape = (*kernel, *output)
        count = len(self.spatial)
        at, inside = np.zeros(shape, np.int64), np.ones(shape, bool)
        for axis, size in enumerate(self.spatial):
            tap = np.arange(kernel[axis]).reshape([-1 if i == axis else 1 for i in range(2 * count)])
            place = np.arange(output[axis]).reshape([-1 if i == axis + count else 1 for i in range(2 * count)])
            here = place * stride[axis] - padding[axis] + tap * dilation[axis]
            inside &= (here >= 0) & (here < size)
            at = at * size + here
        row = math.prod(self.spatial)
        self.taps = np.where(inside, at, row).reshape(math.prod(kernel), math.prod(output))

    def columns(self, x: Any) -> Any:
        """(groups, channels of a group × taps, batch × places) of the input."""
        batch, channels = x.shape[:2]
        padded = np.concatenate([x.reshape(batch, channels, -1), np.full((batch, channels, 1), arb(0))], axis=2)
        seen = padded[:, :, self.taps].reshape(batch, self.groups, -1, self.taps.shape[1])
        return seen.transpose(1, 2, 0, 3).reshape(self.groups, seen.shape[2], -1)

    def rows(self, y: Any) -> Any:
        """(groups, channels of a group, batch × places) of an output."""
        batch = y.shape[0]
        parts = y.reshape(batch, self.groups, -1, self.taps.shape[1])
        return parts.transpose(1, 2, 0, 3).reshape(self.groups, parts.shape[2], -1)

    def apply(self, x: Any, weight: Any) -> Any:
        """The correlation of the input with the kernels."""
        batch = x.shape[0]
        kernels = weight.reshape(self.groups, weight.shape[0] // self.groups, -1)
        found = balls.matmul(kernels, self.columns(x)).reshape(*kernels.shape[:2], batch, -1)
        return found.transpose(2, 0, 1, 3).reshape(batch, weight.shape[0], *self.output)

    def pull_input(self, y: Any, weight: Any) -> Any:
        """The transpose of `apply` in x."""
        batch, channels = y.shape[0], self.groups * weight.shape[1]
        kernels = weight.reshape(self.groups, weight.shape[0] // self.groups, -1)
        found = balls.matmul(kernels.transpose(0, 2, 1), self.rows(y))
        found = found.reshape(self.groups, weight.shape[1], len(self.taps), batch, -1)
        found = found.transpose(3, 0, 1, 2, 4).reshape(batch, channels, len(self.taps), -1)
        result = balls.full((batch, channels, math.prod(self.spatial) + 1), 0)
        for tap, places in enumerate(self.taps):  # one tap has no place twice, except the padding
            result[:, :, places] = result[:, :, places] + found[:, :, tap]
        return result[:, :, :-1].reshape(batch, channels, *self.spatial)

    def pull_weight(self, y: Any, x: Any, shape: Any) -> Any:
        """The transpose of `apply` in the kernels."""
        return balls.matmul(self.rows(y), self.columns(x).transpose(0, 2, 1)).reshape(shape)


def _widened(value: Any, count: int) -> list[int]:
    return list(value) * count if len(value) == 1 else list(value)


def _geometry(x: Any, weight: Any, how: tuple[Any, ...], out: Any) -> Geometry:
    """The geometry of a convolution; for a transposed one, that of the convolution that it transposes."""
    stride, padding, dilation, transposed, extra, groups = how
    count = x.ndim - 2
    stride, padding, dilation, extra = (_widened(each, count) for each in (stride, padding, dilation, extra))
    kernel, spatial = weight.shape[2:], x.shape[2:]
    reach = [dilation[i] * (kernel[i] - 1) + 1 for i in range(count)]
    if transposed:
        larger = [(spatial[i] - 1) * stride[i] - 2 * padding[i] + reach[i] + extra[i] for i in range(count)]
        return Geometry(larger, kernel, spatial, stride, padding, dilation, groups)
    output = out or [(spatial[i] + 2 * padding[i] - reach[i]) // stride[i] + 1 for i in range(count)]
    return Geometry(spatial, kernel, output, stride, padding, dilation, groups)


@numbers("convolution")
def convolution(
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    extra: Any,
    groups: int,
    *_: Any,
) -> Any:
    """The convolution of x with the kernels, plus the bias."""
    geometry = _geometry(x, weight, (stride, padding, dilation, transposed, extra, groups), None)
    result = geometry.pull_input(x, weight) if transposed else geometry.apply(x, weight)
    return result if bias is None else result + bias.reshape(1, -1, *(1,) * (x.ndim - 2))


@numbers("convolution_backward")
def convolution_backward(
    grad: Any,
    x: Any,
    weight: Any,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    extra: Any,
    groups: int,
    mask: Any,
) -> Any:
    """Cotangents of x, kernels and bias: those that `mask` requests."""
    geometry = _geometry(x, weight, (stride, padding, dilation, transposed, extra, groups), list(grad.shape[2:]))
    into = of_weight = of_bias = None
    if mask[0]:
        into = geometry.apply(grad, weight) if transposed else geometry.pull_input(grad, weight)
    if mask[1]:
        seen = (x, grad) if transposed else (grad, x)
        of_weight = geometry.pull_weight(*seen, weight.shape)
    if mask[2]:
        of_bias = balls.total(grad, (0, *range(2, grad.ndim)))
    return into, of_weight, of_bias
