"""False alarms: right pairs put to random problems, by every rule that can refute in floats and in sixty digits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from gradgate.suites.bugs.of_pairs.corpus import pairs
from gradgate.suites.bugs.of_pairs.mutant import unbroken
from gradgate.suites.calibration.alarms import measure

BATCH = 20
"""Problems of one pair before the next pair has its turn."""


def measured(
    problems: int, seconds: float = float("inf"), framework: str = "", seed: int = 0
) -> Iterator[dict[str, Any]]:
    """What `gradgate.suites.calibration.alarms.measure` finds, pair by pair, until enough is judged.

    Args:
        problems: of all pairs together, about.
        seconds: after which no further batch begins.
        framework: ``jax`` or ``torch``; "" both.
        seed: of everything that is drawn.

    Cost: 0.05 to 0.3 s a problem, plus compiling each shape of JAX once.
    """
    names = [name for name in pairs() if name.startswith(framework)]
    begun, start = time.monotonic(), 0
    while start * len(names) < problems:
        for name in names:
            if time.monotonic() - begun > seconds:
                return
            pair = unbroken(name)
            method = pair.lowered
            found = measure(method.family, pair.where, seed, start, BATCH)
            yield {"pair": name, **found}
        start += BATCH


def judgements(found: dict[str, Any]) -> int:
    """How many gradients were judged: one for each problem and dtype, and one for each in sixty digits."""
    return sum(len(ratios) for ratios in found["ratios"].values()) + len(found["digits"])
