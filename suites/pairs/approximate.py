"""What a function that is approximate by design declares: a bound on its error, or an order of convergence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gradgate.references.contract import UsageError

LOOSEST = 0.1
"""The largest relative error that a function may declare. A larger one leaves nothing to judge."""
FEWEST_STEPS = 3
"""Least number of steps over which an order of convergence is fitted."""
SPAN = 4.0
"""Least ratio of the largest step to the smallest."""


@dataclass(frozen=True)
class ErrorBound:
    """The error of each output and of each gradient is at most `relative` times its norm, plus `absolute`."""

    relative: float = 0.0
    absolute: float = 0.0

    @property
    def words(self) -> str:
        """The bound in words."""
        parts = [f"{self.relative:g} of its norm"] if self.relative else []
        parts += [f"{self.absolute:g}"] if self.absolute else []
        return " plus ".join(parts)


@dataclass(frozen=True)
class Convergence:
    """The errors of outputs and gradients fall with the step of `option` as its power `order`."""

    order: float
    option: str

    def steps(self, values: Sequence[Any]) -> list[tuple[float, Any]]:
        """(Step, value of the option), the largest step first. Whole numbers count steps: the step is 1/n."""
        counted = all(isinstance(value, int) for value in values)
        found = [(1 / value if counted else float(value), value) for value in values]
        return sorted(found, key=lambda pair: -pair[0])


def within(relative: float = 0.0, *, absolute: float = 0.0) -> ErrorBound:
    """The declaration that a function is approximate by design, as a solver is that stops at a tolerance.

    Args:
        relative: largest error of an output or a gradient, relative to the norm of that array: at most 0.1.
        absolute: largest norm of the error that is allowed in addition, whatever the array's norm.

    Raises:
        UsageError: a number is negative, both are 0, or `relative` is above 0.1.

    Cost: none.

    Not for: rounding, which is measured and needs no declaration.

    Example::

        Pair(fixed_point, reference=many_steps, approximates=within(1e-6), …)
    """
    for name, number in (("relative", relative), ("absolute", absolute)):
        plain = isinstance(number, (int, float)) and not isinstance(number, bool)
        if not plain or not 0 <= number < math.inf:
            raise UsageError(f"within: {name} is a number of at least 0, not {number!r}")
    if not relative and not absolute:
        raise UsageError("within: give relative=, absolute= or both; an exact function declares nothing")
    if relative > LOOSEST:
        raise UsageError(f"within: relative is at most {LOOSEST:g}, not {relative!r}: a larger error cannot be judged")
    return ErrorBound(float(relative), float(absolute))


def order(power: float, option: str) -> Convergence:
    """The declaration that a function converges to the reference, as an integrator does when its step is halved.

    Args:
        power: the order of convergence, such as 2.
        option: the option of the pair that is the step. Its values are at least three steps that span a factor of four
            or more, such as ``(0.1, 0.05, 0.025)``. Whole numbers count steps: with ``(10, 20, 40)`` more is finer.

    Raises:
        UsageError: the power is not a positive number.

    Cost: one gradient for each step and problem.

    Not for: a tolerance, which `within` declares.

    Example::

        Pair(euler, reference=exact_flow, options={"h": (0.1, 0.05, 0.025)}, approximates=order(1, "h"), …)
    """
    if not isinstance(power, (int, float)) or isinstance(power, bool) or not 0 < power < math.inf:
        raise UsageError(f"order: the power is a positive number such as 2, not {power!r}")
    return Convergence(float(power), str(option))
