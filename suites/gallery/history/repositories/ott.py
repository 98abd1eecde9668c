# /// script
# dependencies = ["jaxopt==0.8.5", "lineax==0.1.1"]
#
# [tool.gradgate]
# home = "https://github.com/ott-jax/ott"
# framework = "jax"
# judges = "jax"
# no-deps = true
# notes = "costs of optimal transport; a src layout"
# ///
"""ott: costs and their Legendre transforms against plain formulas."""

import jax
import jax.numpy as jnp
from ott.geometry import costs
from ott.math import utils

import gradgate
from gradgate import normal, uniform


def twisted(z, strength):
    """The derivative of the Legendre transform of ½|z|² + strength·|z|₁."""
    return jax.grad(costs.ElasticL1(scaling_reg=strength).h_legendre)(z)


def plain_twisted(z, strength):
    """The reference for `twisted`: what is below the strength becomes 0."""
    return jnp.where(jnp.abs(z) > strength, z - jnp.sign(z) * strength, 0.0)


def distance(x, y):
    """The squared distance in the norm with p = 3."""
    return costs.SqPNorm(p=3.0)(x, y)


def plain_distance(x, y):
    """The reference for `distance`."""
    total = jnp.sum(jnp.abs(x - y) ** 3)
    return jnp.where(total > 0, 0.5 * jnp.where(total > 0, total, 1.0) ** (2 / 3), 0.0)


def smallest(x):
    """A smooth minimum."""
    return utils.softmin(x, 0.5, -1)


def plain_smallest(x):
    """The reference for `smallest`."""
    return -0.5 * jax.nn.logsumexp(-x / 0.5, -1)


SIZES = {"D": (3, 1, 64)}
STRENGTH = uniform("", 0.3, 0.7)
twist = gradgate.Pair(
    twisted, reference=plain_twisted, inputs={"z": normal("D"), "strength": STRENGTH}, dims=SIZES, name="twist"
)
strength = gradgate.Pair(
    twisted,
    reference=plain_twisted,
    inputs={"z": normal("D", gradient=False), "strength": STRENGTH},
    dims=SIZES,
    name="strength",
)
SAME = "at x = y, the rule of `norm` gives the norm of ones as the value, so value_and_grad gives that value"
cost = gradgate.Pair(
    distance,
    reference=plain_distance,
    inputs={"x": normal("D"), "y": normal("D")},
    dims=SIZES,
    expected={"gradient_exact": SAME},
)
softmin = gradgate.Pair(smallest, reference=plain_smallest, inputs={"x": normal("T D")}, dims={**SIZES, "T": (2,)})
