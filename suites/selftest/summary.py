"""What a run of the selftest says, read off its outcomes: kill rates by family, and the suite beside its rivals."""

from __future__ import annotations

import collections
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gradgate.suites.checks import rivals
from gradgate.suites.selftest.judging import RIVALS, SUITE, Outcome

LABELS = {SUITE: "gradgate verify"} | {
    claim.name: claim.statement.removesuffix(" finds nothing") for claim in rivals.CLAIMS
}
BUGS = ("killed", "survived", "undecided")
"""Outcomes of mutants that are bugs; the others are ``equivalent``, ``sound`` and ``alarm``."""


@dataclass(frozen=True)
class Group:
    """The mutants of one family in one framework."""

    family: str
    framework: str
    mutants: int
    killed: int
    equivalent: int
    examples: float
    seconds: float
    smallest: float | None


@dataclass(frozen=True)
class Tool:
    """One tool on the corpus.

    Attributes:
        asked: mutants of the frameworks it judges; `found` of them.
        asked_gradient, found_gradient: of these, the mutants whose float64 gradient itself is wrong.
        unbroken, alarms: unbroken methods it judged, and those that it finds fault with.
        seconds: the median of an unbroken method's problem, compiled already.
        smallest: the smallest planted relative error up to which it finds all, in every family and framework where it
            raises no false alarm; None: not one.
    """

    name: str
    asked: int
    found: int
    asked_gradient: int
    found_gradient: int
    unbroken: int
    alarms: int
    seconds: float
    smallest: float | None

    @property
    def label(self) -> str:
        """In words."""
        return LABELS[self.name]


def status(outcomes: Sequence[Outcome], expected: int) -> int:
    """0 every bug is killed and no unbroken method · 1 a survivor or a false alarm · 2 something is undecided."""
    if any(row["status"] in ("survived", "alarm") for row in outcomes):
        return 1
    return 2 if len(outcomes) < expected or any(row["status"] == "undecided" for row in outcomes) else 0


def groups(outcomes: Sequence[Outcome]) -> list[Group]:
    """One per family and framework, in the order of the corpus."""
    found = []
    for family, framework in dict.fromkeys((row["family"], row["framework"]) for row in outcomes):
        rows = [row for row in outcomes if (row["family"], row["framework"]) == (family, framework)]
        bugs = [row for row in rows if row["status"] in BUGS]
        killed = [row for row in bugs if row["status"] == "killed"]
        found.append(
            Group(
                family, framework, len(bugs), len(killed), sum(row["status"] == "equivalent" for row in rows),
                statistics.median(row["examples"] for row in killed) if killed else 0.0,
                sum(row["seconds"] for row in bugs), _smallest(rows, SUITE),
            )
        )  # fmt: skip
    return found


def tools(outcomes: Sequence[Outcome]) -> list[Tool]:
    """The suite first, then the rivals."""
    return [_tool(outcomes, name) for name in (SUITE, *RIVALS)]


def found_by(row: Outcome, tool: str) -> bool | None:
    """Whether a tool finds fault with a mutant or an unbroken method; None: it does not judge it."""
    if tool == SUITE:
        return None if row["status"] == "undecided" else row["status"] in ("killed", "alarm")
    return row["rivals"][tool]["found"] if tool in row["rivals"] else None


def killers(outcomes: Sequence[Outcome]) -> list[tuple[str, int]]:
    """(claim, mutants that it killed), the most first."""
    counted = collections.Counter(row["claim"] for row in outcomes if row["status"] == "killed")
    return counted.most_common()


def planted(outcomes: Sequence[Outcome]) -> dict[int, list[Outcome]]:
    """K -> the mutants with a planted relative error of 10^-k."""
    found: dict[int, list[Outcome]] = {}
    for row in outcomes:
        match = re.fullmatch(r".*\.planted_1e(\d+)", row["name"])
        if match and row["status"] in BUGS:
            found.setdefault(int(match.group(1)), []).append(row)
    return dict(sorted(found.items()))


def shares(outcomes: Sequence[Outcome], tool: str) -> list[tuple[int, float]]:
    """(k, share of the mutants off by 10^-k that a tool finds), where it raises no false alarm."""
    noisy = {
        (row["family"], row["framework"])
        for row in outcomes
        if row["status"] in ("sound", "alarm") and found_by(row, tool)
    }
    pairs = []
    for k, rows in planted(outcomes).items():
        told = [row for row in rows if (row["family"], row["framework"]) not in noisy]
        judged = [found for row in told if (found := found_by(row, tool)) is not None]
        if judged:
            pairs.append((k, sum(judged) / len(judged)))
    return pairs


def _smallest(outcomes: Sequence[Outcome], tool: str) -> float | None:
    least = None
    for k, share in shares(outcomes, tool):
        if share < 1:
            break
        least = 10.0**-k
    return least


def _tool(outcomes: Sequence[Outcome], name: str) -> Tool:
    bugs = [row for row in outcomes if row["status"] in BUGS and found_by(row, name) is not None]
    wrong = [row for row in bugs if row["kill"][0] in ("gradient_float64", "options")]
    sound = [row for row in outcomes if row["status"] in ("sound", "alarm") and found_by(row, name) is not None]
    costs = [
        (row["seconds"] / max(1, row["examples"]))
        if name == SUITE
        else row["rivals"][name]["seconds"] / max(1, row["rivals"][name]["examples"])
        for row in sound
    ]
    return Tool(
        name, len(bugs), sum(bool(found_by(row, name)) for row in bugs), len(wrong),
        sum(bool(found_by(row, name)) for row in wrong), len(sound), sum(bool(found_by(row, name)) for row in sound),
        statistics.median(costs) if costs else 0.0, _smallest(outcomes, name),
    )  # fmt: skip


def percent(part: int, whole: int) -> str:
    """Such as ``37 %``; a dash of nothing. Only all is 100 %."""
    if not whole:
        return "–"
    share = 100 * part / whole
    return f"{share:.0f} %" if part == whole else f"{min(share, 99.9):.1f} %" if share > 99 else f"{share:.0f} %"


def power(size: float | None) -> str:
    """Such as ``1e-11``."""
    return "none" if size is None else f"{size:.0e}"


def document(outcomes: Sequence[Outcome], head: dict[str, Any]) -> dict[str, Any]:
    """As ``gradgate selftest --json`` writes it."""
    return {**head, "mutants": list(outcomes)}
