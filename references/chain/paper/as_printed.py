"""The thesis' solver as printed, one mistake at a time: each must be refuted, and is by a chain it gets wrong.

Algorithm 3.4 solves for chains whose forward tensor f_l is value and recording in one, b_l the cotangent. `solve` is
that algorithm with every mistake mended, in plain loops; `mistakes` puts single ones back. What it computes is a cost
and a peak, so that is what is compared: with shortest paths over the same machine (`reachable`).

The other two errata are shown beside it: Eq. 3.4 counts f_i, which the definition of C(i, j, m) leaves out
(`recompute_peak`), and Alg. 2.1 bounds t by m_max (`uniform_table_printed`).
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass

INFINITE = float("inf")
MISTAKES = {
    "memory for compute": "line 8 takes β, memory, for α, compute, of a backward",
    "quadratic overwritten": "Alg. 3.3, line 6: each j overwrites the quadratic cost with its last term",
    "left read at j": "line 50 reads the peak of the left subproblem at [i][j] instead of [i][k]",
    "backward size for forward": "line 37 takes the backward's size of x_k for the forward's in the peak of a sweep",
    "failure propagated": "§3.1.9 and line 65: where (i, j) fails, every longer (i, j') is said to fail; but a value "
    "may be stored in a sweep past it, while a smaller cotangent than b_j is held, and so (i, j') may fit",
}
"""Name -> what is printed."""


@dataclass(frozen=True)
class Printed:
    """Costs in the thesis' letters: lists over 0 … N + 1, of which α^f_0, α^f_{N+1} and β^f_{N+1} are not used.

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


def solve(p: Printed, budget: int, mistakes: Collection[str] = ()) -> tuple[float, float]:
    """The compute and the peak that Alg. 3.4 states for the whole chain.

    Args:
        p: the costs.
        budget: memory M, in slots, an integer.
        mistakes: names of MISTAKES: those to put back as printed, the rest corrected.

    Returns:
        (compute, peak) in the units of `p`, f_0 included in the peak; both infinite where no schedule fits.

    Source:
        Algs. 3.3 and 3.4.

    Stores:
        2·N²·M numbers.

    Computes:
        N³·M/6 steps of a Python loop.
    """
    N, M = p.N, budget - p.beta_f[0]
    C = [[[INFINITE] * (M + 1) for _ in range(N + 2)] for _ in range(N + 1)]
    B = [[[INFINITE] * (M + 1) for _ in range(N + 2)] for _ in range(N + 1)]
    for m in range(M + 1):
        for i in range(N, -1, -1):
            _row(p, i, m, B, C, mistakes)
    return (C[0][N + 1][M], B[0][N + 1][M] + p.beta_f[0]) if M >= 0 else (INFINITE, INFINITE)


def _row(p: Printed, i: int, m: int, B: list, C: list, mistakes: Collection[str]) -> None:
    bf, bb, N = p.beta_f, p.beta_b, p.N
    base = bb[i] + bb[i + 1]
    if base > m:
        return  # every j fails
    B[i][i + 1][m], C[i][i + 1][m] = base, bb[i] if "memory for compute" in mistakes else p.alpha_b[i]
    sweep, quadratic, sweep_peak, peak = 0.0, C[i][i + 1][m], 0, base
    for j in range(i + 2, N + 2):
        sweep += p.alpha_f[j - 1]
        quadratic = sweep + p.alpha_b[j - 1] + (0 if "quadratic overwritten" in mistakes else quadratic)
        sweep_peak = max(sweep_peak, (0 if j - 2 == i else bf[j - 2]) + bf[j - 1])
        peak = max(peak, bb[j] + sweep_peak, bf[j - 1] + bb[j] + bb[j - 1])
        best = INFINITE
        forward, forward_peak = 0.0, 0
        for k in range(i + 1, j):
            forward += p.alpha_f[k]
            size = bb[k] if "backward size for forward" in mistakes else bf[k]
            forward_peak = max(forward_peak, (0 if k - 1 == i else bf[k - 1]) + size)
            if bb[j] + forward_peak > m or m - bf[k] < 0:
                continue
            right, left = B[k][j][m - bf[k]], B[i][j if "left read at j" in mistakes else k][m]
            most = max(bb[j] + forward_peak, bf[k] + right, left)
            cost = forward + C[k][j][m - bf[k]] + C[i][k][m]
            if most <= m and cost < best:
                best, B[i][j][m], C[i][j][m] = cost, most, cost
        if best == INFINITE:
            if peak > m:
                if "failure propagated" in mistakes:
                    return
                continue
            B[i][j][m], C[i][j][m] = peak, quadratic


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


def recompute_peak(p: Printed, i: int, j: int, printed: bool = False) -> int:
    """Eq. 3.4: the peak of recomputing everything on (i, j), f_i not counted.

    Args:
        p: the costs.
        i, j: the ends of the segment, 0 ≤ i < j ≤ N + 1.
        printed: True: the last term counts f_i too, at l = i, as printed.

    Returns:
        The peak, in slots.

    Source:
        Eq. 3.4.
    """
    bf, bb = p.beta_f, p.beta_b
    sweeps = [
        bb[stop + 1] + max([bf[i + 1], *(bf[n - 1] + bf[n] for n in range(i + 2, stop + 1))])
        for stop in range(i + 1, j)
    ]
    backwards = [(bf[n] if n > i or printed else 0) + bb[n + 1] + bb[n] for n in range(i, j)]
    return max(sweeps + backwards)


def uniform_table_printed(longest: int, slots: int) -> dict[tuple[int, int], float]:
    """Alg. 2.1 as printed, which never solves a t beyond the number of slots: its line 8 runs t to m_max.

    Args:
        longest: the largest t.
        slots: m_max.

    Returns:
        (t, m) -> C[t, m], for the pairs that are solved.

    Source:
        Alg. 2.1, as printed.
    """
    C = {}
    for t in range(1, longest + 1):
        C[t, 1] = t * (t + 1) / 2
        for m in range(t, slots + 1):
            C[t, m] = 2.0 * t - 1
    for m in range(2, slots + 1):
        for t in range(m + 1, slots + 1):
            C[t, m] = min(y + C[y, m] + C[t - y, m - 1] for y in range(1, t))
    return C
