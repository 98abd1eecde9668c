"""The settings with which claims are judged. The process that only hands out the work needs no more than these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Run:
    """The settings of a run of verification. The same Run gives the same verdicts, bit for bit.

    Attributes:
        examples: problems per claim; costlier checks judge a fraction of them.
        seed: the seed of everything that is drawn.
        spec: judge this Spec alone, given as JSON.
        options: the method's options with `spec`.
        limit: seconds that one compilation of a claim about memory may take.
    """

    examples: int = 100
    seed: int = 0
    spec: str = ""
    options: Mapping[str, Any] | None = None
    limit: float = 45.0
