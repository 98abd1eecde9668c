# /// script
# dependencies = ["lineax==0.1.1"]
#
# [tool.gradgate]
# home = "https://github.com/patrick-kidger/lineax"
# framework = "jax"
# judges = "lineax"
# no-deps = true
# notes = "linear solves and operators; a flat layout"
# ///
"""lineax: a Jacobian's product and solutions of linear systems against plain formulas."""

from typing import Any

import jax.numpy as jnp
import lineax as lx

import gradgate
from gradgate import normal


def product(x, v, w):
    """The Jacobian of tanh(w x) times v, by backward mode."""
    return lx.JacobianLinearOperator(lambda x, args: jnp.tanh(w @ x), x, jac="bwd").mv(v)


def linear(x, v, w):
    """As `product`, by an operator that was made linear once."""
    return lx.linearise(lx.JacobianLinearOperator(lambda x, args: jnp.tanh(w @ x), x, jac="bwd")).mv(v)


def plain_product(x, v, w):
    """The reference for both."""
    return (1 - jnp.tanh(w @ x) ** 2) * (w @ v)


def matrix(a):
    """A matrix that is far from singular."""
    return 3 * jnp.eye(len(a), dtype=a.dtype) + a


def solved(a, b, solver="LU"):
    """The solution of a linear system."""
    return lx.linear_solve(lx.MatrixLinearOperator(matrix(a)), b, solver=getattr(lx, solver)()).value


def plain_solved(a, b, solver="LU"):
    """The reference for `solved`."""
    return jnp.linalg.solve(matrix(a), b)


SIZES = {"N": (3, 1, 32)}
MOVED = {"x": normal("N"), "v": normal("N"), "w": normal("N N", scale="N**-0.5")}
SOLVED: dict[str, Any] = {
    "reference": plain_solved,
    "inputs": {"a": normal("N N", scale="0.5*N**-0.5"), "b": normal("N")},
    "dims": SIZES,
    "dtypes": ("float64", "float32"),  # no decomposition of JAX takes others
    "expected": {"not_finite": "a solve raises if its solution is not finite"},
}
jacobian = gradgate.Pair(product, reference=plain_product, inputs=MOVED, dims=SIZES, name="jacobian")
linearised = gradgate.Pair(linear, reference=plain_product, inputs=MOVED, dims=SIZES, name="linearised")
lu = gradgate.Pair(solved, options={"solver": ("LU",)}, name="lu", **SOLVED)
qr = gradgate.Pair(solved, options={"solver": ("QR",)}, name="qr", **SOLVED)
