# /// script
# dependencies = ["lineax==0.1.1"]
#
# [tool.gradgate]
# home = "https://github.com/patrick-kidger/lineax"
# framework = "jax"
# seconds = 300
# ///
"""Solvers of lineax 0.1.1 and their derivatives, against elimination written out and the normal equations."""

import os

os.environ["EQX_ON_ERROR"] = "nan"  # a failure is NaN in place of an exception; equinox reads this when it is imported

import jax.numpy as jnp
import lineax as lx

import gradgate
from gradgate import normal, uniform

ALL = ("jit", "vmap", "second_order")
DIRECT = {"lu": lx.LU(), "qr": lx.QR(), "auto": lx.AutoLinearSolver(well_posed=True)}
"""Solvers for any invertible matrix. SVD is left out: sixty digits have no rule for it."""


def eliminated(a, b):
    """The solution of a·x = b by Gauss's elimination without pivots. a: (N, N); b: (N,)."""
    rows = [jnp.append(a[i], b[i]) for i in range(len(b))]
    for i in range(len(rows)):
        pivot = rows[i] / rows[i][i]
        rows = [pivot if j == i else row - row[i] * pivot for j, row in enumerate(rows)]
    return jnp.stack([row[-1] for row in rows])


def shifted(a):
    """A matrix that is well conditioned; a: (N, N), normal."""
    return 3 * jnp.eye(len(a), dtype=a.dtype) + a / len(a) / 2


def direct(a, b, solver="lu"):
    """linear_solve of a general matrix."""
    return lx.linear_solve(lx.MatrixLinearOperator(shifted(a)), b, DIRECT[solver]).value


def plain_direct(a, b):
    """The reference for `direct`."""
    return eliminated(shifted(a), b)


def positive(a, b, solver="cholesky"):
    """linear_solve of a symmetric positive definite matrix."""
    a = shifted(a)
    small = 100 * float(jnp.finfo(a.dtype).eps)
    chosen = lx.Cholesky() if solver == "cholesky" else lx.CG(rtol=small, atol=small)
    return lx.linear_solve(lx.MatrixLinearOperator(a @ a.T, lx.positive_semidefinite_tag), b, chosen).value


def plain_positive(a, b):
    """The reference for `positive`."""
    a = shifted(a)
    return eliminated(a @ a.T, b)


def triangular(a, b, lower=True):
    """linear_solve of a triangular matrix. The tag promises that the other triangle is zero."""
    tag = lx.lower_triangular_tag if lower else lx.upper_triangular_tag
    a = (jnp.tril if lower else jnp.triu)(shifted(a))
    return lx.linear_solve(lx.MatrixLinearOperator(a, tag), b, lx.Triangular()).value


def plain_triangular(a, b, lower=True):
    """The reference for `triangular`."""
    return eliminated((jnp.tril if lower else jnp.triu)(shifted(a)), b)


def tridiagonal(middle, above, below, b):
    """linear_solve of a tridiagonal matrix. middle, b: (N,); above, below: (N − 1,)."""
    operator = lx.TridiagonalLinearOperator(middle, below, above)
    return lx.linear_solve(operator, b, lx.Tridiagonal()).value


def plain_tridiagonal(middle, above, below, b):
    """The reference for `tridiagonal`."""
    return eliminated(jnp.diag(middle) + jnp.diag(above, 1) + jnp.diag(below, -1), b)


def least_squares(a, b):
    """linear_solve of a tall matrix by QR. a: (M, N), of full rank; b: (M,)."""
    return lx.linear_solve(lx.MatrixLinearOperator(tall(a)), b, lx.QR()).value


def tall(a):
    """A tall matrix that is well conditioned."""
    return a / 4 + 2 * jnp.eye(*a.shape, dtype=a.dtype)


def plain_least_squares(a, b):
    """The reference for `least_squares`: the normal equations."""
    return eliminated(tall(a).T @ tall(a), tall(a).T @ b)


SQUARE = {"a": normal("N N"), "b": normal("N")}
SIZES = {"N": (3, 1, 2)}
WIDE = ("float64", "float32")
"""LAPACK, and so JAX, factorises no matrix of bfloat16."""
general = gradgate.Pair(
    direct,
    reference=plain_direct,
    inputs=SQUARE,
    dims=SIZES,
    options={"solver": tuple(DIRECT)},
    dtypes=WIDE,
    composes=ALL,
    name="lineax_general",
)
definite = gradgate.Pair(
    positive,
    reference=plain_positive,
    inputs=SQUARE,
    dims={"N": (3, 1, 2)},
    options={"solver": ("cholesky", "cg")},
    dtypes=WIDE,
    composes=ALL,
    name="lineax_positive_definite",
    expected={"not_finite": "if the matrix has a NaN, CG takes no step, returns 0 and reports success"},
)
triangles = gradgate.Pair(
    triangular,
    reference=plain_triangular,
    inputs=SQUARE,
    dims=SIZES,
    options={"lower": (True, False)},
    dtypes=WIDE,
    composes=ALL,
    name="lineax_triangular",
)
three_diagonals = gradgate.Pair(
    tridiagonal,
    reference=plain_tridiagonal,
    dims={"N": (3, 2, 5)},
    dtypes=WIDE,
    composes=ALL,
    inputs={"middle": uniform("N", 3, 5), "above": normal("N-1"), "below": normal("N-1"), "b": normal("N")},
    name="lineax_tridiagonal",
)
tall_qr = gradgate.Pair(
    least_squares,
    reference=plain_least_squares,
    inputs={"a": normal("M N"), "b": normal("M")},
    dtypes=WIDE,
    dims={"M": (5, 3, 2), "N": (2, 1)},
    valid=lambda M, N: N <= M,
    composes=ALL,
    name="lineax_least_squares",
)
