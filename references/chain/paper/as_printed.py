"""The thesis' solver and equations as printed, one misprint at a time, and the walks over its machine that judge them.

Algorithm 3.4 is for chains whose forward tensor f_l is value and recording in one; b_l is the cotangent. `solve` is
that algorithm in plain loops, with every misprint corrected; `misprints` puts single ones back. The algorithm states a
cost. `reachable` finds the least cost by shortest paths over the same machine. Line 37 prints β^b in place of β^f, too,
but its result is never read.

`recompute_peak` is Eq. 3.4, `recompute_compute` is Alg. 3.3; `recompute_walk` runs the strategy that both are about.
`uniform_table` is Alg. 2.1.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

INFINITE = float("inf")
FAILED = INFINITE
Misprint: TypeAlias = Literal["compute", "overwritten", "left", "failure", "m_min"]
MISPRINTS: dict[Misprint, str] = {
    "compute": "Alg. 3.4, line 8: c ← β_i^b, memory for the compute α_i^b",
    "overwritten": "Alg. 3.3, line 6: compute_quad ← its last term, which must be added",
    "left": "Alg. 3.4, line 50: peak_L ← B[i][j][m − 1], where the left subproblem is (i, k)",
    "failure": "§3.1.9 and Alg. 3.4, line 65: where (i, j) fails, 'all i', j' where i' ≤ i and j' ≥ j must fail too'",
    "m_min": "§3.1.10: 'every (i, j, m) subproblem for m ≤ m_min is guaranteed to fail', and the loop starts there",
}
"""Name -> what is printed. The second changes nothing alone: as long as k = j − 1 is tried, its case is not reached."""


@dataclass(frozen=True)
class Printed:
    """Costs in the thesis' letters: lists over 0 … N + 1; α^f_0, α^f_{N+1} and β^f_{N+1} are not used.

    Stage l = 1 … N takes f_{l-1} to f_l; the backward of l takes f_l and b_{l+1} to b_l, l = 0 … N.
    """

    alpha_f: Sequence[float]
    alpha_b: Sequence[float]
    beta_f: Sequence[int]
    beta_b: Sequence[int]

    @property
    def N(self) -> int:
        """Stages."""
        return len(self.alpha_f) - 2


Table: TypeAlias = list[list[list[float]]]


class Stated(NamedTuple):
    """What Alg. 3.4 states, and what its policy takes.

    Attributes:
        compute: in the units of the costs; infinite where it says that no policy fits.
        peak: slots, f_0 among them; infinite where no policy fits.
        walked: the peak of the policy, by a walk that does not look at what is stated; infinite without a policy.
    """

    compute: float
    peak: float
    walked: float


def solve(
    p: Printed, budget: int, misprints: Collection[Misprint] = (), *, fallback: bool = True, peaks: bool = True
) -> Stated:
    """What Alg. 3.4 states of the whole chain.

    Args:
        p: the costs.
        budget: memory M, in slots, an integer.
        misprints: names of MISPRINTS that are left as printed; the others are corrected. B and C start as 0 and ∞,
            which is the most favourable reading of "left". What "m_min" leaves out counts as failed.
        fallback: whether everything is recomputed where every k fails, as lines 63 to 69 say.
        peaks: False: B only marks what has failed; the peaks in it are not compared with the budget.

    Source:
        Algs. 3.3 and 3.4, §3.1.10.

    Stores:
        3·N²·M numbers.

    Computes:
        N³·M/6 steps of a Python loop.
    """
    N, M = p.N, budget - p.beta_f[0]
    if M < 0:
        return Stated(INFINITE, INFINITE, INFINITE)
    tables = _Tables(p, M, misprints, fallback, peaks)
    if tables.B[0][N + 1][M] == FAILED or tables.C[0][N + 1][M] == INFINITE:
        return Stated(INFINITE, INFINITE, INFINITE)
    f_0 = p.beta_f[0]
    return Stated(tables.C[0][N + 1][M], tables.B[0][N + 1][M] + f_0, f_0 + tables.walk(0, N + 1, M))


def curve(p: Printed, budget: int, misprints: Collection[Misprint] = ()) -> list[float]:
    """The compute that Alg. 3.4 states for 0 … `budget` slots, all from one table; infinite where no policy fits.

    Args:
        p: the costs.
        budget: the most slots.
        misprints: as of `solve`.

    Source:
        Algs. 3.3 and 3.4, §3.1.10.

    Computes:
        As `solve` once.
    """
    tables, f_0 = _Tables(p, budget - p.beta_f[0], misprints), p.beta_f[0]
    return [INFINITE] * f_0 + tables.C[0][p.N + 1]


def policy(p: Printed, budget: int) -> Callable[[int, int, int], int]:
    """D of Alg. 3.4, corrected: (i, j, m) -> k, where m counts b_j and not f_i, as the tables do.

    Args:
        p: the costs.
        budget: the most slots, f_0 among them.

    Source:
        Algs. 3.3 and 3.4.

    Computes:
        As `solve` once.
    """
    tables = _Tables(p, budget - p.beta_f[0], ())
    return lambda i, j, m: int(tables.D[i][j][m])


class _Tables:
    """B, C and D of Alg. 3.4, indexed by i, j and m; D holds k, or 0 where everything is recomputed."""

    def __init__(
        self, p: Printed, M: int, misprints: Collection[Misprint], fallback: bool = True, peaks: bool = True
    ) -> None:
        def table(value: float) -> Table:
            return [[[value] * (M + 1) for _ in range(p.N + 2)] for _ in range(p.N + 1)]

        self.p, self.misprints, self.fallback, self.peaks = p, misprints, fallback, peaks
        self.B, self.C, self.D = table(FAILED if "m_min" in misprints else 0), table(INFINITE), table(0)
        for m in range(recompute_peak(p, 0, p.N + 1) if "m_min" in misprints else 0, M + 1):
            for i in range(p.N, -1, -1):
                self.row(i, m)

    def fail(self, i: int, first: int, last: int, m: int) -> None:
        """Mark (i, first … last) as failed."""
        for j in range(first, last + 1):
            self.B[i][j][m] = FAILED

    def row(self, i: int, m: int) -> None:
        """Solve (i, j, m) for every j: the body of the loop over i."""
        p, N, wrong = self.p, self.p.N, self.misprints
        bf, bb, B, C = p.beta_f, p.beta_b, self.B, self.C
        base = bb[i] + bb[i + 1]
        if base > m:
            self.fail(i, i + 1, N + 1, m)
            return
        B[i][i + 1][m], C[i][i + 1][m] = base, bb[i] if "compute" in wrong else p.alpha_b[i]
        sweep, quadratic, sweep_peak, peak = 0.0, C[i][i + 1][m], 0, base
        for j in range(i + 2, N + 2):
            sweep += p.alpha_f[j - 1]
            quadratic = sweep + p.alpha_b[j - 1] + (0 if "overwritten" in wrong else quadratic)
            sweep_peak = max(sweep_peak, (0 if j - 2 == i else bf[j - 2]) + bf[j - 1])
            peak = max(peak, bb[j] + sweep_peak, bf[j - 1] + bb[j] + bb[j - 1])
            if self.checkpoint(i, j, m):
                continue
            if peak > m or not self.fallback:
                self.fail(i, j, N + 1 if "failure" in wrong else j, m)
                if "failure" in wrong:
                    return
                continue
            B[i][j][m], C[i][j][m], self.D[i][j][m] = peak, quadratic, 0

    def checkpoint(self, i: int, j: int, m: int) -> bool:
        """Try every k: the innermost loop; whether one of them works."""
        bf, bb, B, C = self.p.beta_f, self.p.beta_b, self.B, self.C
        best, works, forward, forward_peak = INFINITE, False, 0.0, 0
        for k in range(i + 1, j):
            forward += self.p.alpha_f[k]
            forward_peak = max(forward_peak, (0 if k - 1 == i else bf[k - 1]) + bf[k])
            if bb[j] + forward_peak > m or m - bf[k] < 0:
                continue
            right, left = B[k][j][m - bf[k]], B[i][j if "left" in self.misprints else k][m]
            most = max(bb[j] + forward_peak, bf[k] + right, left)
            if FAILED in (right, left) or (self.peaks and most > m):
                continue
            works = True
            cost = forward + C[k][j][m - bf[k]] + C[i][k][m]
            if cost < best:
                best, B[i][j][m], C[i][j][m], self.D[i][j][m] = cost, most, cost, k
        return works

    def walk(self, i: int, j: int, m: int) -> float:
        """The most slots besides f_i while the policy of (i, j, m) runs; b_j is included."""
        p, k = self.p, int(self.D[i][j][m])
        if j == i + 1 or not k:
            return recompute_walk(p, i, j)[1]
        sweep = max(p.beta_f[i + 1], *(p.beta_f[n - 1] + p.beta_f[n] for n in range(i + 2, k + 1)), 0)
        right = p.beta_f[k] + self.walk(k, j, m - p.beta_f[k])
        return max(p.beta_b[j] + sweep, right, self.walk(i, k, m))


def reachable(p: Printed, budget: int) -> float:
    """The least compute by shortest paths over what the thesis' machine holds: the oracle of `solve`.

    The machine holds f_0, any f_k that are stored, and one cotangent b_j. While it sweeps forward it holds one f_l
    more, and during a step the next one. A backward step from b_{l+1} to b_l needs f_l.

    Args:
        p: the costs.
        budget: memory, in slots.

    Returns:
        The compute, in the units of `p`; infinite where no schedule fits.

    Computes:
        Exponential in N.
    """
    N = p.N
    start = (frozenset[int](), -1, N + 1)  # stored, the passing f, the cotangent at hand
    best, queue = {start: 0.0}, [(0.0, 0, start)]
    order = 0
    while queue:
        spent, _, state = heapq.heappop(queue)
        stored, passing, at = state
        if at == 0:
            return spent
        if spent > best[state]:
            continue
        here = p.beta_f[0] + sum(p.beta_f[k] for k in stored) + p.beta_b[at]
        moves: list[tuple[float, int, tuple[frozenset[int], int, int]]] = []
        extra = p.beta_f[passing] if passing > 0 else 0
        if at - 1 in stored | {0, passing}:
            moves.append((p.alpha_b[at - 1], here + extra + p.beta_b[at - 1], (stored - {at - 1}, -1, at - 1)))
        if passing > 0:
            moves.append((0.0, here + extra, (stored | {passing}, -1, at)))
        for k in [passing] if passing >= 0 else [max(stored, default=0)]:
            if k + 1 < at:
                moves.append((p.alpha_f[k + 1], here + extra + p.beta_f[k + 1], (stored, k + 1, at)))
        for work, peak, after in moves:
            if peak <= budget and spent + work < best.get(after, INFINITE):
                best[after] = spent + work
                order += 1
                heapq.heappush(queue, (spent + work, order, after))
    return INFINITE


def recompute_peak(p: Printed, i: int, j: int, *, first_counted: bool = False, short: bool = False) -> int:
    """Eq. 3.4: the peak of recomputing everything on (i, j), f_i not counted.

    Args:
        p: the costs.
        i, j: the ends of the segment, 0 ≤ i < j ≤ N + 1.
        first_counted: True: the last term runs over i ≤ l, as printed, and so counts f_i.
        short: True: the sweep to f_{j'} runs over l < j', as printed, and so ends one step early.

    Returns:
        The peak, in slots.

    Source:
        Eq. 3.4.
    """
    bf, bb = p.beta_f, p.beta_b
    sweeps = [
        bb[stop + 1] + max([bf[i + 1], *(bf[n - 1] + bf[n] for n in range(i + 2, stop + (not short)))])
        for stop in range(i + 1, j)
    ]
    backwards = [(bf[n] if n > i or first_counted else 0) + bb[n + 1] + bb[n] for n in range(i, j)]
    return max(sweeps + backwards)


def recompute_compute(p: Printed, i: int, j: int, *, overwritten: bool = False) -> float:
    """Alg. 3.3: the compute of recomputing everything on (i, j), carried along as j moves right.

    Args:
        p: the costs.
        i, j: the ends of the segment, 0 ≤ i < j ≤ N + 1.
        overwritten: True: line 6 sets compute_quad to its last term, as printed, where it must add it.

    Returns:
        The compute, in the units of `p`.

    Source:
        Alg. 3.3.
    """
    sweep, compute = 0.0, p.alpha_b[i]
    for end in range(i + 2, j + 1):
        sweep += p.alpha_f[end - 1]
        compute = sweep + p.alpha_b[end - 1] + (0 if overwritten else compute)
    return compute


def recompute_walk(p: Printed, i: int, j: int) -> tuple[float, int]:
    """Recompute everything on (i, j), step by step: the oracle of Eq. 3.4 and of Alg. 3.3.

    Args:
        p: the costs.
        i, j: the ends of the segment, 0 ≤ i < j ≤ N + 1.

    Returns:
        The compute, and the most slots held at once; f_i, which is given, is not counted.
    """
    compute, peak = 0.0, 0
    for stop in range(j - 1, i - 1, -1):  # from f_i to f_stop, holding b_{stop + 1}; then back to b_stop
        held = 0
        for n in range(i + 1, stop + 1):
            compute += p.alpha_f[n]
            peak, held = max(peak, p.beta_b[stop + 1] + held + p.beta_f[n]), p.beta_f[n]
        compute += p.alpha_b[stop]
        peak = max(peak, held + p.beta_b[stop + 1] + p.beta_b[stop])
    return compute, peak


def uniform_table(longest: int, slots: int, *, bounded: bool = False) -> dict[tuple[int, int], float]:
    """Alg. 2.1, its linear cost 2t − 1: t − 1 forwards that record nothing, and t that do.

    Args:
        longest: t_max.
        slots: m_max.
        bounded: True: line 8 runs t to m_max, as printed, where t_max is meant.

    Returns:
        (t, m) -> C[t, m], for the pairs that are solved.

    Source:
        Alg. 2.1.
    """
    C = {}
    for t in range(1, longest + 1):
        C[t, 1] = t * (t + 1) / 2
        for m in range(t, slots + 1):
            C[t, m] = 2.0 * t - 1
    for m in range(2, slots + 1):
        for t in range(m + 1, (slots if bounded else longest) + 1):
            C[t, m] = min(y + C[y, m] + C[t - y, m - 1] for y in range(1, t))
    return C
