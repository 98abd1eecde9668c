"""The author's source in a report: which lines ran, which decisions went one way only, which loops turned at most once.

A line has a mark and a sentence, so nothing is shown by colour alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath

from gradgate.suites.console.plain import plain
from gradgate.suites.judging.lines import Lines, Ranges
from gradgate.suites.judging.verdict import Verdict

AROUND = 2
"""Lines without a mark that are shown before and after lines that have one."""
STATES = {
    "ran": ("✓", "ran"),
    "never": ("✗", "no problem ran it"),
    "decided": ("±", "ran; every decision here went both ways"),
    "half": ("½", "ran; a decision here went one way only"),
    "loop": ("↻", "ran; this loop turned once at most"),
}
"""State of a line -> its mark, and what the mark means."""


@dataclass(frozen=True)
class Line:
    """One line of source.

    Attributes:
        number: its number, from 1.
        text: the line.
        state: a name in STATES; "" if it is not code of a function that was called.
        detail: what there is to say of it besides its state, such as which side of a decision was never taken.
    """

    number: int
    text: str
    state: str = ""
    detail: str = ""

    @property
    def mark(self) -> str:
        """One character for its state."""
        return STATES[self.state][0] if self.state else ""

    @property
    def spoken(self) -> str:
        """Its state in words."""
        words = STATES[self.state][1] if self.state else ""
        return f"{words}: {self.detail}" if self.detail else words


@dataclass(frozen=True)
class Source:
    """What a verdict says of one file.

    Attributes:
        name: the file without its folder.
        parts: stretches of lines with the lines around them.
        missing: why the lines are not shown; "" if they are.
    """

    name: str
    parts: tuple[tuple[Line, ...], ...]
    missing: str = ""


@dataclass(frozen=True)
class Covered:
    """How much of a pair was judged.

    Attributes:
        ran, lines: lines that some problem ran, of all lines of the functions.
        both, decisions: decisions that went both ways, of all.
        never: the sides of decisions that no problem took.
    """

    ran: int
    lines: int
    both: int
    decisions: int
    never: tuple[str, ...]

    @classmethod
    def of(cls, verdict: Verdict) -> Covered:
        """What a verdict says of it."""
        ran = sum(len(_numbers(one.ran)) for one in verdict.lines)
        never = sum(len(_numbers(one.never)) for one in verdict.lines)
        found = verdict.decisions
        sides = tuple(found.get("never", ()))
        return cls(ran, ran + never, found.get("both", 0), found.get("decisions", 0), sides)

    @property
    def whole(self) -> bool:
        """Whether every line ran and every decision went both ways."""
        return (self.ran, self.both) == (self.lines, self.decisions)


def sources(verdict: Verdict) -> list[Source]:
    """The files of a verdict on a pair, as they are on this machine; a file that has changed since is not shown."""
    return [_source(verdict, one) for one in verdict.lines]


def _source(verdict: Verdict, lines: Lines) -> Source:
    name = PurePath(lines.path).name
    try:
        content = Path(lines.path).read_bytes()
    except (OSError, ValueError):
        return Source(name, (), "it is not on this machine")
    if hashlib.sha256(content).hexdigest() != lines.digest:
        return Source(name, (), "it has changed since it was judged")
    texts = content.decode(errors="replace").splitlines()
    marked = {line.number: line for line in _marked(verdict, lines, name, texts)}
    shown = [line for line in range(1, len(texts) + 1) if any(line + by in marked for by in range(-AROUND, AROUND + 1))]
    parts: list[list[Line]] = []
    for number in shown:
        if not parts or parts[-1][-1].number != number - 1:
            parts.append([])
        parts[-1].append(marked.get(number, Line(number, plain(texts[number - 1]))))
    return Source(name, tuple(map(tuple, parts)))


def _marked(verdict: Verdict, lines: Lines, name: str, texts: list[str]) -> Iterator[Line]:
    never = verdict.decisions.get("never", [])
    loops, branches = dict(lines.loops), frozenset(lines.branches)
    for number in sorted(_numbers(lines.ran) | _numbers(lines.never)):
        text = plain(texts[number - 1]) if number <= len(texts) else ""
        both, decisions = verdict.decisions.get("lines", {}).get(f"{name}:{number}", (0, 0))
        if not text.strip():
            continue
        if number in _numbers(lines.never):
            yield Line(number, text, "never")
        elif both < decisions:
            place = f" at {name}:{number} ("
            unseen = [f"{words}{place}{why}" for words, at, why in (one.partition(place) for one in never) if at]
            yield Line(
                number, text, "half", f"{both} of {decisions} both ways" + "".join(f"; never {one}" for one in unseen)
            )
        elif number in loops:
            yield Line(number, text, "loop", f"{loops[number]} turns at most")
        elif number in branches:
            yield Line(number, text, "half", "never false")
        else:
            yield Line(number, text, "decided" if decisions else "ran")


def _numbers(ranges: Ranges) -> set[int]:
    return {line for first, last in ranges for line in range(first, last + 1)}
