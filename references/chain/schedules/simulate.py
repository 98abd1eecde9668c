"""What a schedule costs: compute and bytes by step, without running it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gradgate.references.chain.schedules.costs import Costs, Sharing
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
    """The state of a machine: what it holds, as sets of indices, and how many bytes that is.

    The rules, which the executors follow:

    * x_0 is the caller's and is held throughout; x_N is the caller's from the moment it exists until stage N has been
      run backward.
    * x_k is in memory while it is held, or while a recording of stage k or k + 1 keeps it.
    * The cotangent of x_N exists from the backward of stage N on, that of x_k from the backward of k + 1 on; each
      exists until the backward of the stage that uses it has returned.
    * Bytes of one tensor are counted once.
    """

    costs: Costs

    def __post_init__(self) -> None:
        """Hold x_0 alone."""
        c = self.costs
        self.stages = self.following = c.stages
        self.values, self.recorded = {0}, set[int]()
        self.produced = False
        self._holders = [1, *[0] * self.stages]  # of x_k: `values`, the recordings of k and k + 1, and the caller
        self._bytes = c.fixed + c.output[0]  # without the cotangent

    def held(self) -> int:
        """Bytes in memory now."""
        return self._bytes + (self.costs.gradient[self.following] if self.following < self.stages else 0)

    def _hold(self, k: int, more: int = 1) -> None:
        before, self._holders[k] = self._holders[k], self._holders[k] + more
        self._bytes += self.costs.output[k] * ((self._holders[k] > 0) - (before > 0))

    def _record(self, stage: int, more: int) -> None:
        c = self.costs
        self._bytes += more * c.saved[stage - 1]
        if c.saves_input[stage - 1]:
            self._hold(stage - 1, more)
        if c.saves_output[stage - 1]:
            self._hold(stage, more)

    def run(self, op: Operation) -> Step:
        """Perform one operation."""
        c, before, stage = self.costs, self.held(), op.index
        if op.kind == "drop":
            self.values.remove(stage)
            if stage:  # x_0 is the caller's
                self._hold(stage, -1)
            return Step(op, before, self.held(), 0.0)
        if op.kind == "backward":
            arriving = c.gradient[stage] if stage == self.stages else 0
            peak, compute = before + arriving + c.backward_peak[stage - 1], c.backward[stage - 1]
            self.recorded.remove(stage)
            self._record(stage, -1)
            if stage == self.stages and self.produced:
                self._hold(stage, -1)
            self.following -= 1
        else:
            saving = op.kind == "save"
            # If x_l is in memory already, the new x_l is computed next to the old one, and only then replaces it.
            peak = before + (c.save_peak if saving else c.forward_peak)[stage - 1]
            compute = c.forward[stage - 1]
            if stage not in self.values:
                self.values.add(stage)
                self._hold(stage)
            if saving and stage not in self.recorded:
                self.recorded.add(stage)
                self._record(stage, 1)
            if stage == self.stages and not self.produced:
                self.produced = True
                self._hold(stage)
        after = self.held()
        return Step(op, max(peak, after), after, compute)


class SharedMachine:
    """The same machine, where values have storages in common (`costs.Sharing`): each storage is counted once.

    A forward of stage l makes new storages, except those that x_{l-1} hands on. So a value that is computed twice while
    it is still held is in memory twice, as it is when the schedule runs.
    """

    def __init__(self, costs: Costs, sharing: Sharing) -> None:
        self.costs, self.sharing = costs, sharing
        self.following = costs.stages
        self._serial = 0
        self._sizes: dict[int, int] = {}  # of every storage that is in memory, by a number of its own
        self._holders: dict[int, int] = {}
        self._values: dict[int, dict[int, int]] = {}  # k -> the storages of x_k: number in `sharing` -> own number
        self._recordings: dict[int, list[int]] = {}
        self._caller: list[int] | None = None
        self._bytes = costs.fixed
        self._values[0] = {n: self._made(n) for n in sharing.values[0]}
        self._hold([*self._values[0].values()] * 2)  # by the chain, and by the caller

    def _made(self, number: int) -> int:
        self._serial += 1
        self._sizes[self._serial] = self.sharing.sizes[number]
        return self._serial

    def _hold(self, storages: Iterable[int]) -> None:
        for storage in storages:
            count = self._holders.get(storage, 0)
            self._holders[storage] = count + 1
            self._bytes += 0 if count else self._sizes[storage]

    def _release(self, storages: Iterable[int]) -> None:
        for storage in storages:
            self._holders[storage] -= 1
            if not self._holders[storage]:
                self._bytes -= self._sizes.pop(storage)
                del self._holders[storage]

    def held(self) -> int:
        """Bytes in memory now."""
        return self._bytes + (self.costs.gradient[self.following] if self.following < self.costs.stages else 0)

    def run(self, op: Operation) -> Step:
        """Perform one operation."""
        c, before, stage = self.costs, self.held(), op.index
        if op.kind == "drop":
            self._release(self._values.pop(stage).values())
            return Step(op, before, self.held(), 0.0)
        if op.kind == "backward":
            arriving = c.gradient[stage] if stage == c.stages else 0
            peak, compute = before + arriving + c.backward_peak[stage - 1], c.backward[stage - 1]
            self._release(self._recordings.pop(stage))
            if stage == c.stages and self._caller is not None:
                self._release(self._caller)
            self.following -= 1
        else:
            peak = before + (self.sharing.save_peak if op.kind == "save" else self.sharing.forward_peak)[stage - 1]
            compute = c.forward[stage - 1]
            self._forward(op)
        after = self.held()
        return Step(op, max(peak, after), after, compute)

    def _forward(self, op: Operation) -> None:
        stage = op.index
        came = self._values[stage - 1]
        gives = {n: came[n] if n in came else self._made(n) for n in self.sharing.values[stage]}
        self._hold(gives.values())
        if op.kind == "save":
            kept = [gives[n] if n in gives else came[n] for n in self.sharing.recorded[stage - 1]]
            self._hold(kept)
            self._serial += 1
            self._sizes[self._serial] = self.sharing.saved[stage - 1]
            self._hold([self._serial])
            self._release(self._recordings.pop(stage, ()))
            self._recordings[stage] = [*kept, self._serial]
        if stage == self.costs.stages and self._caller is None:
            self._caller = list(gives.values())
            self._hold(self._caller)
        self._release(self._values.get(stage, {}).values())
        self._values[stage] = gives


def simulate(schedule: Schedule, costs: Costs) -> Simulation:
    """Run a schedule on a `Machine`.

    Raises:
        UsageError: schedule and costs are of chains of different length.

    Cost: linear in the number of operations.
    """
    if schedule.stages != costs.stages:
        raise UsageError(f"the schedule has {schedule.stages} stages, the costs have {costs.stages}")
    machine = Machine(costs) if costs.sharing is None else SharedMachine(costs, costs.sharing)
    steps = tuple(machine.run(op) for op in schedule.operations)
    peaks = [step.peak for step in steps]
    return Simulation(
        steps, max(costs.first_peak, *peaks), sum(step.compute for step in steps), peaks.index(max(peaks))
    )
