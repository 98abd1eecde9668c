"""What a schedule costs: compute and bytes by step, without running it."""

from __future__ import annotations

from dataclasses import dataclass

from gradgate.references.chain.schedules.costs import Costs
from gradgate.references.chain.schedules.schedule import Operation, Schedule
from gradgate.references.contract import UsageError


@dataclass(frozen=True)
class Step:
    """One operation as simulated: the most bytes at once during it, the bytes held after it, and its compute."""

    operation: Operation
    peak: int
    held: int
    compute: float


@dataclass(frozen=True)
class Simulation:
    """A schedule's costs, by step and in total.

    Attributes:
        steps: one per operation.
        peak: the most bytes at once, x_0 and what is fixed among them.
        compute: of all forwards and backwards.
        peak_step: index of the first step that reaches the peak.
    """

    steps: tuple[Step, ...]
    peak: int
    compute: float
    peak_step: int


@dataclass
class Machine:
    """What is held, as sets of indices, and how many bytes that is.

    The rules, which the executors keep:

    * x_0 is the caller's and is held throughout; x_N is the caller's from the moment it exists until stage N has been
      run backward.
    * x_k is in memory while it is held, or while a recording of stage k or k + 1 keeps it.
    * The cotangent of x_N exists from the backward of stage N on, that of x_k from the backward of k + 1 on; either
      until the backward of the stage that uses it has returned.
    * Bytes of one tensor are counted once.
    """

    costs: Costs

    def __post_init__(self) -> None:
        self.values, self.recorded, self.following = {0}, set[int](), self.costs.stages
        self.produced = False

    def held(self) -> int:
        """Bytes in memory now."""
        c, N = self.costs, self.costs.stages
        alive = self.values | {0}
        for stage in self.recorded:
            if c.saves_input[stage - 1]:
                alive.add(stage - 1)
            if c.saves_output[stage - 1]:
                alive.add(stage)
        if self.produced and self.following == N:
            alive.add(N)
        total = c.fixed + sum(c.output[k] for k in alive) + sum(c.saved[stage - 1] for stage in self.recorded)
        return total + (c.gradient[self.following] if self.following < N else 0)

    def run(self, op: Operation) -> Step:
        """Perform one operation."""
        c, before, stage = self.costs, self.held(), op.index
        if op.kind == "drop":
            self.values.remove(stage)
            return Step(op, before, self.held(), 0.0)
        if op.kind == "backward":
            arriving = c.gradient[stage] if stage == c.stages else 0
            peak, compute = before + arriving + c.backward_peak[stage - 1], c.backward[stage - 1]
            self.recorded.remove(stage)
            self.following -= 1
        else:
            saving = op.kind == "save"
            # An x_l that is in memory already is computed beside itself, and only then replaced.
            peak = before + (c.save_peak if saving else c.forward_peak)[stage - 1]
            compute = c.forward[stage - 1]
            self.values.add(stage)
            if saving:
                self.recorded.add(stage)
            self.produced = self.produced or stage == c.stages
        after = self.held()
        return Step(op, max(peak, after), after, compute)


def simulate(schedule: Schedule, costs: Costs) -> Simulation:
    """Run a schedule on a `Machine`.

    Raises:
        UsageError: schedule and costs are of chains of different length.

    Cost: operations × stages at most.
    """
    if schedule.stages != costs.stages:
        raise UsageError(f"the schedule has {schedule.stages} stages, the costs have {costs.stages}")
    machine = Machine(costs)
    steps = tuple(machine.run(op) for op in schedule.operations)
    peaks = [step.peak for step in steps]
    return Simulation(steps, max(peaks), sum(step.compute for step in steps), peaks.index(max(peaks)))
