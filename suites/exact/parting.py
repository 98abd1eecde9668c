"""Where two programs first differ, and which of their values is to blame.

Intermediate values are matched by value, not by the operation that made them. A right program may have values that the
plain one lacks, because it computes the same result in another way; so a value of its own is no fault yet. It is one if
a value of the plain program in its place makes every result right: `mended` tries that.
"""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from flint import arb

from gradgate.suites.exact import balls
from gradgate.suites.exact.agreement import parted
from gradgate.suites.exact.lines import text_of

Watch = Callable[[str, str, Sequence[Any]], Sequence[Any] | None]
"""Called with an operation's name, its line of source and its results; it may return what takes their place.

Within `balls.comparing`, the line is "" unless the operation compared something."""
T = TypeVar("T")
KERNEL = "the Triton kernel "
"""How the operation of a value is called that a kernel stored; its name follows."""
NEAR = 1e-3
"""Up to this relative distance, a value is taken for a wrong version of another."""
EPSILON = 2.0**-52
"""Relative distance below which two floats are the same, while the balls may differ."""
CAUSE = 1e-4
"""A value whose error is below this share of a result's error is not its cause."""
LISTED = 4
"""Number of kernels' lines that a sentence lists."""
MENDED = "and with the reference's {} all is right"
WORK = 1_000_000
"""Elements that may be computed to find the value to blame; each takes about a microsecond."""
OPERATION, LAUNCH = 20, 5000
"""Elements whose cost is that of an operation on none, and that of a kernel's launch."""
LONGER = 2
"""A run with another value is ended after so many times the operations of the program: a loop may not end with it."""
LONGEST = 100_000
"""Operations of a program whose values are recorded; each takes up to a tenth of a millisecond."""


class TooLong(Exception):
    """A program runs for many more operations than it was allowed."""


@dataclass(frozen=True)
class Step:
    """One intermediate value: the operation and line that made it, and a mark that identifies it.

    Attributes:
        mark: size, and a weighted sum of the elements to 40 digits; equal values in another shape have the same one.
        rough: the same sum as a float.
        value: the balls.
        number: that of the operation among those of the program, from 1 on.
        result: the value's place among the operation's results.
    """

    operation: str
    line: str
    mark: tuple[int, str]
    rough: float
    value: Any = field(compare=False, repr=False)
    number: int = field(default=0, compare=False)
    result: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Record:
    """The intermediate values of a run, in the order in which they are made; infinite ones are left out.

    Attributes:
        operations: how many the run had; more than `LONGEST` if it was ended, and the values are only its first.
    """

    steps: Sequence[Step]
    operations: int

    @property
    def marks(self) -> frozenset[tuple[int, str]]:
        """Those of all values."""
        return frozenset(step.mark for step in self.steps)

    @property
    def work(self) -> int:
        """What the run costs, in elements."""
        launches = sum(step.operation.startswith(KERNEL) for step in self.steps)
        return OPERATION * self.operations + LAUNCH * launches + sum(step.mark[0] for step in self.steps)


@dataclass(frozen=True)
class Parting:
    """Where a program goes wrong.

    Attributes:
        sentence: what is wrong there.
        line: the line of source, as ``file.py:12``; "" if it is not known.
        place: the number of the step among those of the program; -1 if no step is named.
    """

    sentence: str
    line: str = ""
    place: int = field(default=-1, compare=False)


def short_name(operation: str) -> str:
    """An operation without PyTorch's prefix, overload and mark of writing in place: ``aten.gt_.Scalar`` is ``gt``."""
    return operation.split(".")[1].rstrip("_") if operation.startswith("aten.") else operation


def recorded(run: Callable[[Watch], Any]) -> Record:
    """The intermediate values of a run, which is ended after `LONGEST` operations."""
    steps: list[Step] = []
    count = 0

    def watch(operation: str, line: str, values: Sequence[Any]) -> None:
        nonlocal count
        count += 1
        if count > LONGEST:
            raise TooLong(f"more than {LONGEST} operations")
        steps.extend(_steps(operation, line, values, count))

    with contextlib.suppress(TooLong):
        run(watch)
    return Record(steps, count)


