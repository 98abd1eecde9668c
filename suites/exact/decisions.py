"""Which sides of its decisions a program took: every comparison of balls, by operation and source line.

Extremes, sorts, clamps and `relu` compare balls, too, so they are here under their own names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gradgate.suites.exact import balls
from gradgate.suites.exact.parting import Watch

SIDES = {-1: "below", 0: "tied", 1: "above"}
"""What a comparison of two numbers finds -> its name."""


@dataclass
class Decision:
    """What one operation at one line decided.

    Attributes:
        sides: which of −1, 0 and 1 occurred: the left operand below, equal to or above the right one.
        margin: the smallest |left − right| that was not zero, as a ball; None if there was none.
        operands: the two balls of that margin.
    """

    sides: set[int] = field(default_factory=set)
    margin: Any = None
    operands: tuple[Any, Any] | None = None

    def add(self, one: Any, other: Any, side: int) -> None:
        """Add one comparison; those with NaN, side 2, have no margin."""
        if side == 2:
            return
        self.sides.add(side)
        apart = abs(one - other)
        if side and apart.is_finite() and (self.margin is None or apart < self.margin):
            self.margin, self.operands = apart, (one, other)


Decisions = dict[tuple[str, str], Decision]
"""(operation, ``file.py:123``) -> what was decided there."""


def recorded(run: Callable[[Watch], Any], into: Decisions) -> None:
    """Run a program and add its decisions to `into`.

    Args:
        run: evaluates the program, such as ``lambda watch: evaluator(problem, 60, watch=watch)``.

    Cost: that of a watched evaluation, and a subtraction of two balls for each comparison.
    """

    def watch(operation: str, line: str, values: Sequence[Any]) -> None:
        if pending:
            decision = into.setdefault((operation, line), Decision())
            for comparison in pending:
                decision.add(*comparison)
            pending.clear()

    with balls.comparing() as pending:
        run(watch)
