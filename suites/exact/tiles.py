"""How the masks, branches and loops of kernels went: mostly a matter of shapes, which no search over numbers changes.

A mask is of a load, of a store, or of a choice by booleans. It is full where every lane is set, empty where none is,
and ragged otherwise. A mask of one lane cannot be ragged. A block of a Pallas kernel is full if it lies inside its
array, empty if it lies outside, and ragged otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

MASK, CHOICE, BLOCK, BRANCH, LOOP = "mask", "where", "block", "if", "loop"
ONE = " of one lane"
"""What the kind of a mask ends with if all its masks had one lane."""
FULL, RAGGED, EMPTY = "full", "ragged", "empty"
WAYS = {
    MASK: (FULL, RAGGED, EMPTY),
    MASK + ONE: (FULL, EMPTY),
    CHOICE: (FULL, RAGGED, EMPTY),
    CHOICE + ONE: (FULL, EMPTY),
    BLOCK: (FULL, RAGGED, EMPTY),
    BRANCH: ("true", "false"),
    LOOP: ("more than once", "once", "not at all"),
}
"""Kind -> the ways in which it can go; of a loop, how often its body ran."""
Tiles = dict[tuple[str, str], Counter[str]]
"""Kind and ``file.py:123``, or the operand and the kernel of a block -> how often it went which way."""


def note(into: Tiles, kind: str, line: str, way: str) -> None:
    """Count one way."""
    into.setdefault((kind, line), Counter())[way] += 1


def note_mask(into: Tiles, kind: str, line: str, mask: Any) -> None:
    """Count a mask, an array of booleans."""
    lanes = np.asarray(mask, bool)
    way = FULL if lanes.all() else RAGGED if lanes.any() else EMPTY
    note(into, kind if lanes.size != 1 else kind + ONE, line, way)


def note_loop(into: Tiles, line: str, turns: int) -> None:
    """Count a loop by how often its body runs."""
    note(into, LOOP, line, WAYS[LOOP][2 - min(turns, 2)])


def add(into: Tiles, found: Tiles) -> None:
    """Add what another evaluation counted."""
    for place, ways in found.items():
        into.setdefault(place, Counter()).update(ways)


def united(every: Iterable[Tiles]) -> Tiles:
    """The counts of several evaluations together; a line whose masks sometimes have one lane counts as a mask."""
    made: Tiles = {}
    for found in every:
        add(made, found)
    for kind, line in [place for place in made if place[0].endswith(ONE)]:
        if (kind.removesuffix(ONE), line) in made:
            made[kind.removesuffix(ONE), line].update(made.pop((kind, line)))
    return made


def missing(kind: str, ways: Counter[str]) -> tuple[str, ...]:
    """The ways of a place that went one way only, or of a loop whose body never ran twice; () for any other."""
    never = tuple(way for way in WAYS[kind] if not ways[way])
    return never if len(never) == len(WAYS[kind]) - 1 or WAYS[LOOP][0] in never else ()


def worded(kind: str, line: str, never: Iterable[str]) -> str:
    """What a place never was, in words.

    >>> worded("mask", "rope.py:59", ("ragged", "empty"))
    'mask ragged or empty at rope.py:59'
    """
    return f"{kind} {' or '.join(never)} at {line}"


def counted(kind: str, line: str, ways: Counter[str]) -> str:
    """How often a place went which way, in words.

    >>> counted("loop", "scan.py:12", Counter(once=3))
    'loop at scan.py:12: 0 more than once, 3 once, 0 not at all'
    """
    return f"{kind} at {line}: {', '.join(f'{ways[way]} {way}' for way in WAYS[kind])}"