def made_before(record: Record, result: Any) -> Record:
    """The steps up to the one that makes a result, in any shape; all of them if none does, or there is no result.

    What is computed afterwards, such as another gradient, says nothing about why this result is wrong.
    """
    made = next(_steps("", "", [result]), None)
    place = next((place for place, step in enumerate(record.steps) if made and step.mark == made.mark), None)
    return record if place is None else Record(record.steps[: place + 1], record.steps[place].number)


def _steps(operation: str, line: str, values: Sequence[Any], number: int = 0) -> Iterator[Step]:
    """Those of an operation's results that are finite real balls."""
    for place, value in enumerate(values):
        if balls.is_balls(value) and value.size and not balls.is_complex(value):
            total = (value.ravel() * _weights(value.size)).sum()
            if total.is_finite():
                mark = value.size, _digits(total)
                yield Step(short_name(operation), line, mark, float(total.mid()), value.copy(), number, place)


def mended(run: Callable[[Watch], T], got: Record, plain: Record, right: Callable[[T], bool]) -> Parting | None:
    """The first value of a program that is to blame for its wrong results; None if there is none.

    A value is to blame if every result is right once a value of the plain program takes its place. If two
    values are wrong by themselves, none is to blame alone.

    Args:
        run: the program, whose record is `got`.
        right: whether results are right.

    Cost: an evaluation for each value of `got` that `plain` lacks and each value of the same size in `plain`; at most
    `WORK` elements in all. One that does not end is ended, and counts as `LONGER` evaluations.
    """
    known, have = plain.marks, got.marks
    instead: dict[int, dict[str, Step]] = {}
    for step in sorted(plain.steps, key=lambda step: step.mark in have):  # what `got` lacks is the likelier
        if step.rough:
            instead.setdefault(step.mark[0], {}).setdefault(step.mark[1], step)
    left, work = WORK, got.work
    for place, step in enumerate(got.steps):
        if step.mark in known:
            continue
        for other in instead.get(step.mark[0], {}).values():
            left -= work
            if left < 0:
                return None
            value = _shaped(other.value, step.value.shape)
            try:
                if right(run(_replacing(step, value, LONGER * got.operations))):
                    return _blamed(place, step, value, _lacking(got.steps[:place], known))
            except TooLong:
                left -= (LONGER - 1) * work
            except balls.Undecided:
                continue
    return None


def _replacing(step: Step, value: Any, most: int) -> Watch:
    """A watch that puts `value` in the place of a step, and ends a run of more than `most` operations.

    Raises:
        TooLong: by the watch.
    """
    operations = 0

    def watch(operation: str, line: str, values: Sequence[Any]) -> Sequence[Any] | None:
        nonlocal operations
        operations += 1
        if operations > most:
            raise TooLong(f"more than {most} operations")
        if operations != step.number:
            return None
        return [value if place == step.result else each for place, each in enumerate(values)]

    return watch


def _shaped(value: Any, shape: tuple[int, ...]) -> Any:
    """A value in a shape of the same size: transposed if that is what the shape says, else read in order."""
    return value.T if value.shape != shape == value.shape[::-1] else value.reshape(shape)


def _blamed(place: int, step: Step, value: Any, kernels: str) -> Parting:
    more = f"; {kernels}" if kernels else ""
    return Parting(f"{_where(step)}: {parted(step.value, value, MENDED)}{_text(step)}{more}", step.line, place)


