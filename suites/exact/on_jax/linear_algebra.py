"""Decompositions and solutions of linear systems, one matrix at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from flint import acb, arb

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_jax.elementwise import COMPLEX, UNARY
from gradgate.suites.exact.on_jax.rules import Run, kind, rule


def each(function: Callable[..., Any], *arrays: Any) -> list[Any]:
    """`function` of every matrix in the leading dimensions, its results stacked."""
    lead = arrays[0].shape[:-2]
    if not lead:
        return list(function(*arrays))
    flat = [array.reshape(-1, *array.shape[len(lead) :]) for array in arrays]
    found = [function(*parts) for parts in zip(*flat, strict=True)]
    return [np.stack(parts).reshape(*lead, *parts[0].shape) for parts in zip(*found, strict=True)]


def _square_root(number: Any) -> Any:
    return (UNARY if isinstance(number, arb) else COMPLEX)["sqrt"](number)


def _conjugate(array: Any) -> Any:
    return balls.elementwise(lambda z: z.conjugate(), array) if balls.is_complex(array) else array


@rule("cholesky")
def cholesky(equation: Any) -> Run:
    """L with L Lᴴ = A, from the lower triangle of A."""
    zero = acb(0) if kind(equation.invars[0]) == "c" else arb(0)

    def lower(a: Any) -> list[Any]:
        result = np.empty(a.shape, object)
        result[...] = zero
        for j in range(a.shape[0]):
            row = result[j, :j]
            pivot = a[j, j] - (row * _conjugate(row)).sum() if j else a[j, j]
            root = _square_root(pivot.real if isinstance(pivot, acb) else pivot)
            result[j, j] = root if zero.__class__ is arb else acb(root)
            for i in range(j + 1, a.shape[0]):
                rest = a[i, j] - (result[i, :j] * _conjugate(row)).sum() if j else a[i, j]
                result[i, j] = rest / result[j, j]
        return [result]

    return lambda a: each(lower, a)[0]


@rule("triangular_solve")
def triangular_solve(equation: Any) -> Run:
    """X with op(A) X = B, or X op(A) = B; only a triangle of A is used."""
    params = equation.params
    unit, transposed = params["unit_diagonal"], params["transpose_a"]
    lower = params["lower"] != transposed

    def solve(a: Any, b: Any) -> list[Any]:
        if transposed:
            a = a.T
        if params["conjugate_a"]:
            a = _conjugate(a)
        if params["left_side"]:
            return [_substitute(a, b, lower, unit)]
        return [_substitute(a.T, b.T, not lower, unit).T]

    return lambda a, b: each(solve, a, b)[0]


def _substitute(a: Any, b: Any, lower: bool, unit: bool) -> Any:
    """Forward substitution of a lower triangle, backward of an upper one."""
    size, result = a.shape[0], b.copy()
    for row in range(size) if lower else range(size - 1, -1, -1):
        known = slice(0, row) if lower else slice(row + 1, size)
        rest = result[row]
        if a[row, known].size:
            rest = rest - (a[row, known, None] * result[known]).sum(0)
        if not unit:
            pivot = a[row, row]
            if not pivot.is_finite() or pivot.is_zero() or not (abs(pivot) > 0):
                raise balls.Undecided("whether a triangular matrix is singular")
            rest = rest / pivot
        result[row] = rest
    return result


@rule("lu")
def lu(equation: Any) -> Run:
    """Triangular factors of a matrix with its rows permuted: by the largest pivot, which the balls must decide."""
    pivot_dtype, order_dtype = (out.aval.dtype for out in equation.outvars[1:])

    def decompose(a: Any) -> list[Any]:
        work, (rows, columns) = a.copy(), a.shape
        order, pivots = np.arange(rows), []
        for step in range(min(rows, columns)):
            best = _pivot([_size(value) for value in work[step:, step]]) + step
            pivots.append(best)
            if best != step:
                work[[step, best]] = work[[best, step]]
                order[[step, best]] = order[[best, step]]
            if step + 1 < rows and not work[step, step].is_zero():
                work[step + 1 :, step] = work[step + 1 :, step] / work[step, step]
                outer = work[step + 1 :, step, None] * work[None, step, step + 1 :]
                work[step + 1 :, step + 1 :] = work[step + 1 :, step + 1 :] - outer
        return [work, np.array(pivots, pivot_dtype), order.astype(order_dtype)]

    return lambda a: each(decompose, a)


def _size(value: Any) -> Any:
    """The size by which a pivot is chosen: |re| + |im| for complex numbers, as in LAPACK."""
    return abs(value.real) + abs(value.imag) if isinstance(value, acb) else abs(value)


def _pivot(sizes: list[Any]) -> int:
    best = 0
    for place, size in enumerate(sizes):
        if balls._decided(size, sizes[best], "greater than") == 1:
            best = place
    if not (sizes[best] > 0 or sizes[best].is_zero()):
        raise balls.Undecided("whether a matrix is singular")
    return best


@rule("lu_pivots_to_permutation")
def permutation(equation: Any) -> Run:
    """The order of rows that a sequence of exchanges makes."""
    size = equation.params["permutation_size"]
    dtype = equation.outvars[0].aval.dtype

    def follow(pivots: list[int]) -> Any:
        order = np.arange(size, dtype=dtype)
        for place, other in enumerate(pivots):
            order[[place, other]] = order[[other, place]]
        return order

    def run(pivots: Any) -> Any:
        rows = [follow(row) for row in pivots.reshape(-1, pivots.shape[-1]).tolist()]
        return np.array(rows, dtype).reshape(*pivots.shape[:-1], size)

    return run


@rule("qr")
def qr(equation: Any) -> Run:
    """Q and R by reflections with the signs of LAPACK."""
    params = equation.params
    if params.get("pivoting"):
        raise balls.Unknown("qr with pivoting")
    if kind(equation.invars[0]) == "c":
        raise balls.Unknown("qr of complex matrices")
    whole_q = params["full_matrices"]

    def decompose(a: Any) -> list[Any]:
        rows, columns = a.shape
        packed, taus = _reflections(a)
        width = rows if whole_q else min(rows, columns)
        q = _product(packed, taus, width)
        upper = np.triu(np.ones((width, columns), bool))
        return [q, np.where(upper, packed[:width], balls.full((), 0))]

    return lambda a: each(decompose, a)


def _reflections(a: Any) -> tuple[Any, list[Any]]:
    """Householder vectors below the diagonal, R on and above it, and their factors τ (LAPACK's geqrf)."""
    work, (rows, columns) = a.copy(), a.shape
    taus = []
    for k in range(min(rows, columns)):
        head, tail = work[k, k], work[k + 1 :, k]
        square = (tail * tail).sum() if tail.size else arb(0)
        if square.is_zero():
            taus.append(arb(0))
            continue
        norm = UNARY["sqrt"](head * head + square)
        beta = norm if balls.sign(head) < 0 else -norm
        tau, vector = (beta - head) / beta, tail / (head - beta)
        if k + 1 < columns:
            rest = work[k, k + 1 :] + (vector[:, None] * work[k + 1 :, k + 1 :]).sum(0)
            work[k, k + 1 :] = work[k, k + 1 :] - tau * rest
            work[k + 1 :, k + 1 :] = work[k + 1 :, k + 1 :] - tau * vector[:, None] * rest[None]
        work[k, k], work[k + 1 :, k] = beta, vector
        taus.append(tau)
    return work, taus


def _product(packed: Any, taus: list[Any], width: int) -> Any:
    """The first columns of the product of the reflections (LAPACK's orgqr)."""
    rows = packed.shape[0]
    q = balls.exact(np.eye(rows, width))
    for k in range(len(taus) - 1, -1, -1):
        vector = np.concatenate([balls.full((1,), 1), packed[k + 1 :, k]])
        q[k:] = q[k:] - taus[k] * vector[:, None] * (vector[:, None] * q[k:]).sum(0)[None]
    return q


@rule("geqrf")
def packed_qr(equation: Any) -> Run:
    """Householder vectors and their factors."""
    if kind(equation.invars[0]) == "c":
        raise balls.Unknown("geqrf of complex matrices")

    def decompose(a: Any) -> list[Any]:
        packed, taus = _reflections(a)
        return [packed, np.array([*taus, None], object)[:-1]]

    return lambda a: each(decompose, a)


@rule("householder_product")
def householder_product(equation: Any) -> Run:
    """The product of reflections."""
    if kind(equation.invars[0]) == "c":
        raise balls.Unknown("householder_product of complex matrices")

    def run(a: Any, taus: Any) -> Any:
        lead = a.shape[:-2]
        flat, factors = a.reshape(-1, *a.shape[-2:]), taus.reshape(-1, taus.shape[-1])
        found = [_product(one, tau.tolist(), a.shape[-1]) for one, tau in zip(flat, factors, strict=True)]
        return np.stack(found).reshape(*lead, *a.shape[-2:])

    return run


@rule("tridiagonal_solve")
def tridiagonal_solve(equation: Any) -> Run:
    """The solution of a tridiagonal system, through the whole matrix."""
    if len(equation.invars[0].aval.shape) != 1:
        raise balls.Unknown("tridiagonal_solve of several matrices")

    def run(below: Any, diagonal: Any, above: Any, right: Any) -> Any:
        size = diagonal.shape[0]
        matrix = balls.full((size, size), 0)
        for i in range(size):
            matrix[i, i] = diagonal[i]
            if i:
                matrix[i, i - 1], matrix[i - 1, i] = below[i], above[i - 1]
        return balls.solve(matrix, right)

    return run
