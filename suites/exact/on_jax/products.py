"""Products of arrays and Fourier transforms."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from flint import acb, arb

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_jax.rules import Run, blank, inexact, rule


@rule("dot_general")
def dot(equation: Any) -> Run:
    """The general product: batched dimensions in front, then those left of one operand and of the other."""
    contracted, batched = equation.params["dimension_numbers"]
    if inexact(equation.outvars[0]):
        return _dot_of_balls(equation, contracted, batched)
    dtype = equation.outvars[0].aval.dtype
    contract = _contraction(equation, contracted, batched)
    return lambda one, other: contract(one.astype(dtype), other.astype(dtype), np.matmul)


def _dot_of_balls(equation: Any, contracted: Any, batched: Any) -> Run:
    contract = _contraction(equation, contracted, batched)
    if all(inexact(atom) for atom in equation.invars):
        return lambda one, other: contract(one, other, balls.matmul)
    return lambda one, other: contract(balls.exact(one), balls.exact(other), balls.matmul)


def _contraction(equation: Any, contracted: Any, batched: Any) -> Run:
    """`balls.contract` with everything that shapes decide decided once."""
    one, other = (atom.aval.shape for atom in equation.invars)
    (sum_one, sum_other), (lead_one, lead_other) = contracted, batched
    free_one = [axis for axis in range(len(one)) if axis not in (*sum_one, *lead_one)]
    free_other = [axis for axis in range(len(other)) if axis not in (*sum_other, *lead_other)]
    lead, inner = [one[axis] for axis in lead_one], math.prod(one[axis] for axis in sum_one)
    rows, columns = math.prod(one[a] for a in free_one), math.prod(other[a] for a in free_other)
    order_one, order_other = [*lead_one, *free_one, *sum_one], [*lead_other, *sum_other, *free_other]
    left, right = (*lead, rows, inner), (*lead, inner, columns)
    shape = (*lead, *(one[axis] for axis in free_one), *(other[axis] for axis in free_other))

    def run(a: Any, b: Any, product: Any) -> Any:
        return product(a.transpose(order_one).reshape(left), b.transpose(order_other).reshape(right)).reshape(shape)

    return run


@rule("ragged_dot_general")
def ragged_dot(equation: Any) -> Run:
    """Rows in groups of given lengths, each group times its own matrix."""
    params = equation.params
    numbers = params["ragged_dot_dimension_numbers"]
    (sum_one, sum_other), (lead_one, lead_other) = numbers.dot_dimension_numbers
    plain = (tuple(sum_one), tuple(lead_one), tuple(lead_other)) == ((1,), (), ())
    grouped = tuple(numbers.rhs_group_dimensions)
    if not plain or tuple(numbers.lhs_ragged_dimensions) != (0,) or len(grouped) != 1 or params["group_offset"]:
        raise balls.Unknown("ragged_dot_general other than (rows, inner) times (groups, inner, columns)")
    zero = blank(equation.outvars[0].aval)

    def run(rows: Any, matrices: Any, lengths: Any) -> Any:
        matrices = np.moveaxis(matrices, [grouped[0], sum_other[0]], [0, 1])
        result, start = zero.copy(), 0
        for matrix, length in zip(matrices, lengths.tolist(), strict=True):
            result[start : start + length] = balls.matmul(rows[start : start + length], matrix)
            start += length
        return result

    return run


# Fourier transforms ---------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def _roots(length: int, inverse: bool, digits: int) -> Any:
    """The matrix of exp(∓2πi jk / n); of the inverse divided by n. `digits` keys the cache."""
    turns = [acb(arb(2 * k * (1 if inverse else -1)) / length).exp_pi_i() for k in range(length)]
    roots = np.empty((length, length), object)
    for j in range(length):
        for k in range(length):
            roots[j, k] = turns[j * k % length] / length if inverse else turns[j * k % length]
    return roots


def _transformed(array: Any, axis: int, inverse: bool) -> Any:
    import flint

    turned = np.moveaxis(array, axis, -1)
    roots = _roots(turned.shape[-1], inverse, flint.ctx.prec)
    product = balls.matmul(turned.reshape(-1, turned.shape[-1]), roots).reshape(turned.shape)
    return np.moveaxis(product, -1, axis)


@rule("fft")
def fourier(equation: Any) -> Run:
    """Fourier transform over the last dimensions, by definition."""
    which, lengths = equation.params["fft_type"].name, tuple(equation.params["fft_lengths"])
    axes = list(range(-len(lengths), 0))
    shape = equation.outvars[0].aval.shape

    def run(x: Any) -> Any:
        if which in ("FFT", "IFFT"):
            for axis in axes:
                x = _transformed(x, axis, which == "IFFT")
            return x
        if which == "RFFT":
            x = balls.as_complex(x)
            for axis in axes:
                x = _transformed(x, axis, False)
            return x[..., : lengths[-1] // 2 + 1]
        for axis in axes[:-1]:
            x = _transformed(x, axis, True)
        return _real_inverse(x, lengths[-1]).reshape(shape)

    return run


def _real_inverse(half: Any, length: int) -> Any:
    """The real sequence whose transform begins with `half`; imaginary parts at both ends are ignored."""
    half = half.copy()
    for place in {0, length // 2} if length % 2 == 0 else {0}:
        half[..., place] = balls.as_complex(balls.whole(balls.elementwise(lambda z: z.real, half[..., place])))
    mirrored = balls.elementwise(lambda z: z.conjugate(), half[..., 1 : (length + 1) // 2][..., ::-1])
    return balls.elementwise(lambda z: z.real, _transformed(np.concatenate([half, mirrored], -1), -1, True))
