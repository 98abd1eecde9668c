"""Schedules that depend on the chain's length only: √N segments, recursive, recompute everything, REVOLVE, uniform DP.

All of them are plans of `schedule`, so that they are simulated, drawn and run like the optimal one. Each takes the
number of stages N; what it stores is counted in values x_k.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

from gradgate.references.chain.schedules.costs import Costs
from gradgate.references.chain.schedules.schedule import Plan, Schedule, Split, Unit, saved
from gradgate.references.chain.schedules.simulate import simulate
from gradgate.references.chain.schedules.solver import BudgetTooSmall
from gradgate.references.contract import check_integer


def save_all(stages: int) -> Schedule:
    """Plain backprop: every stage saved, nothing run twice. Stores N recordings."""
    return Schedule.of(saved(0, check_integer("stages", stages, 1)))


def segments(stages: int, count: int) -> Schedule:
    """`count` segments of nearly equal length; all but the last are run forward twice, the second time saved.

    Stores count − 1 values and the recordings of one segment. Raises IllegalOption unless 1 ≤ count ≤ stages.
    """
    stages = check_integer("stages", stages, 1)
    count = check_integer("count", count, 1, stages)
    bounds = [n * stages // count for n in range(count + 1)]
    plan = saved(bounds[-2], stages)
    for start, end in zip(bounds[-3::-1], bounds[-2:0:-1], strict=True):
        plan = Split(saved(start, end), plan)
    return Schedule.of(plan)


def sqrt_n(stages: int) -> Schedule:
    """About √N segments (Chen et al. 2016; §2.5.1): Θ(√N) memory, at most one forward more per stage."""
    return segments(stages, max(1, round(math.sqrt(check_integer("stages", stages, 1)))))


def recursive(stages: int) -> Schedule:
    """Halves, recursively (§2.5.2, k = 1): ⌈log₂ N⌉ values and one recording, N log₂ N / 2 forwards more."""
    return Schedule.of(_built(0, check_integer("stages", stages, 1), lambda i, j, _: i + (j - i + 1) // 2))


def recompute_all(stages: int) -> Schedule:
    """Every stage is run again from x_0 (§2.5.2): one value and one recording, N(N − 1)/2 forwards more."""
    return Schedule.of(_built(0, check_integer("stages", stages, 1), lambda i, j, _: j - 1))


def revolve(stages: int, checkpoints: int) -> Schedule:
    """The least recomputation with `checkpoints` values stored at once, x_0 among them (Griewank and Walther 2000).

    With s values and at most r forwards of any stage, C(s + r, s) stages can be reversed. The first value to be stored
    after x_0 is chosen so that each side has at most such a binomial number of stages. Raises IllegalOption unless both
    are at least 1.
    """
    stages = check_integer("stages", stages, 1)
    return Schedule.of(_built(0, stages, _binomial_split, check_integer("checkpoints", checkpoints, 1)))


def revolve_forwards(stages: int, checkpoints: int) -> int:
    """Forwards that REVOLVE runs, recorded ones included: r·N − C(s + r, s + 1) + N with the least r that suffices."""
    r = _repetition(stages, checkpoints)
    return r * stages - math.comb(checkpoints + r, checkpoints + 1) + stages


def uniform_dp(stages: int, slots: int) -> Schedule:
    """The least recomputation with `slots` values stored at once, by dynamic programming (Gruslys et al., Alg. 2.1).

    C(t, m) = min over y of y + C(t − y, m − 1) + C(y, m), C(1, m) = 1, C(t, 1) = t(t + 1)/2. The schedule runs as many
    forwards as REVOLVE with as many checkpoints. Alg. 2.1 as printed bounds t by m_max; here t is bounded by N. Cost:
    N² · slots / 2 additions. Raises IllegalOption unless both are at least 1.
    """
    stages, slots = check_integer("stages", stages, 1), check_integer("slots", slots, 1)
    policy = uniform_policy(stages)
    return Schedule.of(_built(0, stages, lambda i, j, m: i + policy.offset(j - i, min(m, j - i)), slots))


class UniformPolicy:
    """D[t][m] of Alg. 2.1 for t up to N stages; a number of slots is solved for when it is first needed.

    Args:
        stages: N.
    """

    def __init__(self, stages: int) -> None:
        import numpy as np

        self.stages = stages
        lengths = np.arange(stages + 1)
        self._cost = lengths * (lengths + 1) / 2
        self._rows: list[Sequence[int]] = [[max(t - 1, 0) for t in range(stages + 1)]]

    def offset(self, length: int, slots: int) -> int:
        """The first stored value, counted from the start of `length` stages; both arguments are at least 1."""
        while len(self._rows) < slots:
            self._rows.append(self._next())
        return self._rows[slots - 1][length]

    def _next(self) -> Sequence[int]:
        """The choices with one slot more, from the costs with the slots solved so far."""
        import numpy as np

        row, chosen = np.zeros(self.stages + 1), [0] * (self.stages + 1)
        row[1] = 1.0
        lengths = np.arange(self.stages + 1)
        for t in range(2, self.stages + 1):
            each = lengths[1:t] + self._cost[t - 1 : 0 : -1] + row[1:t]
            best = int(each.argmin())
            row[t], chosen[t] = each[best], best + 1
        self._cost = row
        return chosen


@functools.lru_cache(maxsize=8)
def uniform_policy(stages: int) -> UniformPolicy:
    """The policy of Alg. 2.1 for chains of so many stages; the same object each time."""
    return UniformPolicy(stages)


def within(make: Callable[[int], Schedule], most: int, costs: Costs, budget: int) -> Schedule:
    """The cheapest of ``make(1) … make(most)`` whose simulated peak is within the budget.

    It applies a budget in bytes to a kind of schedule that counts slots: no other schedule of this kind computes less
    within the budget.

    Raises:
        BudgetTooSmall: none fits; states the least peak among them.
    """
    tried = [(simulate(schedule, costs), schedule) for schedule in map(make, range(1, most + 1))]
    fitting = [(found.compute, found.peak, n) for n, (found, _) in enumerate(tried) if found.peak <= budget]
    if not fitting:
        raise BudgetTooSmall(budget, min(found.peak for found, _ in tried), " by a schedule of this kind")
    return tried[min(fitting)[2]][1]


def uniform_within(costs: Costs, budget: int) -> Schedule:
    """`uniform_dp` with the number of slots, of 1 to N, that computes least within the budget, by `within`.

    Raises IllegalOption too unless the budget is an integer of at least 1. Cost: N schedules made and simulated, once
    per costs and budget.
    """
    return _uniform_within(costs, check_integer("budget", budget, 1))


@functools.lru_cache(maxsize=64)
def _uniform_within(costs: Costs, budget: int) -> Schedule:
    return within(functools.partial(uniform_dp, costs.stages), costs.stages, costs, budget)


def uniform_least(costs: Costs) -> Schedule:
    """`uniform_dp` with the number of slots whose simulated peak is the least; cost as `uniform_within`."""
    tried = (uniform_dp(costs.stages, slots) for slots in range(1, costs.stages + 1))
    return min(tried, key=lambda schedule: simulate(schedule, costs).peak)


def usual_checkpoints(stages: int) -> int:
    """⌈log₂ N⌉, at least 1: as many values as `recursive` stores at most."""
    return max(1, math.ceil(math.log2(stages)))


def _built(i: int, j: int, split: Callable[[int, int, int], int], slots: int = 0) -> Plan:
    """The plan of (i, j) that splits where `split` (i, j, slots) says; a split leaves one slot fewer on its right.

    At worst, a split shortens one side by a single stage. Recursion on that side would be as deep as the chain, so both
    sides go through a stack.
    """
    done: list[Plan] = []
    todo: list[tuple[int, int, int] | None] = [(i, j, slots)]
    while todo:
        item = todo.pop()
        if item is None:
            right = done.pop()
            done.append(Split(done.pop(), right))
        elif item[1] == item[0] + 1:
            done.append(Unit(item[0]))
        else:
            i, j, slots = item
            k = split(i, j, slots)
            todo += [None, (k, j, slots - 1), (i, k, slots)]
    return done[0]


def _repetition(stages: int, checkpoints: int) -> int:
    """The least r with C(s + r, s) ≥ N."""
    return next(r for r in range(stages + 1) if math.comb(checkpoints + r, checkpoints) >= stages)


def _binomial_split(i: int, j: int, s: int) -> int:
    """The k at which (i, j) is split with s values: the largest with r − 1 sweeps on the left and r on the right.

    C(s + r, s) = C(s + r − 1, s) + C(s + r − 1, s − 1): the left may be as long as the first term, and the right as the
    second. With one value, only x_i is ever stored, and the right is one stage.
    """
    if s == 1:
        return j - 1
    length, r = j - i, _repetition(j - i, s)
    right_least = math.comb(s + r - 2, s - 1)  # what r − 1 sweeps could do on the right
    left_most = math.comb(s + r - 1, s)
    return i + min(left_most, length - min(right_least, length - 1))
