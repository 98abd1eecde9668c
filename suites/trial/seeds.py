"""Seeds of random right pairs and calls, judged in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from gradgate.suites.calibration import check_calls, drawn_pairs
from gradgate.suites.trial import counts
from gradgate.suites.trial.counts import Row

Judge = Callable[[str, int, int], tuple[dict[str, str], int]]
"""(framework, first seed, one past the last) -> the false alarms by their seeds, and how many gave no answer."""
DRAWN: Mapping[str, Judge] = {"pairs": drawn_pairs.alarms, "calls": check_calls.alarms}


def judged(kind: str, framework: str, code: str, start: int, stop: int) -> Row:
    """Judge some seeds, in a process of its own."""
    began = time.process_time()
    alarms, silent = DRAWN[kind](framework, start, stop)
    seconds = round(time.process_time() - began, 1)
    return Row(f"{kind} {framework}", code, start, stop, alarms, silent, seconds, counts.today())
