# /// script
# dependencies = []
#
# [tool.gradgate]
# home = "https://github.com/rtqichen/torchdiffeq"
# framework = "torch"
# judges = "torch"
# no-deps = true
# notes = "the time of an event, and steps of a fixed size; a flat layout"
# ///
"""torchdiffeq: the time of an event against its formula, and steps of a fixed size against a loop."""

from typing import Any

import torch
import torchdiffeq
from torch import nn

import gradgate
from gradgate import normal, uniform


class Fall(nn.Module):
    """y' = speed, with which y reaches 0; before y's time if the time is reversed."""

    def __init__(self, speed):
        super().__init__()
        self.speed = speed

    def forward(self, t, y):
        """The derivative."""
        return self.speed + 0 * y


class Zero(nn.Module):
    """The event: the first number is 0."""

    def forward(self, t, y):
        """0 at the event."""
        return y[0]


def event(y, speed, reverse_time=False):
    """When the first number of y is 0, and the second one then."""
    fall, begin = Fall(speed if reverse_time else -speed), torch.zeros((), dtype=y.dtype)
    exact = {"atol": 1e-8, "rtol": 1e-8}
    time, states = torchdiffeq.odeint_event(fall, y, begin, event_fn=Zero(), reverse_time=reverse_time, **exact)
    return time, states[-1, 1]


def plain_event(y, speed, reverse_time=False):
    """The reference for `event`."""
    time = y[0] / speed[0]
    return -time if reverse_time else time, y[1] - speed[1] * time


def solved(y, w, method="euler"):
    """The state after three steps of y' = tanh(y·w)."""
    times = 0.25 * torch.arange(4, dtype=y.dtype)
    return torchdiffeq.odeint(lambda t, y: torch.tanh(y @ w), y, times, method=method)[-1]


def plain_solved(y, w, method="euler"):
    """The reference for `solved`."""
    for _ in range(3):
        middle = y if method == "euler" else y + 0.125 * torch.tanh(y @ w)
        y = y + 0.25 * torch.tanh(middle @ w)
    return y


HOW: dict[str, Any] = {
    "expected": {
        "not_finite": "the solver makes its steps smaller until it raises",
        "autograd": "the gradient of an event's time counts as a constant, so its second derivative is wrong",
    },
    "reference": plain_event,
    "inputs": {"y": uniform("N", 0.5, 1.5), "speed": uniform("N", 0.5, 1.5)},
    "dims": {"N": (2,)},
    "dtypes": ("float64",),
    "approximates": gradgate.within(1e-5),
}
forwards = gradgate.Pair(event, name="forwards", options={"reverse_time": (False,)}, **HOW)
backwards = gradgate.Pair(event, name="backwards", options={"reverse_time": (True,)}, **HOW)
steps = gradgate.Pair(
    solved,
    reference=plain_solved,
    inputs={"y": normal("T H"), "w": normal("H H", scale="H**-0.5")},
    dims={"T": (3, 1, 64), "H": (4, 1)},
    options={"method": ("euler", "midpoint")},
)
