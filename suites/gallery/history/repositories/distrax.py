# /// script
# dependencies = [
#     "tfp-nightly==0.26.0.dev20261027", "chex==0.1.92", "toolz==1.2.0", "cloudpickle==3.1.3", "decorator==5.3.1",
#     "dm-tree==0.1.10", "gast==0.7.0", "six==1.17.0", "wrapt==2.5.2",
# ]
#
# [tool.gradgate]
# home = "https://github.com/google-deepmind/distrax"
# framework = "jax"
# judges = "jax"
# no-deps = true
# notes = "probability distributions; a flat layout"
# ///
"""distrax: entropies, divergences, products and log probabilities against plain formulas."""

from typing import Any

import distrax
import jax
import jax.numpy as jnp
import numpy as np
from distrax._src.utils import math

import gradgate
from gradgate import normal, uniform


def entropy(logits):
    """The entropy of a categorical distribution."""
    return distrax.Categorical(logits=logits).entropy()


def divergence(logits, other):
    """The divergence of a categorical distribution from another."""
    return distrax.Categorical(logits=logits).kl_divergence(distrax.Categorical(logits=other))


def logs(logits):
    """Logarithms of probabilities that are finite where a category is left out, and the probabilities."""
    kept = logits > -jnp.inf
    finite = jnp.where(kept, logits, 0)
    found = finite - jax.nn.logsumexp(finite, -1, where=kept, keepdims=True)
    return found, jnp.where(kept, jnp.exp(found), 0)


def plain_entropy(logits):
    """The reference for `entropy`."""
    found, chances = logs(logits)
    return -jnp.sum(chances * found, -1)


def plain_divergence(logits, other):
    """The reference for `divergence`."""
    found, chances = logs(logits)
    return jnp.sum(chances * (found - logs(other)[0]), -1)


def plain_power(x, y):
    """The reference for the power of a positive number."""
    return jnp.exp(y * jnp.log(x))


def quantized(value, loc, scale):
    """The log probability of an integer, of a rounded logistic distribution."""
    scale = jnp.exp(scale)
    return distrax.Quantized(distrax.Logistic(loc, scale)).log_prob(jnp.round(value))


def plain_quantized(value, loc, scale):
    """The reference for `quantized`: with the logistic function s, log(s(b) - s(a)) without a difference of values."""
    scale = jnp.exp(scale)
    b = (jnp.round(value) - loc) / scale
    return jax.nn.log_sigmoid(b) + jax.nn.log_sigmoid(1 / scale - b) + jnp.log(-jnp.expm1(-1 / scale))


def masked(given):
    """The same with a category that is left out."""
    return given | {"logits": np.where(np.arange(given["logits"].shape[-1]) == 0, -np.inf, given["logits"])}


def zeros(given):
    """The same with factors and exponents of 0."""
    return given | {"y": np.where(np.arange(given["y"].shape[-1]) % 2 == 0, 0, given["y"])}


LOGITS, SIZES = normal("T V"), {"N": (3, 1, 64)}
MASKED: dict[str, Any] = {"dims": {"T": (3, 1, 64), "V": (4, 2)}, "regimes": {"masked": masked}}
certain = gradgate.Pair(entropy, reference=plain_entropy, inputs={"logits": LOGITS}, name="certain", **MASKED)
kl = gradgate.Pair(divergence, reference=plain_divergence, inputs={"logits": LOGITS, "other": LOGITS}, **MASKED)
product = gradgate.Pair(
    distrax.multiply_no_nan,
    reference=lambda x, y: x * y,
    inputs={"x": normal("N"), "y": normal("N")},
    dims=SIZES,
    regimes={"zeros": zeros},
)
power = gradgate.Pair(
    math.power_no_nan,
    reference=plain_power,
    inputs={"x": uniform("N", 0.5, 2.0), "y": normal("N")},
    dims=SIZES,
    regimes={"zeros": zeros},
    expected={"not_finite": "an exponent of 0 gives 1 for every base, NaN too"},
)
rounded = gradgate.Pair(
    quantized,
    reference=plain_quantized,
    inputs={"value": normal("N", scale=3.0, gradient=False), "loc": normal("N"), "scale": normal("N")},
    dims=SIZES,
    regimes={"far": lambda given: given | {"value": 10 * given["value"]}},
)
