# /// script
# dependencies = ["optimistix==0.1.0", "lineax==0.1.1"]
#
# [tool.gradgate]
# home = "https://github.com/patrick-kidger/optimistix"
# framework = "jax"
# seconds = 240
# ///
"""Root finding, fixed points and least squares of optimistix 0.1.0, by both adjoints, against closed forms."""

import os

os.environ["EQX_ON_ERROR"] = "nan"  # a failure is NaN in place of an exception; equinox reads this when it is imported

import jax.numpy as jnp
import lineax as lx
import optimistix as optx

import gradgate
from gradgate import normal

ADJOINTS = {"implicit": optx.ImplicitAdjoint(lx.LU()), "recursive": optx.RecursiveCheckpointAdjoint()}


def small(x):
    """A tolerance: in float64 one that 40 digits need, and that floats reach only by chance."""
    return dict.fromkeys(("rtol", "atol"), 1e-45 if x.dtype == jnp.float64 else 1e-12)


def value(found):
    """The solution, or NaN if the solver reports another failure than that `small` was not reached."""
    fine = (found.result == optx.RESULTS.successful) | (found.result == optx.RESULTS.nonlinear_max_steps_reached)
    return found.value * jnp.where(fine, 1.0, jnp.nan).astype(found.value.dtype)


def shifted(a):
    """A matrix that is well conditioned; a: (N, N), normal."""
    return 3 * jnp.eye(len(a), dtype=a.dtype) + jnp.tanh(a) / len(a)


def eliminated(a, b):
    """The solution of a·x = b by Gauss's elimination without pivots. a: (N, N); b: (N,)."""
    rows = [jnp.append(a[i], b[i]) for i in range(len(b))]
    for i in range(len(rows)):
        pivot = rows[i] / rows[i][i]
        rows = [pivot if j == i else row - row[i] * pivot for j, row in enumerate(rows)]
    return jnp.stack([row[-1] for row in rows])


def root(a, b, adjoint="implicit"):
    """The root x of sinh(a·x) = b by Newton's method."""
    chosen = optx.Newton(**small(b), linear_solver=lx.LU())
    found = optx.root_find(
        lambda x, given: jnp.sinh(shifted(given[0]) @ x) - given[1],
        chosen,
        jnp.zeros_like(b),
        (a, b),
        max_steps=24,
        throw=False,
        adjoint=ADJOINTS[adjoint],
    )
    return value(found)


def plain_root(a, b):
    """The reference for `root`."""
    return eliminated(shifted(a), jnp.arcsinh(b))


def fixed_point(a, b, adjoint="implicit"):
    """The fixed point of a contraction by about 1/100."""
    found = optx.fixed_point(
        lambda x, given: jnp.tanh(given[0]) @ x / 50 / len(given[1]) + given[1],
        optx.FixedPointIteration(**small(b)),
        jnp.zeros_like(b),
        (a, b),
        max_steps=32,
        throw=False,
        adjoint=ADJOINTS[adjoint],
    )
    return value(found)


def plain_fixed_point(a, b):
    """The reference for `fixed_point`."""
    return eliminated(jnp.eye(len(b), dtype=b.dtype) - jnp.tanh(a) / 50 / len(b), b)


def least_squares(a, b, adjoint="implicit"):
    """The minimum of |tall(a)·x − b|² by Gauss-Newton. a: (M, N); b: (M,)."""
    near = 100 * float(jnp.finfo(b.dtype).eps)
    found = optx.least_squares(
        lambda x, given: tall(given[0]) @ x - given[1],
        optx.GaussNewton(near, near, linear_solver=lx.QR()),
        jnp.zeros_like(a[0]),
        (a, b),
        max_steps=8,
        adjoint=ADJOINTS[adjoint],
    )
    return value(found)


def tall(a):
    """A tall matrix that is well conditioned."""
    return jnp.tanh(a) / 4 + 2 * jnp.eye(*a.shape, dtype=a.dtype)


def plain_least_squares(a, b):
    """The reference for `least_squares`: the normal equations."""
    return eliminated(tall(a).T @ tall(a), tall(a).T @ b)


WIDE = ("float64", "float32")
SQUARE = {"a": normal("N N"), "b": normal("N")}
OPTIONS = {"adjoint": tuple(ADJOINTS)}
newton = gradgate.Pair(
    root,
    reference=plain_root,
    inputs=SQUARE,
    dims={"N": (2, 1)},
    options=OPTIONS,
    dtypes=WIDE,
    composes=("jit", "vmap"),
    name="optimistix_newton",
)
fixed = gradgate.Pair(
    fixed_point,
    reference=plain_fixed_point,
    inputs=SQUARE,
    dims={"N": (2, 1, 3)},
    options=OPTIONS,
    dtypes=WIDE,
    composes=("jit", "vmap"),
    name="optimistix_fixed_point",
)
gauss_newton = gradgate.Pair(
    least_squares,
    reference=plain_least_squares,
    inputs={"a": normal("M N"), "b": normal("M")},
    dtypes=WIDE,
    dims={"M": (3, 2), "N": (2, 1)},
    options=OPTIONS,
    composes=("jit", "vmap"),
    name="optimistix_gauss_newton",
)
