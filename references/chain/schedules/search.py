"""Shortest paths over everything the machine can hold: the oracle of the solvers, for chains of a few stages.

The search space is larger than that of the solvers: schedules need not be nested, any set of values and recordings can
be stored, and a sweep can have any length. There are three classes of schedules. Each class contains the one before it.

* lazy: persistent, and goes back to a stored value only once everything stored or recorded to its right is used up.
* persistent: what is stored stays, x_k until stage k + 1 is saved, a recording until it is run backward. A value may
  pass without being stored. Work on the left may be done early. That pays off while what is held on the right is
  smaller than the cotangent that will replace it.
* free: any value or recording may be dropped at any moment and made again.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from typing import Literal

from gradgate.references.chain.schedules.costs import Costs

Class = Literal["lazy", "persistent", "free"]
State = tuple[frozenset[int], int, frozenset[int], int]
"""Values stored; the passing value, or -1; stages recorded; the next stage to run backward."""


def least_compute(costs: Costs, budget: int, schedules: Class = "lazy") -> float:
    """The least compute of any schedule of the class within `budget` bytes; infinite if none fits.

    Source: Dijkstra's algorithm, guided by the work that must be done in any case. Cost: exponential in N; seconds at
    N = 7.
    """
    N, order = costs.stages, itertools.count()

    def owed(state: State) -> float:
        _, _, recorded, following = state
        stages = range(1, following + 1)
        return sum(costs.backward[s - 1] + (0 if s in recorded else costs.forward[s - 1]) for s in stages)

    start: State = (frozenset({0}), 0, frozenset(), N)
    best = {start: 0.0}
    queue = [(owed(start), next(order), 0.0, start)]
    while queue:
        _, _, spent, state = heapq.heappop(queue)
        if state[3] == 0:
            return spent
        if spent > best[state]:
            continue
        for work, peak, after in _moves(costs, state, schedules):
            total = spent + work
            if peak <= budget and total < best.get(after, float("inf")):
                best[after] = total
                heapq.heappush(queue, (total + owed(after), next(order), total, after))
    return float("inf")


def held(costs: Costs, state: State) -> int:
    """Bytes in memory by the rules of `simulate.Machine`, written a second time."""
    stored, passing, recorded, following = state
    N = costs.stages
    alive = set(stored) | {0} | ({passing} if passing >= 0 else set())
    alive |= {s - 1 for s in recorded if costs.saves_input[s - 1]}
    alive |= {s for s in recorded if costs.saves_output[s - 1]}
    if following == N and N in recorded:  # the caller's, from the forward pass on
        alive.add(N)
    total = costs.fixed + sum(costs.output[k] for k in alive) + sum(costs.saved[s - 1] for s in recorded)
    return total + (costs.gradient[following] if following < N else 0)


def _moves(costs: Costs, state: State, schedules: Class) -> Iterator[tuple[float, int, State]]:
    """(work, peak, next state) of every operation and drop."""
    stored, passing, recorded, following = state
    before = held(costs, state)
    if following in recorded:
        arriving = costs.gradient[following] if following == costs.stages else 0
        after = (stored, passing, recorded - {following}, following - 1)
        yield costs.backward[following - 1], before + arriving + costs.backward_peak[following - 1], after
    if passing >= 0 and passing not in stored:
        yield 0.0, before, (stored | {passing}, -1, recorded, following)
    if passing >= 0:
        yield 0.0, before, (stored, -1, recorded, following)
    for k in stored:
        if schedules == "free" or k + 1 in recorded or k >= following:
            yield 0.0, before, (stored - {k}, passing, recorded, following)
    if schedules == "free":
        for s in recorded:
            yield 0.0, before, (stored, passing, recorded - {s}, following)
    for k in stored | ({passing} if passing >= 0 else set()):
        stage = k + 1
        if stage > following or (passing not in (-1, k) and passing not in stored):
            continue  # done with; or another value passes, which must be dropped or stored first
        if schedules == "lazy" and k != passing and max((*stored, *recorded)) > k:
            continue
        yield costs.forward[stage - 1], before + costs.forward_peak[stage - 1], (stored, stage, recorded, following)
        if stage not in recorded:
            after = (stored, stage, recorded | {stage}, following)
            yield costs.forward[stage - 1], before + costs.save_peak[stage - 1], after
