"""Summary of a selftest, computed from its outcomes: kill rates by family, and the suite compared with its rivals."""

from __future__ import annotations

import collections
import dataclasses
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gradgate.suites.bugs.mutant import FORMULA
from gradgate.suites.checks import rivals
from gradgate.suites.selftest.judging import FLOATS, SUITE, TOOLS, Outcome

LABELS = {SUITE: "gradgate verify", FLOATS: "gradgate verify, floats alone"} | {
    claim.name: claim.statement.removesuffix(" finds nothing") for claim in rivals.CLAIMS
}
BUGS = ("killed", "survived", "undecided")
"""Outcomes of mutants that are bugs; the others are ``equivalent``, ``sound`` and ``alarm``."""


@dataclass(frozen=True)
class Group:
    """The mutants of one family in one framework.

    Attributes:
        smallest: the smallest planted relative error such that all mutants with this error or a larger one are killed.
    """

    family: str
    framework: str
    mutants: int
    killed: int
    equivalent: int
    examples: float
    seconds: float
    smallest: float | None


@dataclass(frozen=True)
class Formulas:
    """What the claims in sixty digits find alone.

    Attributes:
        wrong: number of mutants with a wrong formula; `killed` of them are killed by the claims in sixty digits alone.
        others: claim -> the names of the other mutants that it kills, bugs of rounding, bytes, state or form.
    """

    wrong: int
    killed: int
    others: dict[str, list[str]]


@dataclass(frozen=True)
class Tool:
    """One tool on the corpus.

    Attributes:
        asked: number of mutants of the frameworks that the tool judges; it detects `detected` of them.
        asked_formula, found_formula: the same two numbers for the mutants with a wrong formula.
        unbroken, alarms: number of unbroken methods that the tool judged, and of those in which it finds a fault.
        seconds: the median time for one problem of an unbroken method, without compilation.
        smallest: the smallest planted relative error such that the tool finds all mutants with this error or a larger
            one, in every family and framework where it raises no false alarm; None: there is no such error.
    """

    name: str
    asked: int
    detected: int
    asked_formula: int
    found_formula: int
    unbroken: int
    alarms: int
    seconds: float
    smallest: float | None

    @property
    def label(self) -> str:
        """In words."""
        return LABELS[self.name]


def status(outcomes: Sequence[Outcome], expected: int) -> int:
    """0 every bug is killed and no right method is refuted · 1 a survivor or a false alarm · 2 something undecided."""
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
                family,
                framework,
                len(bugs),
                len(killed),
                sum(row["status"] == "equivalent" for row in rows),
                statistics.median(row["examples"] for row in killed) if killed else 0.0,
                sum(row["seconds"] for row in bugs),
                _smallest(rows, SUITE),
            )
        )
    return found


def tools(outcomes: Sequence[Outcome]) -> list[Tool]:
    """The suite first, then its floats alone, then the rivals."""
    return [_tool(outcomes, name) for name in (SUITE, *TOOLS)]


def formulas(outcomes: Sequence[Outcome]) -> Formulas:
    """Wrong formulas and what became of them; every other bug that was killed, by the claim that did it."""
    bugs = [row for row in outcomes if row["status"] in BUGS]
    wrong = [row for row in bugs if row["formula"]]
    others: dict[str, list[str]] = {}
    for row in bugs:
        if row["status"] == "killed" and not row["formula"]:
            others.setdefault(row["claim"], []).append(row["name"])
    alone = sum(row["status"] == "killed" and row["claim"] in FORMULA for row in wrong)
    return Formulas(len(wrong), alone, dict(sorted(others.items(), key=lambda item: -len(item[1]))))


def found_by(row: Outcome, tool: str) -> bool | None:
    """Whether a tool finds fault with a mutant or an unbroken method; None: it does not judge it."""
    if tool == SUITE:
        return None if row["status"] == "undecided" else row["status"] in ("killed", "alarm")
    return row["rivals"][tool]["found"] if tool in row["rivals"] else None


def killers(outcomes: Sequence[Outcome]) -> list[tuple[str, int]]:
    """(claim, mutants that it killed), the most first."""
    counted = collections.Counter(row["claim"] for row in outcomes if row["status"] == "killed")
    return counted.most_common()


def planted(outcomes: Sequence[Outcome]) -> dict[float, list[Outcome]]:
    """Relative error, the largest first -> the mutants in which it is planted."""
    found: dict[float, list[Outcome]] = {}
    for row in outcomes:
        if row["planted"] and row["status"] in BUGS:
            found.setdefault(row["planted"], []).append(row)
    return dict(sorted(found.items(), reverse=True))


def shares(outcomes: Sequence[Outcome], tool: str) -> list[tuple[float, float]]:
    """(planted relative error, share of the mutants with it that a tool finds), where it raises no false alarm."""
    noisy = {
        (row["family"], row["framework"])
        for row in outcomes
        if row["status"] in ("sound", "alarm") and found_by(row, tool)
    }
    pairs = []
    for size, rows in planted(outcomes).items():
        told = [row for row in rows if (row["family"], row["framework"]) not in noisy]
        judged = [found for row in told if (found := found_by(row, tool)) is not None]
        if judged:
            pairs.append((size, sum(judged) / len(judged)))
    return pairs


def _smallest(outcomes: Sequence[Outcome], tool: str) -> float | None:
    least = None
    for size, share in shares(outcomes, tool):
        if share < 1:
            break
        least = size
    return least


def _tool(outcomes: Sequence[Outcome], name: str) -> Tool:
    bugs = [row for row in outcomes if row["status"] in BUGS and found_by(row, name) is not None]
    wrong = [row for row in bugs if row["formula"]]
    sound = [row for row in outcomes if row["status"] in ("sound", "alarm") and found_by(row, name) is not None]
    costs = [
        (row["seconds"] / max(1, row["examples"]))
        if name == SUITE
        else row["rivals"][name]["seconds"] / max(1, row["rivals"][name]["examples"])
        for row in sound
    ]
    return Tool(
        name,
        len(bugs),
        sum(bool(found_by(row, name)) for row in bugs),
        len(wrong),
        sum(bool(found_by(row, name)) for row in wrong),
        len(sound),
        sum(bool(found_by(row, name)) for row in sound),
        statistics.median(costs) if costs else 0.0,
        _smallest(outcomes, name),
    )


def percent(part: int, whole: int) -> str:
    """Such as ``37 %``; a dash if the whole is 0. Only if the part is the whole, it is ``100 %``."""
    if not whole:
        return "–"
    share = 100 * part / whole
    return f"{share:.0f} %" if part == whole else f"{min(share, 99.9):.1f} %" if share > 99 else f"{share:.0f} %"


def power(size: float | None) -> str:
    """Such as ``1e-11``."""
    return "none" if size is None else f"{size:.0e}"


def document(outcomes: Sequence[Outcome], head: dict[str, Any]) -> dict[str, Any]:
    """As ``gradgate selftest --json`` writes it."""
    return {**head, "formulas": dataclasses.asdict(formulas(outcomes)), "mutants": list(outcomes)}
