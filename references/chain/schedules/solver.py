"""The least compute within a budget of bytes, for arbitrary costs per stage: the thesis' Alg. 3.4 mended and sharpened.

What is optimal, and among which schedules. A schedule is *persistent* if it keeps what it stores until that is used up:
a stored x_k until stage k + 1 is saved, a recording until its stage is run backward. It is *lazy* if it goes back to a
stored value only once all that is stored or recorded to its right is used up. Among all persistent lazy schedules of
the machine of `simulate`, nested or not, this one computes least; `search` checks that by shortest paths.

* Laziness costs nothing on a chain that is `Costs.steady`: every recording keeps at least the bytes of its stage's
  input and of that input's cotangent. Suppose that work on the left of k is done while something right of k is held:
  x_k, or the recording of k + 1. Neither is smaller than the cotangent of x_k, and that cotangent is all that remains
  once the right is used up. So the work on the left also fits later. The right also fits first, because nothing of the
  left is stored yet. On other chains, where a stage keeps almost nothing, early work can be cheaper; there are examples
  of three stages.
* Persistence can cost something on any chain: where sizes are very unequal, it can be cheaper to drop a stored value
  and compute it again (Beaumont et al., Optimal checkpointing for heterogeneous chains, 2019, also say so). No
  polynomial algorithm is known for schedules that do this, and the thesis does not consider them.

Derivation. Let W(i, j, m) be the least compute to run stages i+1 … j forward and backward when x_i is in memory, the
cotangent of x_j has arrived, and m bytes are left besides x_i. The cotangent is part of the m bytes (§3.1.6). Look at
what a persistent lazy schedule does first from x_i:

    saves i + 1     W = f + W(i+1, j, ·) + b, with the recording of i + 1 held all along
    does not        then some x_k is the first value after x_i to be stored, or used by the first save; all that
                    happens right of k then starts from x_k, and what happens left of it needs x_i only. So
                    W = f_{i+1} + … + f_k + W(k, j, m − |x_k|) + W(i, k, m)

The thesis has the second choice only, because its f_l already means the recording. Here recordings and values are
separate (`costs`), so both choices are needed. Three refinements make the bytes equal to those of the machine:

* During the forward pass no cotangent of x_N exists yet: |g_j| counts from stage j's backward on if j = N.
* Saving i + 1 releases x_i where neither the recording nor anything else keeps it. So W has a variant: `released`.
* x_{i+1} costs nothing to hold where the recording of i + 1 keeps its output.

Where stages hand tensors on (`costs.Sharing`), values have storages in common. A tensor is needed between its first and
its last use. So what x_k has in common with values further left, it has in common with x_i, the nearest that is held,
and storing it costs only the rest of x_k. One thing is not known: whether a tensor that ends at a stage is also held
further left, by a stored value or a recording, so that saving the stage does not release it. W is therefore solved
twice: as if nothing further left held it, which is a lower bound, and as if everything did that was handed on, which is
an upper bound. The schedules of both are simulated for a range of budgets, and of those whose exact bytes fit, the
cheapest is taken (`Candidates`). It need not be optimal.

The quadratic "recompute everything" needs no case of its own: it is k = j − 1 at each step.

Cost: N³/6 · M additions and minima, M the number of slots, vectorised over k and M. Tables: 8 bytes × (N²/2) × M, see
`table_bytes`. Choices are not stored; they are found again on the way down, which costs N · M per segment visited.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from gradgate.references.chain.schedules.costs import Costs, Sharing
from gradgate.references.chain.schedules.schedule import Plan, Save, Schedule, Split, Unit, saved
from gradgate.references.chain.schedules.simulate import simulate
from gradgate.references.contract import IllegalOption, check_integer

FEWEST, MOST = 500, 8_000
"""Bounds of the number of slots into which a budget is cut if none are given: as many as keep N³ · slots below `WORK`,
but no fewer and no more than these."""
WORK = 5e8
BUDGETS = 24
"""How many budgets are tried where stages hand tensors on."""
NEIGHBOURS = 600
"""How many neighbours of a schedule are tried, for the least bytes."""
NEAR = (0.94, 0.97, 1.0, 1.03, 1.06, 1.1)
"""What is tried besides, as shares of the budget."""


class BudgetTooSmall(IllegalOption):
    """No persistent lazy schedule fits the budget.

    Cause: even the schedule of least memory needs more. Remedy: `minimum` is the least budget that suffices.

    Attributes:
        minimum: bytes.
    """

    def __init__(self, budget: int, minimum: int, because: str = "") -> None:
        super().__init__(f"a budget of {budget} bytes is too small: at least {minimum} are needed{because}")
        self.minimum = minimum


def precise_dp(costs: Costs, budget: int, slot: int | None = None) -> Schedule:
    """The persistent lazy schedule of least compute whose peak is at most `budget`.

    Args:
        costs: of the chain.
        budget: bytes; x_0 and `Costs.fixed` count towards it.
        slot: bytes per slot; every size is rounded up to a multiple of it. The budget holds for any slot. The optimum
            is exact for 1 and for a common divisor of all sizes. None: as many slots as take about a second, none
            smaller than the greatest common divisor; if no schedule fits with these, slots of a quarter of that size.

    Raises:
        IllegalOption: budget or slot is not an integer of at least 1.
        BudgetTooSmall: states the least budget that suffices: in bytes, or with such slots.

    Source: Alg. 3.4, corrected as `paper.as_printed` says; the module's docstring derives it and states its cost.
    """
    budget = check_integer("budget", budget, 1)
    slot = None if slot is None else check_integer("slot", slot, 1)
    if costs.sharing is not None:
        return _candidates(costs, slot).within(budget)
    least = minimum_budget(costs)
    if budget < least:
        raise BudgetTooSmall(budget, least)
    everything = Schedule.of(saved(0, costs.stages))
    if simulate(everything, costs).peak <= budget:
        return everything
    if slot is not None:
        found = _solved(costs, budget, slot)
        if found is None:
            least = minimum_budget(costs.in_slots(slot)) * slot
            raise BudgetTooSmall(
                budget, least, f" when sizes are rounded up to slots of {slot} bytes; choose smaller slots"
            )
        return found
    slot = _slot(costs, budget)
    for finer in (1, 4):  # near the least budget, only the rounding may keep a schedule from fitting
        found = _solved(costs, budget, max(1, slot // finer))
        if found is not None:
            return found
    return least_memory(costs)


def _slot(costs: Costs, budget: int) -> int:
    """Bytes per slot with which a budget takes about a second to solve for."""
    slots = int(min(max(WORK / costs.stages**3, FEWEST), MOST))
    return max(costs.divisor(), budget // slots)


class Candidates:
    """Schedules of a chain whose stages hand tensors on, with their exact peaks.

    Args:
        costs: with `Costs.sharing`.
        slot: bytes per slot; None: as in `precise_dp`.

    Cost: the tables of `precise_dp` are made once, for the largest budget; a schedule is read from them for each of
    `BUDGETS` smaller ones, and for some close to the one that is asked for.
    """

    def __init__(self, costs: Costs, slot: int | None = None) -> None:
        self.costs = costs
        self._found: dict[Schedule, tuple[int, float]] = {}
        everything = Schedule.of(saved(0, costs.stages))
        self._add(everything)
        minima = [Minima(costs, releases) for releases in (True, False)]
        for each in minima:
            self._add(Schedule.of(each.plan()))
            self._add(Schedule.of(each.plan(saves=False)))
        low = min(each.best for each in minima)
        self._improve(Schedule.of(minima[0].plan()).plan(), low)
        high = max(low, self._found[everything][0])
        self._slot = slot = _slot(costs, high) if slot is None else slot
        self._tables = [Tables(costs.in_slots(slot), high // slot, releases) for releases in (True, False)]
        for n in range(BUDGETS):
            self._try(low + (high - low) * n // (BUDGETS - 1))
        self.least = min(peak for peak, _ in self._found.values())

    def _add(self, schedule: Schedule) -> None:
        if schedule not in self._found:
            found = simulate(schedule, self.costs)
            self._found[schedule] = found.peak, found.compute

    def _improve(self, plan: Plan, bound: int) -> None:
        """Add schedules of lower peaks, each a neighbour of the one before; `bound` is a lower bound of the peak.

        A neighbour runs some stages that are saved one after another only forward, and saves them later.
        """

        def excess(candidate: Plan) -> float:
            schedule = Schedule.of(candidate)
            found = simulate(schedule, self.costs)
            self._found[schedule] = found.peak, found.compute
            return sum(max(step.peak - bound, 0) for step in found.steps)

        now, tries = excess(plan), NEIGHBOURS
        while now:
            best = plan
            for candidate in itertools.islice(_later(plan), tries):
                tries -= 1
                above = excess(candidate)
                if above < now:
                    now, best = above, candidate
            if best is plan or not tries:
                return
            plan = best

    def _try(self, budget: int) -> None:
        for tables in self._tables:
            schedule = tables.schedule(budget // self._slot)
            if schedule is not None:
                self._add(schedule)

    def within(self, budget: int) -> Schedule:
        """The cheapest that fits, the smallest of equally cheap ones; raises BudgetTooSmall."""
        for share in NEAR:
            self._try(int(budget * share))
        fitting = [(compute, peak, n) for n, (peak, compute) in enumerate(self._found.values()) if peak <= budget]
        if not fitting:
            raise BudgetTooSmall(budget, self.least)
        return list(self._found)[min(fitting)[2]]

    def smallest(self) -> Schedule:
        """The one of least peak, the cheapest of those."""
        return min(self._found, key=lambda schedule: self._found[schedule])


def _later(plan: Plan) -> Iterator[Plan]:
    """Plans in which some stages that are saved one after another are saved later, from the value before them."""
    if isinstance(plan, Split):
        yield from (Split(left, plan.right) for left in _later(plan.left))
        yield from (Split(plan.left, right) for right in _later(plan.right))
    elif isinstance(plan, Save):
        rest = plan.rest
        while True:
            yield Split(saved(plan.start, rest.start), rest)
            if not isinstance(rest, Save):
                break
            rest = rest.rest
        if isinstance(rest, Split):  # all that is saved before the split is saved after its right side
            left: Plan = rest.left
            for start in reversed(range(plan.start, rest.start)):
                left = Save(start, left)
            yield Split(left, rest.right)
        yield from (Save(plan.start, rest) for rest in _later(plan.rest))


_candidates = functools.lru_cache(maxsize=8)(Candidates)


def _solved(costs: Costs, budget: int, slot: int) -> Schedule | None:
    tables = Tables(costs.in_slots(slot), budget // slot)
    return Schedule.of(tables.plan()) if np.isfinite(tables.best) else None


def least_memory(costs: Costs) -> Schedule:
    """A persistent lazy schedule of the least peak; its compute is not minimised. Cost: as `minimum_budget`.

    Where stages hand tensors on, it is the one of least peak among those that `Candidates` finds.
    """
    if costs.sharing is not None:
        return _candidates(costs).smallest()
    return Schedule.of(Minima(costs).plan())


def minimum_budget(costs: Costs) -> int:
    """The least peak, in bytes, of any persistent lazy schedule, exact: the least memory to solve for (§3.1.10).

    Where stages hand tensors on, it is the least of those that `Candidates` finds.

    Cost: N³/6 comparisons, vectorised, and N² numbers; no slots.
    """
    if costs.sharing is not None:
        return _candidates(costs).least
    return max(Minima(costs).best, costs.first_peak)


def table_bytes(costs: Costs, slots: int) -> int:
    """Bytes of the tables of `precise_dp` for costs in slots.

    A float64 per slot and pair i < j, and as many again for the pairs whose i can be entered in two ways.
    """
    z = _Sizes(costs)
    rows = z.N * (z.N + 1) // 2 + sum(z.N - i + 1 for i in range(z.N) if i == 0 or len(z.variants(i)) > 1)
    return 8 * (rows + 3 * (z.N + 1)) * (max(slots - int(z.x[0]) - costs.fixed, 0) + 1)


class _Sizes:
    """Costs as arrays, indexed by stage 1 … N and value 0 … N, and the peaks that every solver needs."""

    def __init__(self, costs: Costs) -> None:
        def by_stage(values: Any, kind: Any = np.int64) -> Any:
            return np.concatenate([[0], np.asarray(values, kind)])

        self.costs, self.N = costs, costs.stages
        self.f, self.b = by_stage(costs.forward, float), by_stage(costs.backward, float)
        self.x, self.g = np.asarray(costs.output, np.int64), np.asarray(costs.gradient, np.int64)
        self.keeps_input, self.keeps_output = by_stage(costs.saves_input), by_stage(costs.saves_output)
        self.keeps_output[self.N] = 1  # x_N is the caller's
        self.recording = by_stage(costs.saved) + self.keeps_output * self.x
        self.forward_peak, self.save_peak = by_stage(costs.forward_peak), by_stage(costs.save_peak)
        self.backward_peak = by_stage(costs.backward_peak)
        self.waiting = self.g.copy()
        self.waiting[self.N] = 0  # no cotangent of x_N exists during the forward pass

    def variants(self, i: int) -> tuple[int, ...]:
        """The possible `released` bytes of segments that start at i; the first is for an x_i that is stored.

        A stored x_i is released by saving i + 1 unless the recording keeps it. An x_i that the caller or the recording
        of stage i holds is never released.
        """
        stored = 0 if self.keeps_input[i + 1] or i == 0 else int(self.x[i])
        held = i > 0 and self.keeps_output[i]
        return (stored, 0) if held and stored else (stored,)

    def entered_by_save(self, i: int) -> int:
        """The index in `variants(i)` for a segment that is entered by saving stage i."""
        return len(self.variants(i)) - 1

    def sweep_peaks(self, i: int) -> Any:
        """The most bytes, besides x_i and cotangents, of a forward from x_i to x_k, for k = i + 1 … N."""
        above = self.forward_peak[i + 1 :].copy()
        above[1:] += self.x[i + 1 : self.N]
        return np.maximum.accumulate(above)

    def save_needs(self, i: int, released: int) -> tuple[int, int]:
        """Bytes needed besides x_i: to save stage i + 1, cotangents not counted; and to run it backward."""
        s = i + 1
        return int(self.save_peak[s]), int(self.recording[s] + self.g[s] + self.backward_peak[s]) - released

    def left_after_save(self, i: int, released: int) -> int:
        """How many fewer bytes are left besides x_{i+1}, once stage i + 1 is saved, than were left besides x_i."""
        s = i + 1
        holding = 0 if self.keeps_output[s] else int(self.x[s])
        return int(self.recording[s]) + holding - released

    def stored(self, i: int) -> Any:
        """Bytes that storing x_k takes while x_i is held, for k = i + 1 … N."""
        return self.x[i + 1 :]

    @classmethod
    def of(cls, costs: Costs, releases: bool = True) -> _Sizes:
        """Those of a chain."""
        return cls(costs) if costs.sharing is None else _SharedSizes(costs, costs.sharing, releases)


class _SharedSizes(_Sizes):
    """The same where stages hand tensors on: no storage is counted twice.

    `releases`: whether a tensor that was handed on is held by nothing further left, so that its last reader frees it.
    """

    def __init__(self, costs: Costs, sharing: Sharing, releases: bool) -> None:
        super().__init__(costs)
        self._releases = releases
        self._of = sharing.nbytes
        values, kept = [set(value) for value in sharing.values], [set[int](), *map(set, sharing.recorded)]
        kept[self.N] |= values[self.N]  # x_N is the caller's
        self._values, self._kept = values, kept
        own = np.concatenate([[0], np.asarray(sharing.saved, np.int64)])
        stages = range(1, self.N + 1)
        new = [0, *(self._of(kept[s] - values[s - 1]) for s in stages)]
        self.recording = own + np.asarray(new, np.int64)
        self._after = own + np.asarray(
            [0, *(self._of((kept[s] | values[s]) - values[s - 1]) for s in stages)], np.int64
        )
        self.forward_peak = np.concatenate([[0], np.asarray(sharing.forward_peak, np.int64)])
        self.save_peak = np.concatenate([[0], np.asarray(sharing.save_peak, np.int64)])
        self._stored = [
            np.asarray([self._of(values[k] - values[i]) for k in range(i + 1, self.N + 1)], np.int64)
            for i in range(self.N + 1)
        ]

    def _released(self, i: int, v: int, following: bool) -> int:
        """Bytes of x_i that saving stage i + 1 lets go; while x_{i+1} is in memory (`following`), and later."""
        held = self._kept[i + 1] | (self._values[i + 1] if following else set())
        held |= self._values[0] | (self._kept[i] if v and i else set())
        if i and not self._releases:
            held |= self._values[i - 1]
        return self._of(self._values[i] - held)

    def variants(self, i: int) -> tuple[int, ...]:
        """The numbers of the ways to enter at i: from a stored x_i, and by saving stage i."""
        return (0, 1) if i else (0,)

    def sweep_peaks(self, i: int) -> Any:
        above = self.forward_peak[i + 1 :].copy()
        above[1:] += self._stored[i][:-1]
        return np.maximum.accumulate(above)

    def save_needs(self, i: int, released: int) -> tuple[int, int]:
        s = i + 1
        backward = self.recording[s] + self.g[s] + self.backward_peak[s] - self._released(i, released, False)
        return int(self.save_peak[s]), int(backward)

    def left_after_save(self, i: int, released: int) -> int:
        return int(self._after[i + 1]) - self._released(i, released, True)

    def stored(self, i: int) -> Any:
        return self._stored[i]


class Minima:
    """The least m for which W(i, j, m) is finite, for every segment and variant; `releases` as in `_SharedSizes`."""

    def __init__(self, costs: Costs, releases: bool = True) -> None:
        self.sizes = z = _Sizes.of(costs, releases)
        N = z.N
        self.least = {(i, v): np.zeros(N + 1, np.int64) for i in range(N) for v in range(len(z.variants(i)))}
        self.entered = np.zeros((N + 1, N + 1), np.int64)  # [j, k]: least of (k, j) entered from a stored x_k
        for i in range(N - 1, -1, -1):
            sweep = z.sweep_peaks(i)
            for v in range(len(z.variants(i))):
                row = self.least[i, v]
                for j in range(i + 1, N + 1):
                    row[j] = self._save(i, j, v)
                    if j > i + 1:
                        row[j] = min(row[j], self._splits(i, j, row, sweep).min())
            self.entered[i + 1 :, i] = self.least[i, 0][i + 1 :]

    @property
    def best(self) -> int:
        """The least budget of the whole chain."""
        return int(self.least[0, 0][self.sizes.N] + self.sizes.x[0] + self.sizes.costs.fixed)

    def _save(self, i: int, j: int, v: int) -> int:
        z = self.sizes
        released = z.variants(i)[v]
        save, backward = z.save_needs(i, released)
        need = max(save + int(z.waiting[j]), backward)
        if j == i + 1:
            return need
        return max(need, int(self.least[i + 1, z.entered_by_save(i + 1)][j]) + z.left_after_save(i, released))

    def _splits(self, i: int, j: int, row: Any, sweep: Any) -> Any:
        """The bytes that a split needs, for each k = i + 1 … j − 1."""
        right = self.entered[j, i + 1 : j] + self.sizes.stored(i)[: j - i - 1]
        return np.maximum(np.maximum(right, row[i + 1 : j]), sweep[: j - i - 1] + self.sizes.waiting[j])

    def plan(self, saves: bool = True) -> Plan:
        """A plan that reaches the least budget; where a stage may be saved or not, it is saved if `saves`."""
        return _descend(self.sizes.N, self._choice if saves else self._split)

    def _choice(self, i: int, j: int, v: int, _: int) -> tuple[int, int, int]:
        row = self.least[i, v]
        if self._save(i, j, v) <= row[j]:
            return 0, 0, 0
        return i + 1 + int(self._splits(i, j, row, self.sizes.sweep_peaks(i)).argmin()), 0, 0

    def _split(self, i: int, j: int, v: int, _: int) -> tuple[int, int, int]:
        needs = self._splits(i, j, self.least[i, v], self.sizes.sweep_peaks(i))
        return (0, 0, 0) if needs.min() > self.least[i, v][j] else (i + 1 + int(needs.argmin()), 0, 0)


class Tables:
    """W(i, j, m) for m = 0 … M slots left besides x_0, infinite where nothing fits.

    Args:
        costs: in slots.
        slots: the budget in slots.
        releases: as in `_SharedSizes`; of no effect where no stage hands a tensor on.
    """

    def __init__(self, costs: Costs, slots: int, releases: bool = True) -> None:
        self.sizes = z = _Sizes.of(costs, releases)
        N = z.N
        self.M = slots - int(z.x[0]) - costs.fixed
        width = max(self.M, 0) + 1
        # right[j][k, m]: W(k, j, m − |x_k|), from a stored x_k; m counts x_k, so that rows of different k line up.
        # Where values share storages, what x_k costs depends on i too: then m does not count it, and rows are shifted.
        self.right = [np.full((j, width), np.inf) for j in range(N + 1)]
        self.pinned: dict[int, Any] = {}  # rows j − i of segments entered by saving i, where they differ
        for i in range(N - 1, -1, -1):
            for v in reversed(range(len(z.variants(i)))):
                rows = self._rows(i, v)
                if v or i == 0:
                    self.pinned[i] = rows
                if v == 0:
                    self._store(i, rows)
        self.best = float(self.pinned[0][N, -1]) if self.M >= 0 else float("inf")

    def _store(self, i: int, rows: Any) -> None:
        size = self._counted(i)
        for j in range(i + 1, self.sizes.N + 1):
            row = self.right[j][i]
            if size < len(row):
                row[size:] = rows[j - i][: len(row) - size]

    def _counted(self, k: int) -> int:
        """How many slots for x_k the rows of `right` count."""
        return int(self.sizes.x[k]) if self.sizes.costs.sharing is None else 0

    def _right(self, i: int, j: int) -> Any:
        """W(k, j, ·) once x_k is stored beside x_i, in a row for each k = i + 1 … j − 1."""
        if self.sizes.costs.sharing is None:
            return self.right[j][i + 1 : j]
        rows = np.full((j - i - 1, max(self.M, 0) + 1), np.inf)
        for row, table, size in zip(rows, self.right[j][i + 1 : j], self.sizes.stored(i), strict=False):
            row[size:] = table[: max(len(row) - size, 0)]
        return rows

    def _rows(self, i: int, v: int) -> Any:
        """W(i, j, ·) as row j − i of one array; needs all segments that start right of i."""
        z, width = self.sizes, max(self.M, 0) + 1
        rows = np.full((z.N - i + 1, width), np.inf)
        swept = np.full((z.N - i + 1, width), np.inf)  # row k − i: forward from x_i to x_k, and W(i, k, ·)
        sweep, forward = z.sweep_peaks(i), np.cumsum(z.f[i + 1 :])
        first = np.full(z.N - i + 1, width)  # the first finite m of each row of `swept`
        for n, row in enumerate(rows[1:], 1):
            j = i + n
            self._save_into(row, i, j, v)
            if n > 1:
                both = swept[1:n] + self._right(i, j)
                needs = sweep[: n - 1] + z.waiting[j]
                for k in np.flatnonzero(needs > first[1:n]):  # for other k, W is infinite below that anyway
                    both[k, : needs[k]] = np.inf
                np.minimum(row, both.min(axis=0), out=row)
            np.add(row, forward[n - 1], out=swept[n])
            finite = np.isfinite(row)
            first[n] = int(finite.argmax()) if finite.any() else width
        return rows

    def _save_into(self, row: Any, i: int, j: int, v: int) -> None:
        z, released = self.sizes, self.sizes.variants(i)[v]
        save, backward = z.save_needs(i, released)
        need = max(save + int(z.waiting[j]), backward, 0)
        if need >= len(row):
            return
        work = z.f[i + 1] + z.b[i + 1]
        row[need:] = work if j == i + 1 else work + self._after_save(i, j, released, need, len(row))

    def _after_save(self, i: int, j: int, released: int, low: int, high: int) -> Any:
        """W(i + 1, j, ·) with what is left of m = low … high − 1 once stage i + 1 is saved."""
        z, result = self.sizes, np.full(high - low, np.inf)
        if z.entered_by_save(i + 1):
            table, shift = self.pinned[i + 1][j - i - 1], z.left_after_save(i, released)
        else:
            table, shift = self.right[j][i + 1], z.left_after_save(i, released) - self._counted(i + 1)
        start = max(low, shift)
        stop = min(high, len(table) + shift)
        if start < stop:
            result[start - low : stop - low] = table[start - shift : stop - shift]
        if z.costs.sharing is not None:  # more may be released than is there, because that is not exact
            result[max(stop - low, 0) :] = table[-1]
        return result

    def plan(self) -> Plan:
        """The plan of least compute, its choices found again from the tables."""
        return _descend(self.sizes.N, self._choice, self.M)

    def schedule(self, slots: int) -> Schedule | None:
        """The schedule of least compute within at most so many slots as the tables have, or None: none fits."""
        m = min(slots - int(self.sizes.x[0]) - self.sizes.costs.fixed, self.M)
        if m < 0 or not np.isfinite(self.pinned[0][self.sizes.N, m]):
            return None
        return Schedule.of(_descend(self.sizes.N, self._choice, m))

    def _value(self, i: int, j: int, v: int, m: int) -> float:
        if v == len(self.sizes.variants(i)) - 1 and i in self.pinned:
            return float(self.pinned[i][j - i, min(m, self.M)])
        return float(self.right[j][i, min(m + self._counted(i), self.M)])

    def _choice(self, i: int, j: int, v: int, m: int) -> tuple[int, int, int]:
        """K of the best split of (i, j), 0 to save i + 1, and the slots left on the right and on the left."""
        z = self.sizes
        released = z.variants(i)[v]
        m = min(m, self.M)
        row, stored = np.full(m + 1, np.inf), z.stored(i)
        self._save_into(row, i, j, v)
        best, choice = row[m], (0, m - z.left_after_save(i, released), 0)
        forward, sweep = np.cumsum(z.f[i + 1 : j]), z.sweep_peaks(i)
        for k in range(i + 1, j):
            if sweep[k - i - 1] + z.waiting[j] <= m and stored[k - i - 1] <= m:
                size = int(stored[k - i - 1])
                value = forward[k - i - 1] + self._value(k, j, 0, m - size) + self._value(i, k, v, m)
                if value < best:
                    best, choice = value, (k, m - size, m)
        return choice


def _descend(N: int, choose: Any, m: int = 0) -> Plan:
    """The plan that `choose` (i, j, variant, m) -> (k or 0, m right, m left) leads to; a loop, as chains are long."""
    entered_by_save = choose.__self__.sizes.entered_by_save
    root: list[Plan] = []
    todo: list[Any] = [(0, N, 0, m)]
    while todo:
        item = todo.pop()
        if item == "split":
            right = root.pop()
            root.append(Split(root.pop(), right))
        elif item[0] == "save":
            root.append(Save(item[1], root.pop()))
        else:
            i, j, v, m = item
            if j == i + 1:
                root.append(Unit(i))
                continue
            k, right, left = choose(i, j, v, m)
            if k:
                todo += ["split", (k, j, 0, right), (i, k, v, left)]
            else:
                todo += [("save", i), (i + 1, j, entered_by_save(i + 1), right)]
    return root[0]
