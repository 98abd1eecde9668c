"""Which release raised or lowered whose figures: data in, data out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from gradgate.suites.releases.environments import Release
from gradgate.suites.releases.history import Step

QUANTITIES = ("required_bytes", "flops")
"""What is compared. The required bytes are all that the program needs: temporaries, arguments and outputs, less what is
shared. Temporaries alone would call it a rise when the compiler moves bytes from an output into a temporary."""


@dataclass(frozen=True)
class Change:
    """One figure that differs between two releases that follow each other.

    Attributes:
        release: the release that changed it.
        before: the release before.
        profile, name, quantity: the figure.
        old, new: its values.
        again: the values of second compilations under both releases, in the same order; None if there was none.
        measured: when the release was measured, in milliseconds since 1970.
    """

    release: Release
    before: Release
    profile: str
    name: str
    quantity: str
    old: int
    new: int
    again: tuple[int, int] | None = None
    measured: int = 0

    @property
    def ratio(self) -> float:
        """The new value over the old one; infinite if the old one is 0."""
        return self.new / self.old if self.old else float("inf")

    @property
    def rise(self) -> bool:
        """Whether the value went up."""
        return self.new > self.old

    @property
    def confirmed(self) -> bool:
        """Whether second compilations in new processes gave the same two values."""
        return self.again == (self.old, self.new)


def changes(steps: Iterable[Step]) -> list[Change]:
    """Every figure that differs from the release before on the same profile, the largest rise first."""
    rows: dict[tuple[str, str], list[Step]] = {}
    for step in steps:
        rows.setdefault((step.release.framework, step.profile), []).append(step)
    found = [
        change
        for row in rows.values()
        for old, new in pairwise(sorted(row, key=lambda s: s.release))
        for change in _between(old, new)
    ]
    return sorted(found, key=lambda c: (-c.ratio, c.name, c.profile))


def gone(steps: Iterable[Step]) -> list[tuple[Step, str, str]]:
    """Every cell without figures: the step, the cell's name, the reason."""
    return [(step, name, reason) for step in steps for name, reason in sorted(step.reasons.items())]


def _between(old: Step, new: Step) -> Iterator[Change]:
    for name in sorted(old.figures.keys() & new.figures.keys()):
        for quantity in QUANTITIES:
            before, now = old.figures[name].get(quantity), new.figures[name].get(quantity)
            if before is None or now is None or before == now:
                continue
            second = old.again.get(name, {}).get(quantity), new.again.get(name, {}).get(quantity)
            again = (second[0], second[1]) if second[0] is not None and second[1] is not None else None
            yield Change(new.release, old.release, new.profile, name, quantity, before, now, again, new.measured)
