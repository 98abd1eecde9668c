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
    """The general product: batched dimensions in front, then the other dimensions of one operand and of the other."""
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
    """`balls.contract`; everything that depends only on shapes is computed once."""
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
    numbers = equation.params["ragged_dot_dimension_numbers"]
    contracted, batched = numbers.dot_dimension_numbers
    (ragged,), grouped = numbers.lhs_ragged_dimensions, tuple(numbers.rhs_group_dimensions)
    if ragged in batched[0] or equation.params["group_offset"] is not None or len(equation.invars[2].aval.shape) > 1:
        raise balls.Unknown("ragged_dot_general with ragged batches, batches of lengths or an offset")
    if ragged in contracted[0]:
        partner = contracted[1][contracted[0].index(ragged)]

        def inner(one: Any, other: Any, lengths: Any) -> Any:
            rows = [(_cut(one, ragged, part), _cut(other, partner, part)) for part in _parts(lengths)]
            return np.stack([balls.contract(a, b, contracted, batched) for a, b in rows])

        return inner
    (group,) = grouped
    place = len(batched[0]) + sum(d < ragged for d in range(ragged) if d not in (*contracted[0], *batched[0]))
    lower = tuple(tuple(d - (d > group) for d in dims) for dims in (contracted[1], batched[1]))
    zero = blank(equation.outvars[0].aval)

    def rows(one: Any, other: Any, lengths: Any) -> Any:
        result = zero.copy()
        for index, part in enumerate(_parts(lengths)):
            matrix = np.take(other, index, group)
            product = balls.contract(_cut(one, ragged, part), matrix, (contracted[0], lower[0]), (batched[0], lower[1]))
            _cut(result, place, part)[...] = product
        return result

    return rows


def _parts(lengths: Any) -> list[slice]:
    """Consecutive slices of these lengths."""
    ends = np.cumsum(lengths).tolist()
    return [slice(end - length, end) for end, length in zip(ends, lengths.tolist(), strict=True)]


def _cut(array: Any, axis: int, part: slice) -> Any:
    return array[(slice(None),) * axis + (part,)]


# Fourier transforms ---------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def _roots(length: int, inverse: bool, digits: int) -> Any:
    """The matrix of exp(∓2πi jk / n); for the inverse, divided by n. `digits` is only a key of the cache."""
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
