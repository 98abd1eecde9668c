"""How small an error verify detects, and how often it raises a false alarm: the record of ``gradgate calibrate``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RECORD = Path(__file__).with_name("calibration.json")
DTYPES = ("float64", "float32", "bfloat16")


@dataclass(frozen=True)
class Line:
    """One method in one framework.

    Attributes:
        judgements: the number of random problems on which it was judged.
        worst: the largest error over noise in any dtype; None if it was not judged on random problems.
        seen: dtype -> smallest planted error refuted in every kind of leaf, and the derived bound; "" if the dtype is
            not supported.
        kinds: for every kind of leaf: (kind, the figure of each dtype in order).
    """

    method: str
    framework: str
    judgements: int
    worst: float | None
    seen: dict[str, str]
    kinds: list[tuple[str, list[str]]]


@dataclass(frozen=True)
class Section:
    """One class of problems."""

    family: str
    date: str
    problems: int
    judgements: int
    false_alarms: int
    lines: list[Line]


def of_families(names: Iterable[str], record: Path = RECORD) -> list[Section]:
    """The sections of these families, without those that were never calibrated."""
    asked = list(dict.fromkeys(names))
    kept = json.loads(record.read_text(encoding="utf-8"))["families"] if asked and record.exists() else {}
    return [_section(name, kept[name]) for name in asked if name in kept]


def _section(family: str, found: Mapping[str, Any]) -> Section:
    keys = sorted({key for dtype in DTYPES for key in found[dtype]["smallest_seen"]})
    lines = [_line(family, key, found) for key in keys]
    return Section(family, found["date"], found["problems"], found["judgements"], found["false_alarms"], lines)


def _line(family: str, key: str, found: Mapping[str, Any]) -> Line:
    full, (method, framework) = f"{family}:{key}", key.split(":")
    tables = {dtype: found[dtype]["smallest_seen"].get(key, {}) for dtype in DTYPES}
    worst = [found[dtype]["worst"][full] for dtype in DTYPES if full in found[dtype]["worst"]]
    kinds = list(dict.fromkeys(kind for table in tables.values() for kind in table))
    seen = {
        dtype: _told(max(table.values(), key=lambda of: float(of[0]), default=[])) for dtype, table in tables.items()
    }
    rows = [(kind, [_told(table.get(kind, [])) for table in tables.values()]) for kind in kinds]
    return Line(method, framework, found["methods"].get(full, 0), max(worst, default=None), seen, rows)


def _told(seen: Sequence[str]) -> str:
    """A figure, and the bound if there is one."""
    return f"{seen[0]} (bound {seen[2]})" if len(seen) > 2 else "".join(seen[:1])
