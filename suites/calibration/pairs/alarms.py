"""False positives: right pairs on random problems, by every rule that can refute in floats and in sixty digits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from gradgate.suites.bugs.of_pairs.corpus import pairs
from gradgate.suites.bugs.of_pairs.mutant import unbroken
from gradgate.suites.calibration.alarms import measure

BATCH = 20
"""Number of problems of one pair before the next pair is judged."""


def measured(
    problems: int, seconds: float = float("inf"), framework: str = "", seed: int = 0
) -> Iterator[dict[str, Any]]:
    """The results of `gradgate.suites.calibration.alarms.measure`, pair by pair, until enough problems are judged.

    Args:
        problems: about how many, for all pairs together.
        seconds: the time after which no further batch begins.
        framework: ``jax`` or ``torch``; "" for both.
        seed: the seed of everything that is drawn.

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
