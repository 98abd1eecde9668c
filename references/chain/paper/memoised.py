"""Alg. 3.4 with the cost and the peak of every sweep kept for all (i, k), in place of sums over the k loop (§3.1.8)."""

from __future__ import annotations

import inspect
import random
import sys
import time
from types import FrameType
from typing import Any

from gradgate.references.chain.paper.as_printed import FAILED, INFINITE, Printed, _Tables


class Memoised(_Tables):
    """The same tables; sweeps are read and not summed."""

    def __init__(self, p: Printed, M: int) -> None:
        self.sweeps = [_sweeps(p, i) for i in range(p.N + 1)]
        super().__init__(p, M, ())

    def checkpoint(self, i: int, j: int, m: int) -> bool:
        """Try every k, as the loop that sums does."""
        bf, bb, B, C = self.p.beta_f, self.p.beta_b, self.B, self.C
        best, works, sweeps = INFINITE, False, self.sweeps[i]
        for k in range(i + 1, j):
            forward, forward_peak = sweeps[k]
            if bb[j] + forward_peak > m or m - bf[k] < 0:
                continue
            right, left = B[k][j][m - bf[k]], B[i][k][m]
            most = max(bb[j] + forward_peak, bf[k] + right, left)
            if FAILED in (right, left) or most > m:
                continue
            works = True
            cost = forward + C[k][j][m - bf[k]] + C[i][k][m]
            if cost < best:
                best, B[i][j][m], C[i][j][m], self.D[i][j][m] = cost, most, cost, k
        return works


def _sweeps(p: Printed, i: int) -> list[tuple[float, int]]:
    """Compute and peak of the sweep from f_i to f_k, by k; those up to k = i are not used."""
    found = [(0.0, 0)] * (p.N + 1)
    for k in range(i + 1, p.N + 1):
        forward, peak = found[k - 1]
        found[k] = forward + p.alpha_f[k], max(peak, (0 if k - 1 == i else p.beta_f[k - 1]) + p.beta_f[k])
    return found


def saving(stages: int = 16, slots: int = 60, rounds: int = 5) -> float:
    """Processor seconds of the solver with sums in the k loop over those with kept sums; the least of several rounds.

    Raises:
        AssertionError: the two state different costs.
    """
    rng = random.Random(stages)
    p = Printed(*([rng.randint(1, 6) for _ in range(stages + 2)] for _ in range(4)))
    summed, kept = [], []
    for _ in range(rounds):
        start = time.process_time()
        one = _Tables(p, slots, ())
        middle = time.process_time()
        other = Memoised(p, slots)
        summed.append(middle - start)
        kept.append(time.process_time() - middle)
        if (one.B, one.C) != (other.B, other.C):
            raise AssertionError("the two loops state different costs")
    return min(summed) / min(kept)


def quadratic_share(stages: int = 16, slots: int = 60) -> float:
    """Percent of the lines that the loop over j runs, the loop over k in it, that carry "recompute everything" along.

    They are the four lines of `_Tables.row` with the sums and the peaks of Algs. 3.2 and 3.3 (§3.1.11).
    """
    rng = random.Random(stages)
    p = Printed(*([rng.randint(1, 6) for _ in range(stages + 2)] for _ in range(4)))
    source, start = inspect.getsourcelines(_Tables.row)
    loop = next(n for n, line in enumerate(source) if line.strip().startswith("for j in"))
    carried = {
        start + n
        for n, line in enumerate(source)
        if n > loop and line.strip().startswith(("sweep", "quadratic =", "peak ="))
    }
    codes = {_Tables.row.__code__: start + loop, _Tables.checkpoint.__code__: 0}
    counted = {True: 0, False: 0}

    def trace(frame: FrameType, event: str, given: Any) -> Any:
        if frame.f_code not in codes:
            return None
        if event == "line" and frame.f_lineno >= codes[frame.f_code]:
            counted[frame.f_code is _Tables.row.__code__ and frame.f_lineno in carried] += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        _Tables(p, slots, ())
    finally:
        sys.settrace(before)
    return 100 * counted[True] / (counted[True] + counted[False])
