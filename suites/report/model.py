"""What a report says, read off the document: outcomes, groups that read as one, and the matrix of a family."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gradgate.references import registry
from gradgate.suites.terminal import LAST_LINE
from gradgate.suites.verdict import Verdict, exit_status

OUTCOMES = {
    "upheld": ("✓", "upheld"),
    "finding": ("✗", "finding: refuted, as declared"),
    "failure": ("✗", "failure: refuted, declared upheld"),
    "unexpected": ("?", "failure: upheld, declared false"),
    "error": ("!", "error: could not be measured"),
    "inapplicable": ("–", "inapplicable"),
}
"""Outcome -> its mark in a matrix, and what it means."""
FAILED = ("failure", "unexpected", "error")

_ESCAPE_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_NO_TEXT = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def clean(value: Any) -> Any:
    r"""`value` without the characters that XML, or UTF-8, cannot hold; keys and strings at any depth.

    >>> clean({"reason": "\x1b[31mred\x1b[0m \x00 \ud800"})
    {'reason': 'red  '}
    """
    if isinstance(value, str):
        return _NO_TEXT.sub("", _ESCAPE_SEQUENCE.sub("", value))
    if isinstance(value, dict):
        return {clean(name): clean(item) for name, item in value.items()}
    return [clean(item) for item in value] if isinstance(value, list) else value


@dataclass(frozen=True)
class Row:
    """One verdict with its place in the document."""

    place: int
    verdict: Verdict

    @property
    def anchor(self) -> str:
        """The id of its line in the full table."""
        return f"v{self.place}"

    @property
    def outcome(self) -> str:
        """A key of OUTCOMES: the verdict beside what was declared."""
        verdict = self.verdict
        if verdict.verdict == "refuted":
            return "finding" if verdict.as_expected else "failure"
        if verdict.verdict == "upheld":
            return "upheld" if verdict.as_expected else "unexpected"
        return verdict.verdict if verdict.verdict in OUTCOMES else "error"

    @property
    def mark(self) -> str:
        """One character."""
        return OUTCOMES[self.outcome][0]

    @property
    def meaning(self) -> str:
        """The outcome in words."""
        return OUTCOMES[self.outcome][1]

    @property
    def ratio(self) -> float | None:
        """Error over noise."""
        error, noise = self.verdict.error, self.verdict.noise
        return error / noise if error is not None and noise else None

    @property
    def not_finite(self) -> bool:
        """Whether the error was compared, and was NaN or infinite."""
        return self.verdict.verdict == "refuted" and self.verdict.error is None and self.verdict.noise is not None

    @property
    def summary(self) -> str:
        """What a tooltip says: who, what, the numbers and the reason, a line each."""
        verdict, task = self.verdict, self.verdict.task
        lines = [f"{task.method} · {task.framework} · {task.claim}", self.meaning]
        lines += [task.statement] if task.statement else []
        if verdict.error is not None or verdict.noise is not None:
            error = "not finite" if self.not_finite else number(verdict.error)
            leaf = f" in {verdict.leaf}" if verdict.leaf else ""
            lines.append(f"error {error or 'not known'}{leaf}, noise {number(verdict.noise) or 'not known'}")
        lines += [f"{verdict.examples} problems"] if verdict.examples else []
        lines += [text for text in (verdict.reason, task.why) if text]
        return "\n".join(line if len(line) <= 400 else line[:399] + "…" for line in lines)


@dataclass(frozen=True)
class Matrix:
    """One family: claims down, method and framework across."""

    family: str
    paper: str
    claims: list[str]
    methods: dict[str, list[str]]
    cells: dict[tuple[str, str, str], list[Row]]


@dataclass(frozen=True)
class Report:
    """Everything that the page and the JUnit file say."""

    rows: list[Row]
    claims: int
    fingerprint: dict[str, Any]

    @classmethod
    def of(cls, document: dict[str, Any]) -> Report:
        """The report of a verdicts.json."""
        document = clean(document)
        rows = [Row(i, Verdict.from_dict(row)) for i, row in enumerate(document["verdicts"], 1)]
        claims = max(document.get("claims") or 0, len(rows))
        return cls(rows, claims, document.get("fingerprint") or {})

    def of_outcome(self, *outcomes: str) -> list[Row]:
        """The rows of these outcomes."""
        return [row for row in self.rows if row.outcome in outcomes]

    @property
    def missing(self) -> int:
        """Claims without a verdict: the run was cut off."""
        return self.claims - len(self.rows)

    @property
    def good(self) -> int:
        """Claims that are as declared."""
        return sum(row.verdict.as_expected for row in self.rows)

    @property
    def status(self) -> int:
        """The exit status of the run; a run that was cut off is at best 2."""
        return exit_status([row.verdict for row in self.rows]) or (2 if self.missing else 0)

    @property
    def status_line(self) -> str:
        """The status in words."""
        return LAST_LINE[self.status]

    @property
    def counts(self) -> dict[str, int]:
        """Outcome -> how many."""
        return {outcome: len(self.of_outcome(outcome)) for outcome in OUTCOMES}

    @cached_property
    def failures(self) -> list[list[Row]]:
        """Failures; those of one method with one reason together."""
        return _groups(self.of_outcome(*FAILED), lambda row: (row.verdict.task.owner, row.outcome, row.verdict.reason))

    @cached_property
    def findings(self) -> list[list[Row]]:
        """Refutations as declared; those of one method with one explanation together."""
        return _groups(
            self.of_outcome("finding"),
            lambda row: (row.verdict.task.family, row.verdict.task.method, row.verdict.task.why),
        )

    @cached_property
    def inapplicable(self) -> list[list[Row]]:
        """Inapplicable claims by reason."""
        return _groups(self.of_outcome("inapplicable"), lambda row: row.verdict.reason)

    @cached_property
    def families(self) -> list[list[Row]]:
        """The rows of each family."""
        return _groups(self.rows, lambda row: row.verdict.task.family)

    @cached_property
    def matrices(self) -> list[Matrix]:
        """One matrix per family."""
        return [_matrix(rows) for rows in self.families]


def number(value: float | None) -> str:
    """Two digits; "" for None.

    >>> number(1.2368e-6), number(0.0), number(None)
    ('1.2e-06', '0', '')
    """
    return "" if value is None else f"{value:.2g}"


def _groups(rows: Iterable[Row], key: Callable[[Row], Hashable]) -> list[list[Row]]:
    found: dict[Hashable, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return list(found.values())


def _matrix(rows: list[Row]) -> Matrix:
    name = rows[0].verdict.task.family
    declared = registry.families().get(name)
    methods: dict[str, list[str]] = {}
    cells: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        task = row.verdict.task
        frameworks = methods.setdefault(task.method, [])
        if task.framework not in frameworks:
            frameworks.append(task.framework)
        cells.setdefault((task.claim, task.method, task.framework), []).append(row)
    claims = list(dict.fromkeys(row.verdict.task.claim for row in rows))
    return Matrix(name, declared.paper if declared else "", claims, methods, cells)
