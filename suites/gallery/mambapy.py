# /// script
# dependencies = ["mambapy==1.2.0"]
#
# [tool.gradgate]
# home = "https://github.com/alxndrTL/mamba.py"
# framework = "torch"
# no-deps = true
# seconds = 120
# ///
"""mambapy 1.2.0: its parallel scan, with a backward pass written by hand, against a loop."""

import torch
from mambapy import pscan as scans

import gradgate
from gradgate import normal, uniform


def scan(decay, drive):
    """H[t] = decay[t]·h[t-1] + drive[t]; (B, T, D, N) each."""
    return scans.pscan(decay, drive)


def plain_scan(decay, drive):
    """The reference for `scan`."""
    state, states = torch.zeros_like(drive[:, 0]), []
    for t in range(drive.shape[1]):
        state = decay[:, t] * state + drive[:, t]
        states.append(state)
    return torch.stack(states, 1)


def selective(delta, a, b, c, x):
    """The scan within a Mamba block; delta, x: (B, T, D), a: (D, N), b, c: (B, T, N)."""
    decay = (delta[..., None] * a).exp()
    states = scans.pscan(decay, (delta * x)[..., None] * b[:, :, None])
    return (states @ c[..., None])[..., 0]


def plain_selective(delta, a, b, c, x):
    """The reference for `selective`."""
    states = plain_scan((delta[..., None] * a).exp(), (delta * x)[..., None] * b[:, :, None])
    return (states * c[:, :, None]).sum(-1)


LENGTHS = (5, 1, 2, 3, 4, 8, 17, 33)
AT = {"B": 1, "D": 4, "N": 4}
SIZES = {"T": (64, 128, 256, 512, 1024)}
parallel = gradgate.Pair(
    scan,
    reference=plain_scan,
    name="mambapy_pscan",
    dims={"B": (1, 2), "T": LENGTHS, "D": (2, 1), "N": (3, 1)},
    inputs={"decay": uniform("B T D N", 0.1, 1.0), "drive": normal("B T D N")},
    claims=[
        gradgate.grows("residual_bytes", T=1, sizes=SIZES, at=AT),
        gradgate.at_most("residual_bytes", of_reference=0.5, at={**AT, "T": 1024}),
    ],
)
block = gradgate.Pair(
    selective,
    reference=plain_selective,
    name="mambapy_selective",
    dims={"T": LENGTHS, "D": (2, 1), "N": (3, 1)},
    inputs={
        "delta": uniform("1 T D"),
        "a": uniform("D N", -2.0, -0.1),
        "b": normal("1 T N"),
        "c": normal("1 T N"),
        "x": normal("1 T D"),
    },
)
