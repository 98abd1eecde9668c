"""Which sides of its decisions a program took: every comparison of balls, by operation and source line.

Extremes, sorts, clamps, `abs`, `sign`, `relu`, rounding and divisions by zero compare balls, too. They are here under
their own names, as are choices by booleans, because several comparisons may make one choice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from gradgate.suites.exact import balls
from gradgate.suites.exact.parting import TooLong, Watch, short_name

BELOW, TIED, ABOVE = -1, 0, 1
"""What a comparison of two numbers finds: the left one is below, equal to or above the right one."""
CHOICES = ("select_n", "where", "masked_fill", "cond", "_local_scalar_dense")
"""Operations that choose by booleans, the last one for Python's `if`: true ones count as above, false ones as below."""
TRUE = {"lt": {BELOW}, "le": {BELOW, TIED}, "gt": {ABOVE}, "ge": {TIED, ABOVE}, "eq": {TIED}, "ne": {BELOW, ABOVE}}
TRUE |= {"equal": {TIED}, **{name: {ABOVE} for name in CHOICES}}
"""Comparison or choice -> the sides on which it is true."""
CASTS = ("convert_element_type", "_to_copy")
"""Casts, of which those to integers round."""
ROUNDINGS = ("floor", "ceil", "round", "trunc", *CASTS)
"""Operations that compare each number with the whole number, or the half, beside it: no constant of the program."""
SIGNS = {"lt": "<", "le": "≤", "gt": ">", "ge": "≥", "eq": "==", "ne": "!="}
EVERY = frozenset((BELOW, TIED, ABOVE))


@dataclass
class Decision:
    """What one operation at one line decided.

    Attributes:
        sides: which of BELOW, TIED and ABOVE occurred.
        nearest: side -> the smallest |left − right| with which it occurred.
        left: the left operand, if it is a constant of the program and the right one is not; else None.
    """

    sides: set[int] = field(default_factory=set)
    nearest: dict[int, float] = field(default_factory=dict)
    left: float | None = None

    def add(self, side: int, apart: float) -> None:
        """Add one comparison, by its side and its |left − right|."""
        self.sides.add(side)
        self.nearest[side] = min(apart, self.nearest.get(side, apart))

    def merge(self, other: Decision) -> None:
        """Add what another run of the same program decided here."""
        self.left = other.left if self.left is None else self.left
        for side, apart in other.nearest.items():
            self.add(side, apart)


Place = tuple[str, str, float | None]
"""(operation, ``file.py:123``, right operand): all comparisons of one operation have the same right operand, which is a
constant of the program, or it is None. JAX gives every operation of a rule's backward pass one line."""
Decisions = dict[Place, Decision]
Compared = tuple[Any, Any, int]
"""Two balls, and the side; None and None for a choice by booleans."""
Missing = list[tuple[str, frozenset[int]]]
"""What a decision never was, such as ``true``, and the sides that would make it so."""


def recorded(run: Callable[[Watch], Any], into: Decisions, most: int = 0) -> int:
    """Run a program and add its decisions to `into`.

    Args:
        run: evaluates the program, such as ``lambda watch: evaluator(problem, 60, watch=watch)``.
        most: the number of operations after which the run is ended; 0 for no limit.

    Returns:
        The number of operations.

    Raises:
        TooLong: there were more than `most`.

    Cost: that of a watched evaluation, and a subtraction of two balls for each comparison.
    """
    count = 0

    def watch(operation: str, line: str, values: Sequence[Any]) -> None:  # the line is "" if nothing was compared
        nonlocal count
        count += 1
        made = [one for one in pending if _counts(operation, *one)] if pending else []
        pending.clear()
        if any(one is None or one is not other for one, other, _ in made):  # x == x asks for NaN
            right = None if short_name(operation) in ROUNDINGS else _constant(made)
            decision = into.setdefault((operation, line, right), Decision())
            if right is None and short_name(operation) not in ROUNDINGS:
                decision.left = _constant([(other, one, -side) for one, other, side in made])
            for one, other, side in made:
                decision.add(side, 0.0 if one is None else balls.nearest_float(abs(one - other)))
        if 0 < most < count:
            raise TooLong(f"more than {most} operations")

    with balls.comparing() as pending:
        run(watch)
    return count


_TURNS: list[dict[str, int]] = []


@contextlib.contextmanager
def turning() -> Iterator[dict[str, int]]:
    """The scope that counts the turns of JAX's loops: ``file.py:123`` -> the most turns of a loop at that line."""
    _TURNS.append({})
    try:
        yield _TURNS[-1]
    finally:
        _TURNS.pop()


def turned(line: Callable[[], str], count: int) -> None:
    """Enter the turns of one run of a loop, if somebody counts."""
    if _TURNS:
        place = line()
        _TURNS[-1][place] = max(count, _TURNS[-1].get(place, 0))


def _counts(operation: str, one: Any, other: Any, side: int) -> bool:
    """Whether a comparison has a side: NaN has none; and that −∞ starts a maximum is no decision of the program."""
    if side == 2 or one is None:
        return side != 2
    return short_name(operation) in TRUE or bool(one.is_finite() and other.is_finite())


def _constant(made: Sequence[Compared]) -> float | None:
    """The right operand of all comparisons, if it looks like a constant of a program: it has at most six digits."""
    first = made[0][1]
    if first is None:
        return None
    number = balls.nearest_float(first)
    if float(f"{number:.6g}") != number or not all(other is first or other == first for _, other, _ in made):
        return None
    return number


def folded(found: Decisions, known: Decisions) -> Decisions:
    """`found`, with numbers that only seem constants, because an input is a whole number, taken for other numbers."""
    made: Decisions = {}
    for (operation, line, right), decision in found.items():
        varying = (operation, line, None)
        place = varying if (operation, line, right) not in known and varying in known else (operation, line, right)
        made.setdefault(place, Decision()).merge(decision)
    return made


def missing(place: Place, decision: Decision) -> Missing:
    """What a decision never was, and the sides that would make it so: [] if it went both ways.

    A comparison is true or false. Any other operation has its left operand below or above the right one; a division is
    listed for zero divisors alone, and misses nothing.
    """
    name = short_name(place[0])
    ways = {"below": frozenset((BELOW,)), "above": frozenset((ABOVE,))}
    if name in TRUE:
        ways = {"true": frozenset(TRUE[name]), "false": EVERY - TRUE[name]}
    elif decision.sides == {TIED}:
        return []
    return [(what, sides) for what, sides in ways.items() if not sides & decision.sides]


def named(place: Place) -> str:
    """A decision in words, such as ``… > 20``."""
    name, right = short_name(place[0]), "…" if place[2] is None else f"{place[2]:g}"
    shown = "a cast" if name in CASTS else name
    return f"… {SIGNS[name]} {right}" if name in SIGNS else f"{shown} with {right}"


def worded(place: Place, never: Missing) -> str:
    """What a decision never was, in words, such as ``… > 20`` true."""
    return f"`{named(place)}` {' or '.join(way for way, _ in never)}"
