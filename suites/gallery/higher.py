# /// script
# dependencies = ["higher==0.2.1"]
#
# [tool.gradgate]
# home = "https://github.com/facebookresearch/higher"
# framework = "torch"
# no-deps = true
# seconds = 180
# notes = "Rprop and RMSprop warn themselves of wrong gradients; Rprop is left out, because its derivative is 0"
# ///
"""higher 0.2.1: three steps of each differentiable optimiser against the update rule of torch.optim."""

import warnings

import higher
import torch

import gradgate
from gradgate import normal

RATE = 0.1
ANOTHER = "eps is added to the root of the moment before its bias correction, as torch.optim.Adam did until PyTorch 1.2"
ROUNDED = "torch.optim.Adagrad now counts its steps in a float32 tensor, so the decayed rate is a float32 number"


def run(kind, theta, grads, **settings):
    """Parameters after the steps of an optimiser; theta: (H,), grads: (3, H)."""
    held = torch.nn.Parameter(theta.detach().clone())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimizer = higher.get_diff_optim(kind([held], **settings), [held])
    with torch.enable_grad():  # it differentiates the loss itself
        theta = theta if theta.requires_grad else theta.detach().requires_grad_()
        for grad in grads:
            [theta] = optimizer.step((grad * theta).sum(), params=[theta])
    return theta


def sgd(theta, grads, nesterov=False, decay=0.0):
    """SGD with momentum."""
    return run(torch.optim.SGD, theta, grads, lr=RATE, momentum=0.9, nesterov=nesterov, weight_decay=decay)


def plain_sgd(theta, grads, nesterov=False, decay=0.0):
    """As in `torch.optim.SGD`."""
    m = 0
    for g in grads:
        g = g + decay * theta
        m = 0.9 * m + g
        theta = theta - RATE * (g + 0.9 * m if nesterov else m)
    return theta


def adam(theta, grads, eps=1e-8, amsgrad=False):
    """Adam."""
    return run(torch.optim.Adam, theta, grads, lr=RATE, eps=eps, amsgrad=amsgrad)


def plain_adam(theta, grads, eps=1e-8, amsgrad=False):
    """As in `torch.optim.Adam`: eps is added to the root of the corrected moment."""
    m = v = largest = torch.zeros_like(theta)
    for t, g in enumerate(grads, 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        largest = torch.maximum(largest, v)
        root = ((largest if amsgrad else v) / (1 - 0.999**t)).sqrt()
        theta = theta - RATE / (1 - 0.9**t) * m / (root + eps)
    return theta


def rmsprop(theta, grads, eps=1e-8, centered=False, momentum=0.0):
    """RMSprop."""
    return run(torch.optim.RMSprop, theta, grads, lr=RATE, alpha=0.9, eps=eps, centered=centered, momentum=momentum)


def plain_rmsprop(theta, grads, eps=1e-8, centered=False, momentum=0.0):
    """As in `torch.optim.RMSprop`."""
    m = v = b = 0
    for g in grads:
        m, v = 0.9 * m + 0.1 * g, 0.9 * v + 0.1 * g**2
        b = momentum * b + g / ((v - m**2 if centered else v).sqrt() + eps)
        theta = theta - RATE * b
    return theta


def adagrad(theta, grads, eps=1e-10, lr_decay=0.0):
    """Adagrad."""
    return run(torch.optim.Adagrad, theta, grads, lr=RATE, eps=eps, lr_decay=lr_decay)


def plain_adagrad(theta, grads, eps=1e-10, lr_decay=0.0):
    """As in `torch.optim.Adagrad`."""
    v = 0
    for t, g in enumerate(grads):
        v = v + g**2
        theta = theta - RATE / (1 + t * lr_decay) * g / (v.sqrt() + eps)
    return theta


def adadelta(theta, grads, eps=1e-6):
    """Adadelta."""
    return run(torch.optim.Adadelta, theta, grads, lr=1.0, rho=0.9, eps=eps)


def plain_adadelta(theta, grads, eps=1e-6):
    """As in `torch.optim.Adadelta`."""
    v = u = torch.zeros_like(theta)
    for g in grads:
        v = 0.9 * v + 0.1 * g**2
        step = ((u + eps) / (v + eps)).sqrt() * g
        u = 0.9 * u + 0.1 * step**2
        theta = theta - step
    return theta


def adamax(theta, grads, eps=1e-8):
    """Adamax."""
    return run(torch.optim.Adamax, theta, grads, lr=RATE, eps=eps)


def plain_adamax(theta, grads, eps=1e-8):
    """As in `torch.optim.Adamax`."""
    m = u = torch.zeros_like(theta)
    for t, g in enumerate(grads, 1):
        m, u = 0.9 * m + 0.1 * g, torch.maximum(0.999 * u, g.abs() + eps)
        theta = theta - RATE / (1 - 0.9**t) * m / u
    return theta


INPUTS = {"theta": normal("H"), "grads": normal("3 H")}
SIZES = {"H": (3, 1, 17)}
SMALL = {"small": lambda given: given | {"grads": 1e-3 * given["grads"]}}


def _pair(function, reference, name, **how):
    return gradgate.Pair(function, reference=reference, name=name, inputs=INPUTS, dims=SIZES, regimes=SMALL, **how)


momentum = _pair(sgd, plain_sgd, "higher_sgd", options={"nesterov": (False, True), "decay": (0.0, 0.1)})
moments = _pair(
    adam,
    plain_adam,
    "higher_adam",
    options={"eps": (1e-8, 1e-3), "amsgrad": (False, True)},
    expected=dict.fromkeys(
        (
            "outputs",
            "gradient_exact",
            "gradient_float64",
            "gradient_float32",
            "gradient_bfloat16",
            "stability",
            "autograd",
        ),
        ANOTHER,
    ),
)
rms = _pair(
    rmsprop,
    plain_rmsprop,
    "higher_rmsprop",
    options={"eps": (1e-8, 1e-3), "centered": (False, True), "momentum": (0.0, 0.5)},
)
sums = _pair(
    adagrad,
    plain_adagrad,
    "higher_adagrad",
    options={"eps": (1e-10, 1e-3), "lr_decay": (0.0, 0.1)},
    expected=dict.fromkeys(("outputs", "gradient_float64", "stability", "autograd"), ROUNDED),
)
delta = _pair(adadelta, plain_adadelta, "higher_adadelta", options={"eps": (1e-6, 1e-3)})
maximum = _pair(adamax, plain_adamax, "higher_adamax", options={"eps": (1e-8, 1e-3)})
