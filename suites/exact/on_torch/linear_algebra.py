"""Linear systems and factorisations of matrices.

A factorisation with pivots uses the pivots that PyTorch found in floats: any pivots are right if none of them is zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flint
import numpy as np
from flint import arb

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_torch.rules import call, mixed, numbers
from gradgate.suites.exact.on_torch.shadows import as_numpy


def each_matrix(function: Callable[..., Any], *arrays: Any) -> Any:
    """`function` of each matrix of a batch, stacked; its answer is an array or a tuple of them."""
    lead = np.broadcast_shapes(*(array.shape[:-2] for array in arrays))
    wide = [np.broadcast_to(array, lead + array.shape[-2:]) for array in arrays]
    found = [function(*(array[index] for array in wide)) for index in np.ndindex(lead)]
    if not found:
        raise balls.Unknown("a factorisation of no matrix at all")
    if not isinstance(found[0], tuple):
        return _stacked(found, lead)
    return tuple(_stacked(list(parts), lead) for parts in zip(*found, strict=True))


def _stacked(parts: list[Any], lead: tuple[int, ...]) -> Any:
    arrays = [balls.whole(part) for part in parts]
    return np.stack(arrays).reshape(lead + arrays[0].shape)


def _divided(row: Any, pivot: Any) -> Any:
    if pivot.contains(0):
        raise balls.Undecided("whether a matrix is singular")
    return row / pivot


def permutation(pivots: Any, size: int) -> list[int]:
    """The order of rows that LAPACK's exchanges lead to."""
    order = list(range(size))
    for place, other in enumerate(np.asarray(pivots).tolist()):
        order[place], order[other - 1] = order[other - 1], order[place]
    return order


def eliminated(matrix: Any, pivots: Any) -> Any:
    """L below the diagonal and U above of P·L·U = matrix, with the rows exchanged as the pivots say."""
    result = matrix[permutation(pivots, matrix.shape[0])].copy()
    for k in range(min(matrix.shape)):
        if k + 1 < matrix.shape[0]:
            result[k + 1 :, k] = _divided(result[k + 1 :, k], result[k, k])
            result[k + 1 :, k + 1 :] = result[k + 1 :, k + 1 :] - result[k + 1 :, k, None] * result[None, k, k + 1 :]
    return result


def lower(factors: Any) -> Any:
    """The unit lower triangle."""
    rows, inner = factors.shape[-2], min(factors.shape[-2:])
    result = balls.full((rows, inner), 0)
    for i in range(rows):
        result[i, : min(i, inner)] = factors[i, : min(i, inner)]
        if i < inner:
            result[i, i] = arb(1)
    return result


def upper(factors: Any) -> Any:
    """The upper triangle."""
    inner, columns = min(factors.shape[-2:]), factors.shape[-1]
    result = balls.full((inner, columns), 0)
    for i in range(inner):
        result[i, i:] = factors[i, i:]
    return result


def _factored(matrix: Any, pivots: Any) -> Any:
    """`eliminated` for a batch; the pivots come as rows."""
    return each_matrix(lambda a, p: eliminated(a, p[0]), matrix, pivots[..., None, :])


def _factored_as(this: Any, place: int, array: Any) -> Any:
    """The factors of a matrix or of its transpose: PyTorch factors either, and the floats of this call show which.

    Args:
        place: that of the factors among the results; the pivots follow.
    """
    real, pivots = this.run()[place], as_numpy(this.run()[place + 1])
    if this.transposed is None:
        found, wanted = [_factored(each, pivots) for each in _ways(array)], as_numpy(real.resolve_conj())
        apart = [np.nan_to_num(abs(balls.floats(each) - wanted), nan=np.inf).sum() for each in found]
        this.transposed = apart[1] < apart[0]
    return _factored(_ways(array)[int(this.transposed)], pivots)


def _ways(array: Any) -> tuple[Any, Any]:
    return array, np.swapaxes(array, -1, -2)


@call("linalg_lu_factor_ex")
def lu_factor(this: Any) -> Any:
    """L and U in one matrix."""
    _, pivots, _ = this.run()
    return _factored(this.read(this.args[0]), as_numpy(pivots)), None, None


