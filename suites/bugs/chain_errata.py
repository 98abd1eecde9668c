"""The thesis' solver with one misprint at a time, as the ratio of what it states to what is true; 1 would be right.

Each takes the name of a profile, as every figure does, and heeds it not: a solver's figures do not depend on hardware.
"""

from __future__ import annotations

from gradgate.references.chain.paper.as_printed import Printed, reachable, recompute_peak, solve, uniform_table_printed

_EVEN = Printed([1] * 5, [1] * 5, [1] * 5, [1] * 5)


def memory_for_compute(profile: str = "") -> float:
    """Compute of a chain whose cotangents are twice as large as their backwards are dear."""
    return _compute(Printed([1, 1, 1], [1, 1, 1], [1, 1, 1], [2, 2, 2]), 20, "memory for compute")


def quadratic_overwritten(profile: str = "") -> float:
    """Compute where the quadratic case is reached, which takes the next mistake."""
    return _compute(_EVEN, 20, "left read at j", "quadratic overwritten")


def left_read_at_j(profile: str = "") -> float:
    """Compute of a chain of equal costs."""
    return _compute(_EVEN, 20, "left read at j")


def backward_size_for_forward(profile: str = "") -> float:
    """Compute of a chain whose values are five times as large as its cotangents."""
    return _compute(Printed([1] * 4, [1] * 4, [1, 5, 5, 5], [1] * 4), 11, "backward size for forward")


def failure_propagated(profile: str = "") -> float:
    """Compute of an uneven chain; infinite, since the solver says that nothing fits."""
    costs = Printed([1, 4, 6, 5, 3, 5, 4], [5, 1, 0, 2, 4, 0, 2], [3, 5, 2, 1, 5, 2, 1], [4, 4, 1, 3, 5, 0, 1])
    return _compute(costs, 14, "failure propagated")


def first_value_counted(profile: str = "") -> float:
    """The peak of Eq. 3.4 beside a large f_i."""
    costs = Printed([1] * 3, [1] * 3, [9, 1, 1], [1, 1, 1])
    return recompute_peak(costs, 0, 2, True) / recompute_peak(costs, 0, 2)


def table_bounded_by_slots(profile: str = "") -> float:
    """Share of chains of 1 … 10 stages whose entry for 3 of 4 slots Alg. 2.1 ever fills in."""
    table = uniform_table_printed(10, 4)
    return sum((t, 3) in table for t in range(1, 11)) / 10


def _compute(costs: Printed, budget: int, *mistakes: str) -> float:
    return solve(costs, budget, mistakes)[0] / reachable(costs, budget)
