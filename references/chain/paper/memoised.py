"""What carrying "recompute everything" along costs the loop over j of Alg. 3.4 (§3.1.11)."""

from __future__ import annotations

import inspect
import random
import sys
from types import FrameType
from typing import Any

from gradgate.references.chain.paper.as_printed import Printed, _Tables


def quadratic_share(stages: int = 16, slots: int = 60) -> float:
    """Runs of the lines in the loop over j that carry "recompute everything" along, over those of its other lines.

    They are the four lines of `_Tables.row` with the sums and the peaks of Algs. 3.2 and 3.3 (§3.1.11). The loop over
    k is in the loop over j.
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
    return counted[True] / counted[False]