@mixed("lu_unpack")
def unpacked(factors: Any, pivots: Any, data: bool = True, places: bool = True) -> Any:
    """P, L and U."""

    def exchange(p: Any) -> Any:
        order = permutation(p[0], factors.shape[-2])
        result = balls.full((len(order), len(order)), 0)
        result[order, range(len(order))] = arb(1)
        return result

    empty = np.empty((0,), object)
    found = each_matrix(exchange, pivots[..., None, :]) if places else empty
    return found, *((each_matrix(lower, factors), each_matrix(upper, factors)) if data else (empty, empty))


@call("linalg_lu")
def lu(this: Any) -> Any:
    """P, L and U."""
    order, _, _ = this.run()
    exchange = balls.exact(as_numpy(order))

    def one(a: Any, p: Any) -> Any:
        rows = np.argmax(balls.floats(p), axis=0)
        factors = eliminated(a[rows], ())
        return p, lower(factors), upper(factors)

    return each_matrix(one, this.read(this.args[0]), exchange)


@call("_linalg_solve_ex")
def solve(this: Any) -> Any:
    """X with A·X = B or X·A = B, and the factors of A."""
    given = this.named()
    a, b = this.read(given["A"]), this.read(given["B"])
    vector = b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1])
    right = b[..., None] if vector else b
    found = _solved(a, right, given.get("left", True))
    found = found[..., 0] if vector else found
    return found, _factored_as(this, 1, a), None, None


def _solved(a: Any, right: Any, left: bool) -> Any:
    if left:
        return each_matrix(balls.solve, a, right)
    return each_matrix(lambda m, r: balls.solve(m.T, r.T).T, a, right)


@call("linalg_inv_ex")
def inverse(this: Any) -> Any:
    """A⁻¹."""
    return each_matrix(lambda m: balls.solve(m, balls.exact(np.eye(len(m)))), this.read(this.args[0])), None


@mixed("linalg_lu_solve")
def lu_solve(factors: Any, pivots: Any, right: Any, left: bool = True, adjoint: bool = False) -> Any:
    """X with A·X = B, also for the transpose of A, or with X·A = B; A is given by its factors."""

    def one(f: Any, p: Any, r: Any) -> Any:
        order = permutation([int(each) for each in p[0]], len(f))
        a = np.empty(f.shape, object)
        a[order] = balls.matmul(lower(f), upper(f))
        a = a.T if adjoint else a
        return balls.solve(a, r) if left else balls.solve(a.T, r.T).T

    if adjoint and balls.is_complex(factors):
        raise balls.Unknown("aten.linalg_lu_solve of the adjoint of a complex matrix")
    return each_matrix(one, factors, pivots[..., None, :], right)


def _matrix(a: Any) -> Any:
    kind: Any = flint.acb_mat if balls.is_complex(a) else flint.arb_mat
    return kind(*a.shape, a.ravel().tolist())


def _determinant(a: Any) -> Any:
    if not a.size:
        return arb(1)
    return _matrix(a).det()


@call("_linalg_det")
def determinant(this: Any) -> Any:
    """The determinant, and the factors."""
    a = this.read(this.args[0])
    return each_matrix(_determinant, a), _factored_as(this, 1, a), None


@call("_linalg_slogdet")
def slogdet(this: Any) -> Any:
    """Sign and logarithm of the determinant, and the factors."""
    a = this.read(this.args[0])
    found = each_matrix(_determinant, a)
    signs = balls.elementwise(lambda d: d / abs(d) if balls.is_complex(a) else balls.sign(d), found)
    size = balls.elementwise(lambda d: balls.UNARY["log"](abs(d)), found)
    return signs, size, _factored_as(this, 2, a), None


def _substituted(a: Any, right: Any, is_upper: bool, unit: bool) -> Any:
    size, result = len(a), right.copy()
    for i in range(size - 1, -1, -1) if is_upper else range(size):
        done = slice(i + 1, size) if is_upper else slice(0, i)
        for j in range(done.start, done.stop):
            result[i] = result[i] - a[i, j] * result[j]
        if not unit:
            result[i] = _divided(result[i], a[i, i])
    return result