def made_but_lost(got: Record, right: Any, name: str) -> Parting | None:
    """The last step that makes the right result, which is then not what is returned; None if no step makes it.

    So it is where gradients are returned in the wrong order, or a slice of the wrong rows. Views are no steps.

    Args:
        got: of the program whose result is wrong.
        right: the right result.
        name: how the result is called.
    """
    wanted = next(_steps("", "", [right]), None)
    places = [place for place, step in enumerate(got.steps) if step.line and wanted and step.mark == wanted.mark]
    if not places or not wanted or not wanted.rough:
        return None
    step = got.steps[places[-1]]
    said = f"the right gradient of {name} is made {_where(step)}, and is not what is returned{_text(step)}"
    return Parting(said, step.line, places[-1])


def _lacking(steps: Sequence[Step], known: Set[tuple[int, str]]) -> str:
    """Which kernels store what the plain program lacks, with their lines; "" if none does."""
    alone = [step for step in steps if step.operation.startswith(KERNEL) and step.mark not in known]
    lines = list(dict.fromkeys(f"{step.operation} at {step.line}" for step in alone))
    return f"the plain program lacks what is stored by {', '.join(lines[:LISTED])}" if alone else ""


def _where(step: Step) -> str:
    if step.operation.startswith(KERNEL):
        return f"in {step.operation} at {step.line}"
    return f"at {step.line}, {step.operation}" if step.line else f"by {step.operation}"


def _text(step: Step) -> str:
    """The clause with the text of a step's line; "" if it cannot be read."""
    return f"; {step.line}: {text_of(step.line)}" if text_of(step.line) else ""


def first_apart(got: Record, plain: Record, error: float = 0.0) -> Parting | None:
    """Where `got` leaves the values of `plain`; None if that cannot be said.

    A value that nearly equals a value of the plain program says most. If there is none, the sentence names the first
    value after the last shared one, which only whole records show. Kernels in Triton that store what the plain program
    lacks say more than that.

    Args:
        error: the largest relative error of a result. Values that differ by far less, as by a rounded constant, are not
            its cause.
    """
    known = plain.marks
    shared = [place for place, step in enumerate(got.steps) if step.mark in known and step.rough]
    places: dict[int, list[tuple[float, Step]]] = {}
    for step in plain.steps:
        places.setdefault(step.mark[0], []).append((step.rough, step))
    for sizes in places.values():
        sizes.sort(key=lambda pair: pair[0])
    for step in got.steps if shared else ():
        twin = None if step.mark in known else _near(step, places.get(step.mark[0], []), CAUSE * error)
        if twin is not None:
            numbers = parted(step.value, _shaped(twin.value, step.value.shape))
            return Parting(f"the programs part {_where(step)}: {numbers}{_text(step)}", step.line)
    kernels = _lacking(got.steps, known)
    if kernels:
        alone = next(step for step in got.steps if step.operation.startswith(KERNEL) and step.mark not in known)
        return Parting(kernels, alone.line)
    if not shared or max(got.operations, plain.operations) > LONGEST:
        return None
    last, after = got.steps[shared[-1]], next(iter(got.steps[shared[-1] + 1 :]), None)
    if after is None or after.line == last.line:
        return Parting(f"the last value both programs have is made {_where(last)}{_text(last)}", last.line)
    said = f"no value is shared from here on: {_where(after)}; the last is made {_where(last)}"
    return Parting(f"{said}{_text(after)}", after.line)


def _near(step: Step, candidates: list[tuple[float, Step]], least: float) -> Step | None:
    """A candidate that differs from a step by NEAR at most, relative to it, and by `least` or more."""
    place = bisect.bisect_left(candidates, step.rough, key=lambda pair: pair[0])
    for rough, twin in candidates[max(0, place - 1) : place + 1]:
        apart = max(abs(rough - step.rough), EPSILON * abs(rough))
        if rough and least * abs(rough) <= apart <= NEAR * abs(rough):
            return twin
    return None


def _weights(size: int) -> Any:
    return np.arange(size) * 7919 % 1009 + 1.0


def _digits(total: Any) -> str:
    if abs(total) < arb(10) ** -50:
        return "0"
    return str(total.mid().str(40, radius=False))
