"""Which lines of an author's file ran, and which loops turned: what a verdict on a pair says of code nobody judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

Ranges = tuple[tuple[int, int], ...]
"""First and last line of each stretch of lines."""


@dataclass(frozen=True)
class Lines:
    """What ran of one file.

    Attributes:
        path: the file, relative to the folder of the run if it is inside.
        digest: the sha256 of its content.
        ran: lines that some problem ran.
        never: lines that no problem ran.
        loops: first line of each loop that turned no more than once -> its most turns, 0 or 1.
        branches: first line of each ``if`` without ``else`` that was true every time.
    """

    path: str
    digest: str
    ran: Ranges
    never: Ranges
    loops: tuple[tuple[int, int], ...] = ()
    branches: tuple[int, ...] = ()

    @property
    def sentences(self) -> list[str]:
        """What never ran, which loops turned once at most and which conditions were never false, in words."""
        name = PurePath(self.path).name
        parts = []
        if self.never:
            shown = ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in self.never)
            parts.append(f"no problem ran {name}:{shown}")
        for most, words in ((0, "never entered"), (1, "never turned twice")):
            loops = [str(line) for line, turns in self.loops if turns == most]
            parts += [f"{words}: the loop at {name}:{', '.join(loops)}"] if loops else []
        if self.branches:
            parts.append(f"never false: the if at {name}:{', '.join(map(str, self.branches))}")
        return parts


def from_json(rows: Iterable[Mapping[str, Any]]) -> tuple[Lines, ...]:
    """The Lines of ``dataclasses.asdict``, whose pairs JSON has as lists; other fields are ignored."""
    return tuple(_of_row(row) for row in rows)


def _of_row(row: Mapping[str, Any]) -> Lines:
    ran, never, loops = (_pairs(row.get(name, ())) for name in ("ran", "never", "loops"))
    return Lines(row["path"], row["digest"], ran, never, loops, tuple(map(int, row.get("branches", ()))))


def _pairs(value: Iterable[Sequence[int]]) -> Ranges:
    return tuple((int(one), int(other)) for one, other in value)
