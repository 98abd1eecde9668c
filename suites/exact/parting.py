"""Where do two programs first differ? Intermediate values are matched by value, not by the operation that made them."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import arb

from gradgate.suites.exact import balls

Watch = Callable[[str, str, Sequence[Any]], None]
"""Called with an operation's name, its line of source and its results."""
NEAR = 1e-3
"""Up to this relative distance, a value is taken for a wrong version of another."""


@dataclass(frozen=True)
class Step:
    """One intermediate value: the operation and line that made it, and a mark that identifies it.

    Attributes:
        mark: size, and a weighted sum of the elements to 40 digits; equal values in another shape have the same one.
        rough: the same sum as a float.
    """

    operation: str
    line: str
    mark: tuple[int, str]
    rough: float


def recorded(run: Callable[[Watch], Any]) -> list[Step]:
    """The intermediate values of a run, in the order in which they are made; infinite ones are left out."""
    steps: list[Step] = []

    def watch(operation: str, line: str, values: Sequence[Any]) -> None:
        for value in values:
            if balls.is_balls(value) and value.size and not balls.is_complex(value):
                total = (value.ravel() * _weights(value.size)).sum()
                if total.is_finite():
                    steps.append(Step(operation, line, (value.size, _digits(total)), float(total.mid())))

    run(watch)
    return steps


def first_apart(got: Sequence[Step], plain: Sequence[Step]) -> str:
    """A sentence that says where `got` leaves the values of `plain`; "" if the two share none.

    A value that nearly equals a value of the plain program says most. If there is none, the sentence names the first
    value after the last shared one.
    """
    known = {step.mark for step in plain}
    shared = [place for place, step in enumerate(got) if step.mark in known and step.rough]
    if not shared:
        return ""
    places: dict[int, list[tuple[float, Step]]] = {}
    for step in plain:
        places.setdefault(step.mark[0], []).append((step.rough, step))
    for sizes in places.values():
        sizes.sort(key=lambda pair: pair[0])
    for step in got:
        twin = None if step.mark in known else _near(step, places.get(step.mark[0], []))
        if twin is not None:
            where = f"{step.operation} at {step.line}"
            return f"the programs part at {where}: {step.mark[1]} where the plain one has {twin.mark[1]}"
    last = got[shared[-1]]
    after = got[shared[-1] + 1] if shared[-1] + 1 < len(got) else None
    told = f"the last value both programs have is {last.operation} at {last.line}"
    return told + (f"; the next, {after.operation} at {after.line}, is the method's alone" if after else "")


def _near(step: Step, candidates: list[tuple[float, Step]]) -> Step | None:
    place = bisect.bisect_left(candidates, step.rough, key=lambda pair: pair[0])
    for rough, twin in candidates[max(0, place - 1) : place + 1]:
        if 0 < abs(rough - step.rough) <= NEAR * abs(rough) or (rough == step.rough and rough):
            return twin
    return None


def _weights(size: int) -> Any:
    return np.arange(size) * 7919 % 1009 + 1.0


def _digits(total: Any) -> str:
    if abs(total) < arb(10) ** -50:
        return "0"
    return str(total.mid().str(40, radius=False))
