# /// script
# dependencies = []
#
# [tool.gradgate]
# home = "https://github.com/google/jaxopt"
# framework = "jax"
# judges = "jax"
# notes = "losses, projections and proximal operators; a flat layout"
# ///
"""jaxopt: losses, a step of optimal transport, and proximal operators of two arrays against plain formulas."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxopt import loss, prox
from jaxopt._src import projection

import gradgate
from gradgate import integers, normal, uniform


def plain_binary(label, logit):
    """The reference for the loss of two classes."""
    return -jax.nn.log_sigmoid(jnp.where(label == 1, logit, -logit))


def classes(label, logits):
    """The logistic losses of rows."""
    return jax.vmap(loss.multiclass_logistic_loss)(label, logits)


def plain_classes(label, logits):
    """The reference for `classes`; the logit of the label is subtracted first."""
    return jax.nn.logsumexp(logits - jnp.take_along_axis(logits, label[:, None], -1), -1)


def columns(x, marginal):
    """The columns of a transport plan for dual potentials, before they are weighed."""
    return projection._max_l2_grad_vmap(x, jnp.exp(marginal), 1.0)


def plain_columns(x, marginal):
    """The reference for `columns`: projections onto the simplex."""
    x = x.T / jnp.exp(marginal)[:, None]
    largest = jnp.cumsum(-jnp.sort(-x, -1), -1)
    level = jnp.max((largest - 1) / jnp.arange(1, x.shape[-1] + 1), -1, keepdims=True)
    return jnp.maximum(x - level, 0)


def lasso(w, b, strength):
    """The proximal operator of the l1 norm of two arrays."""
    return prox.prox_lasso((w, b), strength)


def elastic(w, b):
    """The proximal operator of an elastic net of two arrays."""
    return prox.prox_elastic_net((w, b), (0.3, 0.5))


def plain_lasso(w, b, strength):
    """The reference for `lasso`."""
    return tuple(jnp.where(jnp.abs(one) > strength, one - jnp.sign(one) * strength, 0) for one in (w, b))


def plain_elastic(w, b):
    """The reference for `elastic`."""
    return tuple(one / 1.15 for one in plain_lasso(w, b, 0.3))


def sure(given):
    """The same with logits that are far on the side of the labels."""
    if "logit" in given:
        return given | {"logit": (20 + np.abs(given["logit"])) * np.where(given["label"] == 1, 1, -1)}
    right = np.arange(given["logits"].shape[-1]) == given["label"][:, None]
    return given | {"logits": np.where(right, 20 + np.abs(given["logits"]), given["logits"])}


ROWS, SURE = {"T": (3, 1, 64), "V": (4, 2)}, {"sure": sure}
TWO: dict[str, Any] = {"w": normal("T V"), "b": normal("V")}
binary = gradgate.Pair(
    loss.binary_logistic_loss,
    reference=plain_binary,
    inputs={"label": integers("T", below=2), "logit": normal("T")},
    dims=ROWS,
    regimes=SURE,
)
multiclass = gradgate.Pair(
    classes,
    reference=plain_classes,
    inputs={"label": integers("T", below="V"), "logits": normal("T V")},
    dims=ROWS,
    regimes=SURE,
)
plan = gradgate.Pair(
    columns, reference=plain_columns, inputs={"x": normal("V T"), "marginal": uniform("T", -1.0, 0.0)}, dims=ROWS
)
soft = gradgate.Pair(
    lasso, reference=plain_lasso, inputs={**TWO, "strength": uniform("", 0.3, 0.7)}, dims=ROWS, name="soft"
)
net = gradgate.Pair(elastic, reference=plain_elastic, inputs=TWO, dims=ROWS, name="net")
