"""The one schedule type: what is run forward, recorded, run backward and dropped, in which order.

A chain of N stages takes x_0 to x_N, stage l from x_{l-1} to x_l; going back, stage l takes the cotangent of x_l to
that of x_{l-1}. The machine on which a schedule runs holds values x_k, and recordings: what the framework keeps of a
stage so that it can be run backward. Four operations change what it holds:

    forward l   x_{l-1} -> x_l, nothing recorded; x_l is held
    save l      x_{l-1} -> x_l, recorded; x_l is held
    backward l  uses the recording of l, which is freed, and the cotangent of x_l, which becomes that of x_{l-1}
    drop k      x_k is no longer held, though the recordings of k and k + 1 may go on keeping its bytes alive

At the start x_0 is held. A schedule is a value: it can be compared, hashed, and written to and read from JSON. Most
schedules are *nested*: they are built from three kinds of step on a segment of stages i+1 … j. A nested schedule can be
read back as its `Plan`. JAX runs the plan as nested rematerialisation.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from gradgate.references.contract import UsageError

Kind = Literal["forward", "save", "backward", "drop"]
LETTER: dict[str, Kind] = {"F": "forward", "S": "save", "B": "backward", "D": "drop"}


@dataclass(frozen=True)
class Unit:
    """One stage, i + 1: save it, run it backward."""

    start: int

    @property
    def end(self) -> int:
        """The last stage of the segment."""
        return self.start + 1


@dataclass(frozen=True)
class Save:
    """Save stage i + 1 at once, work through the `rest`, segment (i + 1, j), then run i + 1 backward."""

    start: int
    rest: Plan

    @property
    def end(self) -> int:
        """The last stage of the segment."""
        return _last(self)


@dataclass(frozen=True)
class Split:
    """Run forward to x_k, holding x_i; work through the `right` (k, j), then from x_i again through `left` (i, k)."""

    left: Plan
    right: Plan

    @property
    def start(self) -> int:
        """The value i that the segment starts from."""
        plan: Plan = self
        while isinstance(plan, Split):
            plan = plan.left
        return plan.start

    @property
    def end(self) -> int:
        """The last stage of the segment."""
        return _last(self)


Plan: TypeAlias = Unit | Save | Split
"""A nested schedule of the stages i+1 … j, its `start` i and `end` j."""


def _last(plan: Plan) -> int:
    """The last stage of a segment; a loop, as plans are as deep as the chain is long."""
    while not isinstance(plan, Unit):
        plan = plan.rest if isinstance(plan, Save) else plan.right
    return plan.start + 1


def saved(start: int, end: int) -> Plan:
    """The plan that saves every stage of the segment at once and runs none twice."""
    plan: Plan = Unit(end - 1)
    for i in range(end - 2, start - 1, -1):
        plan = Save(i, plan)
    return plan


@dataclass(frozen=True)
class Operation:
    """One operation; `index` is the stage 1 … N, or for a drop the value 0 … N."""

    kind: Kind
    index: int

    def __str__(self) -> str:
        return f"{self.kind[0].upper()}{self.index}"


@dataclass(frozen=True)
class Schedule:
    """A legal sequence of operations that runs every one of `stages` stages backward, once, the last first.

    Raises:
        UsageError: an operation needs something that is missing; the message says which operation, and what.
    """

    stages: int
    operations: tuple[Operation, ...]

    def __post_init__(self) -> None:
        """Run the schedule on sets of indices, so that an illegal one never exists."""
        held, saved, following = {0}, set[int](), self.stages
        for step, op in enumerate(self.operations):
            place = f"operation {step + 1}, {op}"
            if not (op.kind == "drop") <= op.index <= self.stages and not (op.kind == "drop" and op.index == 0):
                raise UsageError(f"{place}: there is no such stage among 1 … {self.stages}")
            if op.kind in ("forward", "save"):
                if op.index - 1 not in held:
                    raise UsageError(f"{place}: x_{op.index - 1} is not held")
                held.add(op.index)
                if op.kind == "save":
                    saved.add(op.index)
            elif op.kind == "drop":
                if op.index not in held:
                    raise UsageError(f"{place}: x_{op.index} is not held")
                held.remove(op.index)
            else:
                if op.index != following:
                    raise UsageError(f"{place}: stage {following} is the next to run backward")
                if op.index not in saved:
                    raise UsageError(f"{place}: stage {op.index} is not recorded")
                saved.remove(op.index)
                following -= 1
        if following:
            raise UsageError(f"stages 1 … {following} are never run backward")

    @classmethod
    def of(cls, plan: Plan) -> Schedule:
        """The operations of a plan of a whole chain; every value is dropped after its last use."""
        if plan.start != 0:
            raise UsageError(f"a plan of the whole chain starts at 0, not at {plan.start}")
        return cls(plan.end, tuple(Operation(LETTER[letter], index) for letter, index in _flatten(plan)))

    @functools.cached_property
    def turn(self) -> int:
        """The number of operations before the first backward one: the forward pass, after which x_N is known."""
        return next(n for n, op in enumerate(self.operations) if op.kind == "backward")

    @functools.cached_property
    def backwards(self) -> list[int]:
        """Which operation, counted from 0, runs each stage backward; stage 1 first."""
        return [n for n, op in enumerate(self.operations) if op.kind == "backward"][::-1]

    def runs(self) -> list[int]:
        """How many times each stage is run forward, recorded or not; stage 1 first."""
        counts = [0] * self.stages
        for op in self.operations:
            if op.kind in ("forward", "save"):
                counts[op.index - 1] += 1
        return counts

    def groups(self) -> list[list[int]]:
        """Stages that always run forward, are recorded and run backward right after one another, so might be one stage.

        >>> Schedule.of(Split(saved(0, 2), saved(2, 3))).groups()
        [[1, 2], [3]]
        """
        order = [op for op in self.operations if op.kind != "drop"]
        alone, after = Counter(order), Counter(itertools.pairwise(order))

        def joined(stage: int) -> bool:
            """Whether the stage and the next one belong together."""
            for kind in ("forward", "save"):
                one, other = Operation(kind, stage), Operation(kind, stage + 1)
                if not alone[one] == alone[other] == after[one, other]:
                    return False
            return after[Operation("backward", stage + 1), Operation("backward", stage)] == 1

        found = [[1]]
        for stage in range(1, self.stages):
            if joined(stage):
                found[-1].append(stage + 1)
            else:
                found.append([stage + 1])
        return found

    def plan(self) -> Plan:
        """The plan of a nested schedule.

        Raises:
            UsageError: the schedule is not nested.
        """
        reader = _Reader(list(self.operations))
        plan = reader.segment(0, self.stages)
        if Schedule.of(plan) != self:
            raise UsageError("the schedule is not nested: it has no plan, and only the PyTorch executor can run it")
        return plan

    def to_json(self) -> str:
        """One line of JSON from which `from_json` makes an equal Schedule."""
        return json.dumps({"stages": self.stages, "operations": " ".join(map(str, self.operations))})

    @classmethod
    def from_json(cls, text: str) -> Schedule:
        """The Schedule of `to_json`.

        Raises:
            UsageError: not such JSON, an unknown operation, or an illegal schedule.
        """
        try:
            fields = json.loads(text)
            stages, words = int(fields["stages"]), fields["operations"].split()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f'a Schedule is JSON like {{"stages": 1, "operations": "S1 B1"}}: {error!r}') from None
        for word in words:
            if not re.fullmatch(r"[FSBD]\d+", word):
                raise UsageError(f"unknown operation {word!r}; legal: F, S, B or D and a number, such as F3")
        return cls(stages, tuple(Operation(LETTER[word[0]], int(word[1:])) for word in words))

    def drawing(self) -> str:
        """The schedule as text, after Fig. 2.20: a column per stage, a line per sweep.

        ``─`` forward, ``●`` recorded, ``◄`` backward; ``|`` before a stage whose input stays held after the sweep has
        passed it.
        """
        lines, row, cursor, turned = [], dict[int, str](), 0, False
        dropped = _kept_after_use(self)
        for step, op in enumerate(self.operations):
            if op.kind == "drop":
                continue
            backward = op.kind == "backward"
            if row and (backward != turned or op.index != cursor + (-1 if backward else 1)):
                lines.append(row)
                row = {}
            turned = backward
            mark = "◄" if backward else "●" if op.kind == "save" else "─"
            row[op.index] = ("|" if step in dropped else " ") + mark
            cursor = op.index
        lines.append(row)
        return "\n".join("".join(line.get(k, "  ") for k in range(1, self.stages + 1)).rstrip() for line in lines)


def _kept_after_use(schedule: Schedule) -> set[int]:
    """Steps of unrecorded forwards whose input stays held: x_i is a checkpoint."""
    kept = set()
    operations = schedule.operations
    for step, op in enumerate(operations):
        following = operations[step + 1] if step + 1 < len(operations) else None
        if op.kind == "forward" and following != Operation("drop", op.index - 1):
            kept.add(step)
    return kept


def _flatten(plan: Plan) -> Iterator[tuple[str, int]]:
    """The operations of a plan, iteratively: plans are as deep as the chain is long."""
    todo: list[Plan | tuple[str, int]] = [plan]
    while todo:
        item = todo.pop()
        if isinstance(item, tuple):
            yield item
            continue
        i = item.start
        if isinstance(item, Split):
            k = item.right.start
            yield "F", i + 1
            for stage in range(i + 2, k + 1):
                yield "F", stage
                yield "D", stage - 1
            todo += [item.left, item.right]
            continue
        yield "S", i + 1
        yield "D", i
        todo.append(("B", i + 1))
        if isinstance(item, Save):
            todo.append(item.rest)
        else:
            yield "D", i + 1


class _Reader:
    """Reads a plan back from operations; decides at each step which of the three kinds it is."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.operations, self.at = operations, 0

    def take(self) -> Operation:
        if self.at >= len(self.operations):
            raise UsageError("the schedule is not nested: it ends within a segment")
        self.at += 1
        return self.operations[self.at - 1]

    def segment(self, i: int, j: int) -> Plan:
        """The plan of (i, j): entering a segment, look at its first sweep; leaving one, finish what is waiting."""
        waiting: list[int | Plan] = []  # −i − 1: a save; i: a split whose left comes next; a plan: the right of a split
        while True:
            op = self.take()
            if op.kind == "forward":
                waiting.append(i)
                i = self._swept(i + 1)
                if i >= j:
                    raise UsageError(f"the schedule is not nested: {op} starts no segment")
                continue
            self.take()
            if op.kind != "save":
                raise UsageError(f"the schedule is not nested: {op} starts no segment")
            if j > i + 1:
                waiting.append(-i - 1)
                i += 1
                continue
            self.take()
            self.take()
            plan: Plan = Unit(i)
            while waiting:
                top = waiting.pop()
                if not isinstance(top, int):
                    plan = Split(plan, top)
                elif top < 0:
                    self.take()
                    plan = Save(-top - 1, plan)
                else:
                    i, j = top, plan.start
                    waiting.append(plan)
                    break
            else:
                return plan

    def _swept(self, k: int) -> int:
        """Skip the forwards that drop their inputs; return the value at which the sweep ends."""
        while self.operations[self.at : self.at + 2] == [Operation("forward", k + 1), Operation("drop", k)]:
            self.at += 2
            k += 1
        return k
