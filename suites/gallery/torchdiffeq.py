# /// script
# dependencies = ["torchdiffeq==0.2.5"]
#
# [tool.gradgate]
# home = "https://github.com/rtqichen/torchdiffeq"
# framework = "torch"
# no-deps = true
# seconds = 90
# notes = "steps of a fixed size, differentiated through the solver; the continuous adjoint is not judged yet"
# ///
"""torchdiffeq 0.2.5: fixed steps of odeint against loops in plain PyTorch."""

import torch
import torchdiffeq
from torch import nn

import gradgate
from gradgate import normal

STEP = 0.25


class Field(nn.Module):
    """Dy/dt = tanh(W·y + b)."""

    def __init__(self, w, b):
        super().__init__()
        self.w, self.b = w, b

    def forward(self, t, y):
        """(T, H) to the same."""
        return torch.tanh(y @ self.w + self.b)


def times(y, steps):
    """The ends of the steps."""
    return torch.arange(steps + 1, dtype=y.dtype) * STEP


def solved(y, w, b, method="euler", steps=3):
    """The last state by odeint, differentiated through the solver."""
    return torchdiffeq.odeint(Field(w, b), y, times(y, steps), method=method)[-1]


def plain(y, w, b, method="euler", steps=3):
    """The reference for `solved`."""
    field = Field(w, b)
    for _ in range(steps):
        change = field(0, y)
        if method == "midpoint":
            change = field(0, y + STEP / 2 * change)
        y = y + STEP * change
    return y


INPUTS = {"y": normal("T H"), "w": normal("H H", scale="H**-0.5"), "b": normal("H")}
SIZES = {"T": (3, 1), "H": (4, 1)}
through = gradgate.Pair(
    solved,
    reference=plain,
    name="torchdiffeq_odeint",
    inputs=INPUTS,
    dims=SIZES,
    options={"method": ("euler", "midpoint"), "steps": (3, 1, 8)},
)
