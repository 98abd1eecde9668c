# /// script
# dependencies = ["chex==0.1.92", "toolz==1.2.0"]
#
# [tool.gradgate]
# home = "https://github.com/google-deepmind/optax"
# framework = "jax"
# judges = "jax"
# no-deps = true
# notes = "a flat layout"
# ///
"""optax: losses, a projection and an orthogonalisation against plain formulas."""

import jax
import jax.numpy as jnp
import optax

import gradgate
from gradgate import integers, normal, uniform


def focal(logits, labels):
    """Focal loss of labels from 0 to 1."""
    return optax.losses.sigmoid_focal_loss(logits, labels, alpha=0.25, gamma=0.5)


def plain_focal(logits, labels):
    """The reference for `focal`; the probability of being wrong is kept as a logarithm."""
    right, wrong = jax.nn.log_sigmoid(logits), jax.nn.log_sigmoid(-logits)
    entropy = -labels * right - (1 - labels) * wrong
    inside = jnp.where((labels == 0) | (labels == 1), 0.5, labels)
    mixed = jnp.logaddexp(jnp.log(inside) + wrong, jnp.log1p(-inside) + right)
    missed = jnp.where(labels == 1, wrong, jnp.where(labels == 0, right, mixed))
    return (0.25 * labels + 0.75 * (1 - labels)) * entropy * jnp.exp(0.5 * missed)


def cross_entropy(logits, labels):
    """Cross entropy of labels that are probabilities."""
    return optax.softmax_cross_entropy(logits, labels)


def plain_cross_entropy(logits, labels):
    """The reference for `cross_entropy`; 0 · log 0 is 0."""
    logs = jax.nn.log_softmax(logits)
    return -jnp.sum(jnp.where(labels == 0, 0, labels * jnp.where(labels == 0, 0, logs)), -1)


def labelled(logits, labels):
    """Cross entropy of integer labels."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels)


def plain_labelled(logits, labels):
    """The reference for `labelled`."""
    return jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, labels[:, None], -1)[:, 0]


def ball(x, scale):
    """The projection onto the ball of the Euclidean norm."""
    return optax.projections.projection_l2_ball(x, jnp.exp(scale))


def plain_ball(x, scale):
    """The reference for `ball`."""
    norm = jnp.sqrt(jnp.maximum(jnp.sum(x * x), 1e-30))
    return jnp.where(norm > jnp.exp(scale), x * (jnp.exp(scale) / norm), x)


def orthogonal(x):
    """Five steps of the Newton–Schulz iteration of Muon."""
    from optax.contrib import _muon

    coefficients = jnp.asarray((3.4445, -4.7750, 2.0315), x.dtype)
    return _muon.orthogonalize_via_newton_schulz(x, coefficients, ns_steps=5, eps=0.0)


def plain_orthogonal(x):
    """The reference for `orthogonal`."""
    x = x / jnp.sqrt(jnp.sum(x * x))
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x


def hard(given):
    """The same with labels of 0 and 1, and a logit that is far from them."""
    return given | {"labels": (given["labels"] > 0.5).astype(given["labels"].dtype), "logits": 30 * given["logits"]}


ROWS = {"T": (3, 1, 64), "V": (4, 2)}
SOFT = {"logits": normal("T V"), "labels": uniform("T V", 0.1, 0.9, gradient=False)}
HARD = {"hard": hard}
focal_pair = gradgate.Pair(focal, reference=plain_focal, inputs=SOFT, dims=ROWS, regimes=HARD, name="focal")
soft = gradgate.Pair(cross_entropy, reference=plain_cross_entropy, inputs=SOFT, dims=ROWS, regimes=HARD)
integer = gradgate.Pair(
    labelled, reference=plain_labelled, inputs={"logits": normal("T V"), "labels": integers("T", below="V")}, dims=ROWS
)

projection = gradgate.Pair(
    ball, reference=plain_ball, inputs={"x": normal("N"), "scale": normal("")}, dims={"N": (4, 1, 64)}
)
muon = gradgate.Pair(
    orthogonal, reference=plain_orthogonal, inputs={"x": normal("N M")}, dims={"N": (3, 16), "M": (4, 32)}
)