@numbers("linalg_solve_triangular")
def solve_triangular(a: Any, right: Any, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    """X with A·X = B or X·A = B; only a triangle of A is used."""

    def one(m: Any, r: Any) -> Any:
        if left:
            return _substituted(m, r, upper, unitriangular)
        return _substituted(m.T, r.T, not upper, unitriangular).T

    return each_matrix(one, a, right)


@numbers("triangular_solve")
def triangular_solve(right: Any, a: Any, upper: bool = True, transpose: bool = False, unit: bool = False) -> Any:
    """X with A·X = B, and A again."""
    turned = np.swapaxes(a, -1, -2) if transpose else a
    return each_matrix(lambda m, r: _substituted(m, r, upper != transpose, unit), turned, right), a


def _root(a: Any) -> Any:
    size, result = len(a), balls.full(a.shape, 0)
    for j in range(size):
        pivot = a[j, j] - sum((result[j, k] * result[j, k] for k in range(j)), arb(0))
        if not pivot > 0:
            raise balls.Undecided("whether a matrix is positive definite")
        result[j, j] = pivot.sqrt()
        for i in range(j + 1, size):
            rest = a[i, j] - sum((result[i, k] * result[j, k] for k in range(j)), arb(0))
            result[i, j] = rest / result[j, j]
    return result


@numbers("linalg_cholesky_ex")
def cholesky(a: Any, upper: bool = False, check_errors: bool = False) -> Any:
    """L with L·Lᵀ = A, from its lower triangle, or Lᵀ from its upper one."""
    if balls.is_complex(a):
        raise balls.Unknown("aten.linalg_cholesky_ex of a complex matrix")
    return each_matrix(lambda m: _root(m.T).T if upper else _root(m), a), None


@numbers("cholesky")
def cholesky_old(a: Any, upper: bool = False) -> Any:
    """`cholesky` with one answer."""
    return cholesky(a, upper)[0]


@numbers("cholesky_solve")
def cholesky_solve(right: Any, factor: Any, upper: bool = False) -> Any:
    """X with L·Lᵀ·X = B."""

    def one(f: Any, r: Any) -> Any:
        low = f.T if upper else f
        return _substituted(low.T, _substituted(low, r, False, False), True, False)

    return each_matrix(one, factor, right)


@call("linalg_qr")
def qr(this: Any) -> Any:
    """The reduced Q and R; the diagonal of R has the signs that PyTorch's has."""
    mode, a = this.named().get("mode", "reduced"), this.read(this.args[0])
    if mode != "reduced" or a.shape[-2] < a.shape[-1] or balls.is_complex(a):
        raise balls.Unknown(f"aten.linalg_qr, mode {mode!r}, of a matrix of shape {a.shape}")
    signs = balls.exact(as_numpy(this.run()[1].detach().cpu()))
    return each_matrix(_orthogonal, a, signs)


def _orthogonal(a: Any, like: Any) -> Any:
    q, r = a.copy(), balls.full((a.shape[1], a.shape[1]), 0)
    for j in range(a.shape[1]):
        size = balls.total(balls.whole(q[:, j] * q[:, j]), (0,))[()].sqrt()
        r[j, j] = -size if like[j, j] < 0 else size
        q[:, j] = _divided(q[:, j], r[j, j])
        for k in range(j + 1, a.shape[1]):
            r[j, k] = (q[:, j] * q[:, k]).sum()
            q[:, k] = q[:, k] - r[j, k] * q[:, j]
    return q, r


@numbers("linalg_matrix_exp")
def matrix_exp(a: Any) -> Any:
    """The exponential of a matrix."""

    def one(m: Any) -> Any:
        return balls.from_matrix(_matrix(m).exp())

    return each_matrix(one, a)


@numbers("linalg_cross")
def cross(a: Any, b: Any, dim: int = -1) -> Any:
    """The product of vectors in space."""
    x, y = np.moveaxis(a, dim, 0), np.moveaxis(b, dim, 0)
    x, y = np.broadcast_arrays(x, y) if x.ndim == y.ndim else (x, y)
    parts = [x[1] * y[2] - x[2] * y[1], x[2] * y[0] - x[0] * y[2], x[0] * y[1] - x[1] * y[0]]
    return np.moveaxis(np.stack([balls.whole(each) for each in parts]), 0, dim)
