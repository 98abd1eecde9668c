"""What a paper printed, beside what is measured here: single figures, rows of tables, points of curves.

A family's ``paper`` module lists them in ``PUBLISHED``; ``gradgate paper`` measures them, and writes what it found to
``paper.json`` beside that module, from which the report is rendered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Published:
    """One figure of a paper and how it is measured here.

    Attributes:
        place: where it is printed, such as ``Table 2``; what is ours alone says so.
        series: the curve or column that it belongs to.
        x: its place on the curve, or the row's name.
        unit: of both figures.
        measured: ``module:function`` of `arguments` that returns a number, a dict of lists for a curve, or text that is
            drawn. It raises ``LookupError`` with a sentence where it cannot be measured here.
        arguments: plain JSON types.
        printed: the paper's figure; None where it has only a plot, or nothing.
        reason: why ours differs, as far as it was tested.
    """

    place: str
    series: str
    x: float | str
    unit: str
    measured: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    printed: float | None = None
    reason: str = ""

    @property
    def key(self) -> str:
        """What a result is found again by: unchanged as long as the same thing is measured."""
        told = [self.place, self.series, self.x, self.unit, self.measured, dict(self.arguments)]
        return json.dumps(told, sort_keys=True, ensure_ascii=False)
