"""Fourier transforms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from flint import acb, arb

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_torch.rules import numbers


def _roots(size: int, forward: bool) -> Any:
    """The matrix of e^(∓2πi·jk/n)."""
    sign = -2 if forward else 2
    powers = [acb(arb(sign * k) / size).exp_pi_i() for k in range(size)]
    return np.array([[powers[j * k % size] for k in range(size)] for j in range(size)], object).reshape(size, size)


def _along(a: Any, axis: int, forward: bool) -> Any:
    moved = np.moveaxis(a, axis, -1)
    flat = moved.reshape(-1, moved.shape[-1])
    found = balls.matmul(flat, _roots(moved.shape[-1], forward))
    return np.moveaxis(found.reshape(moved.shape), -1, axis)


def _scaled(a: Any, sizes: list[int], normalization: int) -> Any:
    """Divided by n or √n, as `normalization` says."""
    count = math.prod(sizes)
    if normalization == 0:
        return a
    return a / (arb(count).sqrt() if normalization == 1 else arb(count))


@numbers("_fft_c2c")
def complex_to_complex(a: Any, dim: Any, normalization: int, forward: bool) -> Any:
    """The transform over axes."""
    result = balls.as_complex(a)
    for axis in dim:
        result = _along(result, axis, forward)
    return _scaled(result, [a.shape[axis] for axis in dim], normalization)


@numbers("_fft_r2c")
def real_to_complex(a: Any, dim: Any, normalization: int, onesided: bool) -> Any:
    """The transform of real numbers; half of the last axis determines the rest."""
    result = complex_to_complex(a, dim, normalization, True)
    if not onesided:
        return result
    half = [slice(None)] * a.ndim
    half[dim[-1]] = slice(0, a.shape[dim[-1]] // 2 + 1)
    return result[tuple(half)]


@numbers("_fft_c2r")
def complex_to_real(a: Any, dim: Any, normalization: int, last: int) -> Any:
    """The inverse of `real_to_complex`; imaginary parts that should be zero are ignored."""
    result = balls.as_complex(a)
    for axis in dim[:-1]:
        result = _along(result, axis, False)
    moved = np.moveaxis(result, dim[-1], -1)[..., : last // 2 + 1].copy()
    moved[..., 0] = balls.elementwise(_real_part, moved[..., 0])
    if last % 2 == 0:
        moved[..., last // 2] = balls.elementwise(_real_part, moved[..., last // 2])
    mirrored = balls.elementwise(acb.conjugate, moved[..., 1 : (last + 1) // 2][..., ::-1])
    whole = np.moveaxis(np.concatenate([moved, mirrored], axis=-1), -1, dim[-1])
    found = balls.elementwise(lambda z: z.real, _along(whole, dim[-1], False))
    return _scaled(found, [found.shape[axis] for axis in dim], normalization)


def _real_part(ball: Any) -> Any:
    return acb(ball.real)
