# /// script
# dependencies = ["checkpoint-schedules==1.0.4"]
#
# [tool.gradgate]
# home = "https://github.com/firedrakeproject/checkpoint_schedules"
# framework = "jax"
# seconds = 120
# notes = "it makes schedules only, which a small executor follows; PeriodicDiskRevolve prints, and is left out"
# ///
"""Schedules of checkpoint-schedules 1.0.4: an executor that follows them, against plain backprop of a chain."""

import functools
import warnings

import jax
import jax.numpy as jnp

warnings.simplefilter("ignore")  # it warns that Numba is not installed
import checkpoint_schedules as cs  # noqa: E402

import gradgate  # noqa: E402
from gradgate import normal  # noqa: E402

SCHEDULES = {
    "revolve": lambda steps, kept: cs.Revolve(steps, kept),
    "multistage": lambda steps, kept: cs.MultistageCheckpointSchedule(steps, kept, 0),
    "on_disk": lambda steps, kept: cs.MultistageCheckpointSchedule(steps, 0, kept),
    "mixed": lambda steps, kept: cs.MixedCheckpointSchedule(steps, kept),
    "hrevolve": lambda steps, kept: cs.HRevolve(steps, kept, 1),
    "disk_revolve": lambda steps, kept: cs.DiskRevolve(steps, kept),
}
"""Name -> (number of steps, number of checkpoints) -> a schedule."""


def step(a, y):
    """A step of the chain; a, y: (N,)."""
    return jnp.sin(a * y + jnp.roll(y, 1))


def plain(a, y, steps=5):
    """The reference."""
    for _ in range(steps):
        y = step(a, y)
    return y


class Executor:
    """Follows a schedule; it can use only what the schedule has told it to store.

    Attributes:
        stored: (name of the storage, step) -> the state before that step, for a checkpoint.
        work: the state that the next forward step starts from, and the number of that step.
        inputs: step -> the state that its backward step needs.
    """

    def __init__(self, a, y, stored=None):
        self.a, self.work, self.inputs, self.stored = a, (0, y), {}, dict(stored or {})

    def forward(self, action):
        """Steps from n0 to n1, which store what the action says."""
        number, y = self.work
        assert number == action.n0
        if action.write_ics:
            self.stored[action.storage.name, number] = y
        for n in range(action.n0, action.n1):
            if action.write_adj_deps:
                self.inputs[n] = y
                if action.storage != cs.StorageType.WORK:
                    self.stored[action.storage.name, n] = y
            y = step(self.a, y)
        self.work = action.n1, y

    def load(self, action):
        """Copies or moves a checkpoint into the work."""
        y = self.stored[action.from_storage.name, action.n]
        if isinstance(action, cs.Move):
            del self.stored[action.from_storage.name, action.n]
        self.work, self.inputs[action.n] = (action.n, y), y

    def reverse(self, action, da, dy):
        """Backward steps from n1 to n0."""
        for n in range(action.n1 - 1, action.n0 - 1, -1):
            change, dy = jax.vjp(step, self.a, self.inputs[n])[1](dy)
            da = da + change
        if action.clear_adj_deps:
            self.inputs = {}
        return da, dy


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def scheduled(a, y, steps=5, kept=2, schedule="revolve"):
    """As `plain`; the backward pass is driven by a schedule."""
    return plain(a, y, steps)


def _forward(a, y, steps, kept, schedule):
    run = Executor(a, y)
    for action in SCHEDULES[schedule](steps, min(kept, steps - 1)):
        if isinstance(action, cs.EndForward):
            return run.work[1], (a, run.stored, run.inputs)
        run.forward(action)
    raise AssertionError("the schedule has no EndForward")


def _backward(steps, kept, schedule, left, dy):
    a, stored, inputs = left
    run, da, going = Executor(a, None, stored), jnp.zeros_like(a), False
    run.inputs = dict(inputs)
    for action in SCHEDULES[schedule](steps, min(kept, steps - 1)):
        if isinstance(action, cs.EndForward):
            going = True
        elif isinstance(action, cs.EndReverse):
            return da, dy
        elif going and isinstance(action, cs.Forward):
            run.forward(action)
        elif going and isinstance(action, cs.Reverse):
            da, dy = run.reverse(action, da, dy)
        elif going:
            run.load(action)
    raise AssertionError("the schedule has no EndReverse")


scheduled.defvjp(_forward, _backward)


def long(a, y, schedule="revolve"):
    """32 steps with 4 checkpoints."""
    return scheduled(a, y, 32, 4, schedule)


def plain_long(a, y):
    """The reference for `long`."""
    return plain(a, y, 32)


INPUTS = {"a": normal("N"), "y": normal("N")}
chain = gradgate.Pair(
    scheduled,
    reference=plain,
    inputs=INPUTS,
    dims={"N": (2, 1)},
    composes=("jit", "vmap"),
    options={"steps": (5, 3), "kept": (2, 1, 3), "schedule": tuple(SCHEDULES)},
    name="checkpoint_schedules_chain",
)
few_states = gradgate.Pair(
    long,
    reference=plain_long,
    inputs=INPUTS,
    dims={"N": (2, 1)},
    composes=("jit",),
    dtypes=("float64", "float32"),
    options={"schedule": ("revolve", "multistage", "on_disk")},
    name="checkpoint_schedules_kept",
    claims=[gradgate.at_most("residual_bytes", of_reference=0.2, at={"N": 64})],
)
