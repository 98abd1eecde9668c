# /// script
# dependencies = []
#
# [tool.gradgate]
# home = "https://github.com/google-deepmind/optax"
# framework = "jax"
# judges = "optax"
# seconds = 300
# ///
"""Losses, projections and optimisers of optax 0.2.8, the latter differentiated through, against plain formulas."""

import functools

import jax
import jax.numpy as jnp
import optax

import gradgate
from gradgate import constant, integers, normal, uniform

ALL = ("jit", "vmap", "second_order")


def loss(logits, target, kind="cross_entropy"):
    """Losses for each row. logits, target: (T, V)."""
    soft = jax.nn.softmax(target)
    if kind == "cross_entropy":
        return optax.softmax_cross_entropy(logits, soft)
    if kind == "binary":
        return optax.sigmoid_binary_cross_entropy(logits, soft)
    if kind == "focal":
        return optax.sigmoid_focal_loss(logits, soft, alpha=0.25, gamma=2.0)
    if kind == "log_cosh":
        return optax.log_cosh(logits, target)
    if kind == "huber":
        return optax.huber_loss(logits, target, delta=0.5)
    if kind == "cosine":
        return optax.cosine_distance(logits, target)
    return optax.kl_divergence(jax.nn.log_softmax(logits), soft)


def plain_loss(logits, target, kind="cross_entropy"):
    """The reference for `loss`."""
    soft = jax.nn.softmax(target)
    logs = logits - jax.nn.logsumexp(logits, -1, keepdims=True)
    if kind == "cross_entropy":
        return -jnp.sum(soft * logs, -1)
    entropy = soft * jnp.logaddexp(0, -logits) + (1 - soft) * jnp.logaddexp(0, logits)
    if kind == "binary":
        return entropy
    if kind == "focal":
        p = 1 / (1 + jnp.exp(-logits))
        return (0.25 * soft + 0.75 * (1 - soft)) * entropy * (p + soft - 2 * p * soft) ** 2
    error = logits - target
    if kind == "log_cosh":
        return jnp.logaddexp(error, -error) - jnp.log(jnp.asarray(2.0, error.dtype))
    if kind == "huber":
        return jnp.where(jnp.abs(error) < 0.5, error**2 / 2, 0.5 * jnp.abs(error) - 0.125)
    if kind == "cosine":
        lengths = jnp.sqrt(jnp.sum(logits**2, -1) * jnp.sum(target**2, -1))
        return 1 - jnp.sum(logits * target, -1) / lengths
    return jnp.sum(soft * (jnp.log(soft) - logs), -1)


