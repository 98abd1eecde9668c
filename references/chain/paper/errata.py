"""How often the thesis' false statements and misprints hold, on chains drawn at random: 100% if they were right.

Each figure is the share of drawn cases in which what is printed agrees with a search or a walk that shares no code with
it. Each takes the name of a profile, as every figure does, and ignores it: nothing here depends on hardware.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterable

from gradgate.references.chain.counts import least_forwards
from gradgate.references.chain.paper import as_printed
from gradgate.references.chain.paper.as_printed import Misprint, Printed

DRAWN = 600
"""Pairs of a chain and a budget; chains of 1 to 5 stages."""


@functools.cache
def drawn() -> tuple[tuple[Printed, int], ...]:
    """Chains with costs of 1 to 6 each, as §3.1.1 allows, and budgets around what recomputing everything needs."""
    return tuple(_draw(random.Random(seed)) for seed in range(DRAWN))


def _draw(rng: random.Random) -> tuple[Printed, int]:
    stages = rng.randint(1, 5)
    costs = Printed(*([rng.randint(1, 6) for _ in range(stages + 2)] for _ in range(4)))
    return costs, costs.beta_f[0] + as_printed.recompute_peak(costs, 0, stages + 1) + rng.randint(-3, 12)


@functools.cache
def _least() -> tuple[float, ...]:
    return tuple(as_printed.reachable(costs, budget) for costs, budget in drawn())


def solver(*misprints: Misprint) -> float:
    """Percent of the drawn pairs on which Alg. 3.4 with these misprints is right.

    It is right where it states the least compute, and the peak of the policy that it returns.
    """
    stated = [as_printed.solve(costs, budget, misprints) for costs, budget in drawn()]
    return _percent(
        one.compute == least and one.peak == one.walked for one, least in zip(stated, _least(), strict=True)
    )


def fallback_unneeded(profile: str = "") -> float:
    """Percent of the drawn pairs on which Alg. 3.4 states the same where it never resorts to recomputing everything."""
    return _percent(as_printed.solve(*pair) == as_printed.solve(*pair, fallback=False) for pair in drawn())


def peaks_unneeded(profile: str = "") -> float:
    """Percent of the drawn pairs on which Alg. 3.4 states the same compute where B only says what has failed."""
    return _percent(as_printed.solve(*pair).compute == as_printed.solve(*pair, peaks=False).compute for pair in drawn())


def unused_memory(slack: int = 0) -> float:
    """Percent of the drawn pairs that have a policy whose least-compute policy needs less than the budget (§3.1.4).

    Args:
        slack: how many slots must be left besides, so that a test sees the figure fail.
    """
    found = ((as_printed.solve(costs, budget), budget) for costs, budget in drawn())
    return _percent(one.walked + slack < budget for one, budget in found if one.compute < as_printed.INFINITE)


def memory_for_compute(profile: str = "") -> float:
    """Alg. 3.4 with line 8 as printed."""
    return solver("compute")


def left_read_at_j(profile: str = "") -> float:
    """Alg. 3.4 with line 50 as printed."""
    return solver("left")


def failure_propagated(profile: str = "") -> float:
    """Alg. 3.4 with line 65 as printed."""
    return solver("failure")


def started_at_m_min(profile: str = "") -> float:
    """Alg. 3.4 with a loop over m that starts where §3.1.10 says."""
    return solver("m_min")


def least_is_recompute_all(profile: str = "") -> float:
    """Percent of the drawn chains on which one slot less than recomputing everything needs is too little."""
    chains = [costs for costs, _ in drawn()]
    needs = [costs.beta_f[0] + as_printed.recompute_peak(costs, 0, costs.N + 1) for costs in chains]
    least = zip(chains, needs, strict=True)
    return _percent(as_printed.reachable(costs, need - 1) == as_printed.INFINITE for costs, need in least)


def _segments() -> Iterable[tuple[Printed, int, int]]:
    return ((p, i, j) for p, _ in drawn() for i in range(p.N + 1) for j in range(i + 1, p.N + 2))


def equation_3_4(first_counted: bool = False, short: bool = False) -> float:
    """Percent of all segments of the drawn chains on which Eq. 3.4 is the peak of the walk."""
    return _percent(
        as_printed.recompute_peak(p, i, j, first_counted=first_counted, short=short)
        == as_printed.recompute_walk(p, i, j)[1]
        for p, i, j in _segments()
    )


def first_value_counted(profile: str = "") -> float:
    """Eq. 3.4 with the last term over i ≤ l, as printed."""
    return equation_3_4(first_counted=True)


def sweep_cut_short(profile: str = "") -> float:
    """Eq. 3.4 with the sweep over l < j', as printed."""
    return equation_3_4(short=True)


def algorithm_3_3(overwritten: bool = False) -> float:
    """Percent of all segments of the drawn chains on which Alg. 3.3 states the compute of the walk."""
    return _percent(
        as_printed.recompute_compute(p, i, j, overwritten=overwritten) == as_printed.recompute_walk(p, i, j)[0]
        for p, i, j in _segments()
    )


def quadratic_overwritten(profile: str = "") -> float:
    """Alg. 3.3 with line 6 as printed."""
    return algorithm_3_3(overwritten=True)


def algorithm_2_1(bounded: bool = False) -> float:
    """Percent of the pairs t = 1 … 12, m = 1 … 5 for which Alg. 2.1 returns the least number of forwards."""
    table = as_printed.uniform_table(12, 5, bounded=bounded)
    return _percent(table.get((t, m)) == least_forwards(t, m) for t in range(1, 13) for m in range(1, 6))


def table_bounded_by_slots(profile: str = "") -> float:
    """Alg. 2.1 with line 8 as printed."""
    return algorithm_2_1(bounded=True)


def _percent(right: Iterable[bool]) -> float:
    told = list(right)
    return 100 * sum(told) / len(told)
