"""The outcome of a verdict, given what was declared, and the outcome of a whole run: one table for every report.

A verdict says whether a claim holds. An outcome says whether that is what the method declares: a claim that is declared
false and refuted is a finding, not a failure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from gradgate.references.claims import GRADIENT_CLAIMS
from gradgate.suites.judging.task import Task

VERDICTS = ("upheld", "refuted", "inapplicable", "error")
AGAINST = ("refuted", "error")
"""The verdicts that speak against a method."""


@dataclass(frozen=True)
class Outcome:
    """One outcome.

    Attributes:
        mark: one character, for a cell of a table.
        meaning: the outcome in words.
        status: the exit status of a run with this outcome; 0 if the outcome is as declared.
    """

    mark: str
    meaning: str
    status: int = 0


OUTCOMES = {
    "upheld": Outcome("✓", "upheld"),
    "finding": Outcome("✗", "finding: refuted, as declared"),
    "failure": Outcome("✗", "failure: refuted, declared upheld", 1),
    "unexpected": Outcome("?", "failure: upheld, declared false", 1),
    "error": Outcome("!", "error: could not be measured", 2),
    "inapplicable": Outcome("–", "inapplicable"),
}
"""Name -> outcome, in the order in which they are shown."""
FAILED = tuple(name for name, outcome in OUTCOMES.items() if outcome.status)
"""The outcomes that are not as declared."""
STATUS_LINE = {0: "as claimed", 1: "NOT as claimed", 2: "not everything could be measured"}
"""Exit status -> the end of a run's last line."""


GRADIENT = ("gradient_exact", "gradient_order", *GRADIENT_CLAIMS.values())
"""The claims that the gradient is right, by the names that every class of problems gives them."""


NO_PEAK = "XLA's peak of a program for a CPU ignores recomputation"
"""Why a promise about peak bytes is not judged in JAX on a CPU; on other profiles it is."""


class Judged(Protocol):
    """Anything that has an outcome: a verdict, or a row of a report."""

    @property
    def task(self) -> Task:
        """The claim that was judged."""

    @property
    def outcome(self) -> str:
        """A name in OUTCOMES."""

    @property
    def reason(self) -> str:
        """A sentence: what was wrong, or why nothing could be said."""


def outcome_of(verdict: str, expected: str, user: bool = False) -> str:
    """The name of the outcome of a verdict, for a claim that is declared ``upheld`` or ``refuted``.

    Args:
        verdict: one of `VERDICTS`.
        expected: what the method declares.
        user: whether the method is a user's. What a user declares to fail may fail with an error as well.

    >>> outcome_of("refuted", "refuted"), outcome_of("upheld", "refuted")
    ('finding', 'unexpected')
    """
    if verdict == "refuted" or (verdict == "error" and expected == "refuted" and user):
        return "finding" if expected == "refuted" else "failure"
    if verdict == "upheld":
        return "upheld" if expected == "upheld" else "unexpected"
    return "inapplicable" if verdict == "inapplicable" else "error"


def as_declared(judged: Iterable[Judged]) -> int:
    """How many were judged and are as declared."""
    return sum(OUTCOMES[one.outcome].status == 0 and one.outcome != "inapplicable" for one in judged)


def exit_status(judged: Iterable[Judged], missing: int = 0) -> int:
    """0 as claimed · 1 a claim that does not hold, or holds although it is declared false · 2 could not be measured.

    A run in which a gradient was not judged is 2 (`not_judged`).

    Args:
        judged: what was judged.
        missing: number of claims that were never judged, because the run was cut off.
    """
    rows = list(judged)
    found = {OUTCOMES[one.outcome].status for one in rows} | ({2} if missing or not_judged(rows) else set())
    return min(found - {0}, default=0)


def last_line(judged: Iterable[Judged], missing: int = 0) -> str:
    """The last line of a run, such as ``2 of 3 claims as declared, 1 inapplicable: as claimed``."""
    rows = list(judged)
    absent = sum(one.outcome == "inapplicable" for one in rows)
    if rows and not missing and absent == len(rows):
        return f"none of {len(rows)} claims was judged: all are inapplicable"
    count = f"{as_declared(rows)} of {len(rows) + missing} claims as declared"
    count += f", {absent} inapplicable" if absent else ""
    return f"{count}: {STATUS_LINE[exit_status(rows, missing)]}"


def not_judged(judged: Iterable[Judged]) -> list[str]:
    """What a run says nothing about, a sentence each: gradients of which every claim is inapplicable, or all claims.

    So is what a pair promises about peak bytes, if no profile of the run knows them.

    Methods of a framework that is not installed are left out: nobody expects a verdict on them there.
    """
    rows = [one for one in judged if not _framework_is_missing(one)]
    found: dict[str, list[Judged]] = {}
    for one in rows:
        if one.task.claim in GRADIENT:
            found.setdefault(one.task.owner, []).append(one)
    told = [
        f"{about[0].task.method} ({about[0].task.framework}): its gradient was not judged: "
        f"{_listed(one.task.claim for one in about)} {'is' if len(about) == 1 else 'are'} inapplicable"
        for about in found.values()
        if all(one.outcome == "inapplicable" for one in about)
    ]
    promised: dict[tuple[str, str], list[Judged]] = {}
    for one in rows:
        if one.task.source == "declared":
            promised.setdefault((one.task.owner, one.task.claim), []).append(one)
    told += [
        f"{about[0].task.method} ({about[0].task.framework}): {claim} was not judged: {about[0].reason}"
        for (_, claim), about in promised.items()
        if all(one.outcome == "inapplicable" and NO_PEAK in one.reason for one in about)
    ]
    if rows and not told and all(one.outcome == "inapplicable" for one in rows):
        told = ["nothing was judged: every claim is inapplicable"]
    return told


def _listed(names: Iterable[str]) -> str:
    *most, last = dict.fromkeys(names)
    return f"{', '.join(most)} and {last}" if most else last


def _framework_is_missing(one: Judged) -> bool:
    return one.outcome == "inapplicable" and one.reason.startswith(f"{one.task.framework} is not installed")
