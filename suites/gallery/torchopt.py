# /// script
# dependencies = ["torchopt==0.7.3", "optree==0.20.0", "graphviz==0.21"]
#
# [tool.gradgate]
# home = "https://github.com/metaopt/torchopt"
# framework = "torch"
# no-deps = true
# seconds = 250
# ///
"""torchopt 0.7.3: three steps of each differentiable optimiser against its update rule."""

import torch
import torchopt

import gradgate
from gradgate import normal

RATE = 0.1
ROUNDED = "the step count is an integer tensor, so the bias correction or rate is computed in float32, in float64, too"
DROPPED = "the backward pass of the fused operators divides by the update, as if eps were 0"
HIDDEN = "torch.where(sum > 0, …, 0) replaces NaN by a step of 0"


def run(optimizer, theta, grads):
    """Parameters after the steps of an optimiser of torchopt; theta: (H,), grads: (3, H)."""
    theta = {"w": theta}
    state = optimizer.init(theta)
    for grad in grads:
        updates, state = optimizer.update({"w": grad}, state, params=theta, inplace=False)
        theta = torchopt.apply_updates(theta, updates, inplace=False)
    return theta["w"]


def sgd(theta, grads, nesterov=False):
    """SGD with momentum."""
    return run(torchopt.sgd(RATE, momentum=0.9, nesterov=nesterov), theta, grads)


def plain_sgd(theta, grads, nesterov=False):
    """Trace m ← 0.9·m + g; the step is m, or g + 0.9·m."""
    m = 0
    for g in grads:
        m = 0.9 * m + g
        theta = theta - RATE * (g + 0.9 * m if nesterov else m)
    return theta


def adam(theta, grads, eps=1e-8, decay=0.0):
    """Adam."""
    return run(torchopt.adam(RATE, eps=eps, weight_decay=decay), theta, grads)


def accelerated_adam(theta, grads, eps=1e-8, decay=0.0):
    """Adam with its fused operators, whose backward pass is written by hand."""
    return run(torchopt.adam(RATE, eps=eps, weight_decay=decay, use_accelerated_op=True), theta, grads)


def adamw(theta, grads, eps=1e-8, decay=0.1):
    """Adam with decoupled weight decay."""
    return run(torchopt.adamw(RATE, eps=eps, weight_decay=decay), theta, grads)


def plain_adam(theta, grads, eps=1e-8, decay=0.0, decoupled=False):
    """Kingma and Ba, algorithm 1."""
    m = v = 0
    for t, g in enumerate(grads, 1):
        g = g if decoupled else g + decay * theta
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        step = m / (1 - 0.9**t) / ((v / (1 - 0.999**t)).sqrt() + eps)
        theta = theta - RATE * (step + decay * theta if decoupled else step)
    return theta


def plain_adamw(theta, grads, eps=1e-8, decay=0.1):
    """Loshchilov and Hutter, with the rate as the multiplier."""
    return plain_adam(theta, grads, eps, decay, True)


def rmsprop(theta, grads, eps=1e-8, centered=False):
    """RMSProp."""
    return run(torchopt.rmsprop(RATE, alpha=0.9, eps=eps, centered=centered), theta, grads)


def plain_rmsprop(theta, grads, eps=1e-8, centered=False):
    """As in `torch.optim.RMSprop`: eps is added to the root."""
    m = v = 0
    for g in grads:
        m, v = 0.9 * m + 0.1 * g, 0.9 * v + 0.1 * g**2
        theta = theta - RATE * g / ((v - m**2 if centered else v).sqrt() + eps)
    return theta


def adagrad(theta, grads, eps=1e-10, lr_decay=0.0):
    """Adagrad."""
    return run(torchopt.adagrad(RATE, eps=eps, lr_decay=lr_decay), theta, grads)


def plain_adagrad(theta, grads, eps=1e-10, lr_decay=0.0):
    """As in `torch.optim.Adagrad`: eps is added to the root."""
    v = 0
    for t, g in enumerate(grads):
        v = v + g**2
        theta = theta - RATE / (1 + t * lr_decay) * g / (v.sqrt() + eps)
    return theta


def adadelta(theta, grads, eps=1e-6):
    """Adadelta."""
    return run(torchopt.adadelta(1.0, rho=0.9, eps=eps), theta, grads)


def plain_adadelta(theta, grads, eps=1e-6):
    """Zeiler, algorithm 1."""
    v = u = torch.zeros_like(theta)
    for g in grads:
        v = 0.9 * v + 0.1 * g**2
        step = ((u + eps) / (v + eps)).sqrt() * g
        u = 0.9 * u + 0.1 * step**2
        theta = theta - step
    return theta


def adamax(theta, grads, eps=1e-8):
    """Adamax."""
    return run(torchopt.adamax(RATE, eps=eps), theta, grads)


def plain_adamax(theta, grads, eps=1e-8):
    """Kingma and Ba, algorithm 2, with eps as in `torch.optim.Adamax`: u ← max(0.999·u, |g| + eps)."""
    m = u = torch.zeros_like(theta)
    for t, g in enumerate(grads, 1):
        m, u = 0.9 * m + 0.1 * g, torch.maximum(0.999 * u, g.abs() + eps)
        theta = theta - RATE / (1 - 0.9**t) * m / u
    return theta


INPUTS = {"theta": normal("H"), "grads": normal("3 H")}
SIZES = {"H": (3, 1, 17)}
SMALL = {"small": lambda given: given | {"grads": 1e-3 * given["grads"]}}


DIGITS = dict.fromkeys(("outputs", "gradient_float64", "stability", "autograd"), ROUNDED)
MORE_DIGITS = DIGITS | {"gradient_float32": ROUNDED}
EXPECTED = dict.fromkeys(("gradient_exact", "gradient_float64", "gradient_float32", "stability"), DROPPED)


def _pair(function, reference, name, **how):
    return gradgate.Pair(function, reference=reference, name=name, inputs=INPUTS, dims=SIZES, regimes=SMALL, **how)


momentum = _pair(sgd, plain_sgd, "torchopt_sgd", options={"nesterov": (False, True)})
EPS = {"eps": (1e-8, 1e-3), "decay": (0.0, 0.1)}
adam_pair = _pair(adam, plain_adam, "torchopt_adam", options=EPS, expected=MORE_DIGITS)
accelerated = _pair(
    accelerated_adam, plain_adam, "torchopt_adam_accelerated", options=EPS, expected={"outputs": ROUNDED, **EXPECTED}
)
decoupled = _pair(
    adamw, plain_adamw, "torchopt_adamw", options={"eps": (1e-8, 1e-3), "decay": (0.1,)}, expected=MORE_DIGITS
)
rms = _pair(rmsprop, plain_rmsprop, "torchopt_rmsprop", options={"eps": (1e-8, 1e-3), "centered": (False, True)})
sums = _pair(
    adagrad,
    plain_adagrad,
    "torchopt_adagrad",
    options={"eps": (1e-10, 1e-3), "lr_decay": (0.0, 0.1)},
    expected=DIGITS | {"not_finite": HIDDEN},
)
delta = _pair(adadelta, plain_adadelta, "torchopt_adadelta", options={"eps": (1e-6, 1e-3)})
maximum = _pair(adamax, plain_adamax, "torchopt_adamax", options={"eps": (1e-8, 1e-3)})
