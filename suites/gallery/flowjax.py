# /// script
# dependencies = ["flowjax==19.1.2", "paramax==0.0.5", "lineax==0.1.1"]
#
# [tool.gradgate]
# home = "https://github.com/danielward27/flowjax"
# framework = "jax"
# seconds = 150
# ///
"""Bijections of flowjax 19.1.2: values, inverses and log determinants, against formulas written out."""

import os

os.environ["EQX_ON_ERROR"] = "nan"  # a failure is NaN in place of an exception; equinox reads this when it is imported

import equinox as eqx
import jax
import jax.numpy as jnp
from flowjax import bijections
from paramax import unwrap

import gradgate
from gradgate import normal

ALL = ("jit", "vmap", "second_order")


def both(bijection, x, inverse):
    """The values and the log determinant, of the bijection or of its inverse."""
    return (bijection.inverse_and_log_det if inverse else bijection.transform_and_log_det)(x)


def affine(x, loc, scale, inverse=False):
    """Affine."""
    return both(unwrap(bijections.Affine(loc, jnp.exp(scale))), x, inverse)


def plain_affine(x, loc, scale, inverse=False):
    """The reference for `affine`."""
    return ((x - loc) * jnp.exp(-scale), -scale.sum()) if inverse else (x * jnp.exp(scale) + loc, scale.sum())


def triangular(x, loc, a, inverse=False):
    """TriangularAffine; the lower triangle of a, its diagonal positive."""
    lower = jnp.tril(a, -1) / 2 + jnp.diag(jnp.exp(jnp.diag(a)))
    return both(unwrap(bijections.TriangularAffine(loc, lower)), x, inverse)


def plain_triangular(x, loc, a, inverse=False):
    """The reference for `triangular`."""
    lower, det = jnp.tril(a, -1) / 2 + jnp.diag(jnp.exp(jnp.diag(a))), jnp.diag(a).sum()
    if not inverse:
        return lower @ x + loc, det
    found = []
    for i in range(len(x)):
        found.append((x[i] - loc[i] - sum(lower[i, j] * found[j] for j in range(i))) / lower[i, i])
    return jnp.stack(found), -det


def planar(x, w, u, b):
    """Planar, with tanh; u is constrained by the library so that it is invertible."""
    made = bijections.Planar(jax.random.key(0), dim=len(x))
    made = eqx.tree_at(lambda m: m.params, made, jnp.concatenate([w, u, b]))
    return unwrap(made).transform_and_log_det(x)


def plain_planar(x, w, u, b):
    """The reference for `planar`, its log determinant from the Jacobian's formula."""
    product = w @ u
    u = u + (jnp.logaddexp(0.0, product) - 1 - product) * w / (w @ w)
    inner = w @ x + b[0]
    return x + u * jnp.tanh(inner), jnp.log(jnp.abs(1 + (1 - jnp.tanh(inner) ** 2) * (u @ w)))


with jax.enable_x64(True):
    LEAKY = bijections.LeakyTanh(1.0)


def leaky(x, inverse=False):
    """LeakyTanh beyond 1."""
    found, dets = jax.vmap(lambda x: both(LEAKY, x, inverse))(x)
    return found, dets.sum()


def plain_leaky(x, inverse=False):
    """The reference for `leaky`: tanh, continued by its tangents beyond −1 and 1."""
    edge = jnp.tanh(jnp.ones((), x.dtype))
    slope = 1 - edge**2
    if inverse:
        within = jnp.abs(x) < edge
        safe = jnp.where(within, x, 0)
        found = jnp.where(within, jnp.arctanh(safe), jnp.sign(x) * ((jnp.abs(x) - edge) / slope + 1))
        return found, -jnp.log(jnp.where(within, 1 - safe**2, slope)).sum()
    within = jnp.abs(x) < 1
    found = jnp.where(within, jnp.tanh(x), jnp.sign(x) * (edge + slope * (jnp.abs(x) - 1)))
    return found, jnp.log(jnp.where(within, 1 - jnp.tanh(x) ** 2, slope)).sum()


FOLLOWING = ("outputs", "gradient_exact", "gradient_float64", "gradient_float32", "cotangents")
TWICE = "the constraint of u takes the logarithm twice; the appendix that it cites takes it once"
WAYS = {"inverse": (False, True)}
affine_pair = gradgate.Pair(
    affine,
    reference=plain_affine,
    dims={"N": (3, 1)},
    options=WAYS,
    composes=ALL,
    name="flowjax_affine",
    inputs={"x": normal("N"), "loc": normal("N"), "scale": normal("N")},
    dtypes=("float64", "float32"),
)
triangular_pair = gradgate.Pair(
    triangular,
    reference=plain_triangular,
    dims={"N": (3, 1)},
    options=WAYS,
    composes=ALL,
    name="flowjax_triangular",
    inputs={"x": normal("N"), "loc": normal("N"), "a": normal("N N")},
    dtypes=("float64", "float32"),
)
planar_pair = gradgate.Pair(
    planar,
    reference=plain_planar,
    dims={"N": (3, 2)},
    composes=("jit", "vmap"),
    name="flowjax_planar",
    inputs={"x": normal("N"), "w": normal("N"), "u": normal("N"), "b": normal("1")},
    dtypes=("float64", "float32"),
    expected=dict.fromkeys(FOLLOWING, TWICE),
)
leaky_pair = gradgate.Pair(
    leaky,
    reference=plain_leaky,
    dims={"N": (3, 1)},
    options=WAYS,
    composes=ALL,
    name="flowjax_leaky_tanh",
    inputs={"x": normal("N")},
    dtypes=("float64", "float32"),
)
