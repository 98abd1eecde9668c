# /// script
# dependencies = ["diffrax==0.7.2", "optimistix==0.1.0", "lineax==0.1.1"]
#
# [tool.gradgate]
# home = "https://github.com/patrick-kidger/diffrax"
# framework = "jax"
# seconds = 300
# limit = 1500
# notes = "ForwardMode has no backward pass, so it is not judged"
# ///
"""The adjoints of diffrax 0.7.2 with steps of constant size, against plain loops over the steps."""

import os

os.environ["EQX_ON_ERROR"] = "nan"  # a failure is NaN in place of an exception; equinox reads this when it is imported

import diffrax
import jax.numpy as jnp

import gradgate
from gradgate import normal

STEP = 0.5


def field(_, y, a):
    """The right-hand side; y: (N,), a: (2, N)."""
    return jnp.sin(a[0] * y + a[1] * jnp.roll(y, 1))


def solved(adjoint, solver, a, y, steps):
    """The state after some steps."""
    found = diffrax.diffeqsolve(
        diffrax.ODETerm(field),
        solver,
        0.0,
        STEP * steps,
        STEP,
        y,
        a,
        adjoint=adjoint,
        max_steps=16,
        saveat=diffrax.SaveAt(t1=True),
    )
    return found.ys[0]


def plain(a, y, steps=4, solver="heun"):
    """The reference: Euler's or Heun's method."""
    for _ in range(steps):
        first = field(0, y, a)
        second = field(0, y + STEP * first, a) if solver == "heun" else first
        y = y + STEP * (first + second) / 2
    return y


SOLVERS = {"euler": diffrax.Euler(), "heun": diffrax.Heun()}


def recursive(a, y, steps=4, solver="heun", checkpoints=None):
    """RecursiveCheckpointAdjoint, with as many checkpoints as it chooses, or fewer."""
    return solved(diffrax.RecursiveCheckpointAdjoint(checkpoints=checkpoints), SOLVERS[solver], a, y, steps)


def direct(a, y, steps=4, solver="heun"):
    """DirectAdjoint."""
    return solved(diffrax.DirectAdjoint(), SOLVERS[solver], a, y, steps)


def backsolve(a, y, steps=4):
    """BacksolveAdjoint, which solves another equation backwards in time."""
    return solved(diffrax.BacksolveAdjoint(), SOLVERS["heun"], a, y, steps)


def long_recursive(a, y):
    """16 steps with 2 checkpoints."""
    found = diffrax.diffeqsolve(
        diffrax.ODETerm(field),
        diffrax.Heun(),
        0.0,
        2.0,
        1 / 8,
        y,
        a,
        max_steps=16,
        adjoint=diffrax.RecursiveCheckpointAdjoint(checkpoints=2),
    )
    return found.ys[0]


def plain_long(a, y):
    """The reference for `long_recursive`."""
    for _ in range(16):
        first = field(0, y, a)
        y = y + (first + field(0, y + first / 8, a)) / 16
    return y


LINEAR = {"a": normal("2 N"), "y": normal("N")}
SIZES = {"N": (2, 1)}
checkpointed = gradgate.Pair(
    recursive,
    reference=plain,
    inputs=LINEAR,
    dims=SIZES,
    composes=("jit", "vmap"),
    name="diffrax_recursive",
    options={"steps": (4, 1), "solver": ("heun", "euler"), "checkpoints": (None, 2)},
)
few_checkpoints = gradgate.Pair(
    long_recursive,
    reference=plain_long,
    inputs=LINEAR,
    dims=SIZES,
    composes=("jit",),
    name="diffrax_few_checkpoints",
    claims=[gradgate.at_most("residual_bytes", of_reference=0.25, at={"N": 64})],
)
directly = gradgate.Pair(
    direct,
    reference=plain,
    inputs=LINEAR,
    dims=SIZES,
    composes=("jit", "vmap", "second_order"),
    options={"steps": (4, 1), "solver": ("heun", "euler")},
    name="diffrax_direct",
)
CONTINUOUS = "it discretises the adjoint equation in place of differentiating the discrete solution"
solved_backwards = gradgate.Pair(
    backsolve,
    reference=plain,
    inputs=LINEAR,
    dims=SIZES,
    composes=("jit",),
    dtypes=("float64", "float32"),
    name="diffrax_backsolve",
    expected=dict.fromkeys(("gradient_exact", "gradient_float64", "gradient_float32"), CONTINUOUS),
    claims=[gradgate.at_most("residual_bytes", of_reference=0.3, at={"N": 64})],
)