def integer_loss(logits, labels):
    """Softmax cross entropy with integer labels."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels)


def plain_integer_loss(logits, labels):
    """The reference for `integer_loss`."""
    return jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, labels[:, None], -1)[:, 0]


def simplex(x, scale):
    """The projection onto the simplex whose numbers add up to exp(scale)."""
    return optax.projections.projection_simplex(x, jnp.exp(scale))


def plain_simplex(x, scale):
    """The reference for `simplex`: of all candidates for the threshold, the largest."""
    ordered = -jnp.sort(-x)
    candidates = [(ordered[: k + 1].sum() - jnp.exp(scale)) / (k + 1) for k in range(len(x))]
    return jnp.maximum(x - functools.reduce(jnp.maximum, candidates), 0)


def ball(x, scale):
    """The projection onto the ball of the Euclidean norm."""
    return optax.projections.projection_l2_ball(x, jnp.exp(scale))


def plain_ball(x, scale):
    """The reference for `ball`."""
    norm = jnp.sqrt(jnp.sum(x * x))
    return jnp.where(norm > jnp.exp(scale), x * (jnp.exp(scale) / norm), x)


OPTIMISERS = {
    "sgd": lambda rate: optax.sgd(rate, momentum=0.5),
    "nesterov": lambda rate: optax.sgd(rate, momentum=0.5, nesterov=True),
    "adam": lambda rate: optax.adam(rate, b1=0.5, b2=0.75, eps=0.125),
    "adamw": lambda rate: optax.adamw(rate, b1=0.5, b2=0.75, eps=0.125, weight_decay=0.25),
    "rmsprop": lambda rate: optax.rmsprop(rate, decay=0.5, eps=0.125),
    "adagrad": lambda rate: optax.adagrad(rate, initial_accumulator_value=0.25, eps=0.125),
    "lion": lambda rate: optax.lion(rate, b1=0.5, b2=0.75, weight_decay=0.25),
}


def trained(w, x, rate, optimiser="adam"):
    """Parameters after three steps on sum(sin(x·w)), by an optimiser of optax."""
    chosen = OPTIMISERS[optimiser](rate)
    state = chosen.init(w)
    for row in x:
        change, state = chosen.update(jax.grad(lambda w, row=row: jnp.sum(jnp.sin(row * w)))(w), state, w)
        w = optax.apply_updates(w, change)
    return w


def plain_trained(w, x, rate, optimiser="adam"):
    """The reference for `trained`: the optimisers' formulas written out."""
    m, v = jnp.zeros_like(w), jnp.zeros_like(w) + (0.25 if optimiser == "adagrad" else 0)
    for t, row in enumerate(x, 1):
        g = row * jnp.cos(row * w)
        if optimiser in ("sgd", "nesterov"):
            m = g + 0.5 * m
            step = m if optimiser == "sgd" else g + 0.5 * m
        elif optimiser in ("adam", "adamw"):
            m, v = 0.5 * m + 0.5 * g, 0.75 * v + 0.25 * g * g
            step = m / (1 - 0.5**t) / (jnp.sqrt(v / (1 - 0.75**t)) + 0.125)
            step = step + 0.25 * w if optimiser == "adamw" else step
        elif optimiser == "rmsprop":
            v = 0.5 * v + 0.5 * g * g
            step = g / jnp.sqrt(v + 0.125)
        elif optimiser == "adagrad":
            v = v + g * g
            step = g / jnp.sqrt(v + 0.125)
        else:
            step = jnp.sign(0.5 * m + 0.5 * g) + 0.25 * w
            m = 0.75 * m + 0.25 * g
        w = w - rate * step
    return w


LOGITS = {"logits": normal("T V"), "target": normal("T V")}
ROWS = {"T": (3, 1), "V": (4, 2)}
CONFIDENT = {"confident": lambda given: given | {"logits": 30 * given["logits"]}}
losses = gradgate.Pair(
    loss,
    reference=plain_loss,
    inputs=LOGITS,
    dims=ROWS,
    composes=ALL,
    name="optax_losses",
    options={"kind": ("cross_entropy", "binary", "focal", "log_cosh", "huber", "cosine", "kl")},
)
labelled = gradgate.Pair(
    integer_loss,
    reference=plain_integer_loss,
    dims=ROWS,
    composes=ALL,
    name="optax_integer_labels",
    regimes=CONFIDENT,
    inputs={"logits": normal("T V"), "labels": integers("T", below="V")},
)
projection_simplex = gradgate.Pair(
    simplex,
    reference=plain_simplex,
    inputs={"x": normal("N"), "scale": normal("")},
    dims={"N": (4, 1, 7)},
    composes=("jit", "vmap"),
    name="optax_projection_simplex",
    expected={"gradient_bfloat16": "the custom derivative returns bfloat16 for a value that was promoted to float32"},
)
projection_ball = gradgate.Pair(
    ball,
    reference=plain_ball,
    inputs={"x": normal("N"), "scale": normal("")},
    dims={"N": (4, 1, 7)},
    composes=("jit", "vmap"),
    name="optax_projection_l2_ball",
)
meta_gradients = gradgate.Pair(
    trained,
    reference=plain_trained,
    dims={"N": (3, 1)},
    composes=("jit", "vmap"),
    name="optax_meta_gradients",
    inputs={"w": normal("N"), "x": uniform("3 N", 0.5, 1.5), "rate": constant(0.125)},
    options={"optimiser": tuple(OPTIMISERS)},
    dtypes=("float64", "float32"),
)
