"""The content of a report, computed from its document: outcomes, groups of rows, and the matrix of a family."""

from __future__ import annotations

import collections
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gradgate.references import registry
from gradgate.references.claims import GRADIENT_CLAIMS
from gradgate.suites.console.plain import plain
from gradgate.suites.judging.explain import Explanation, alike, by_cause, explain, is_exact
from gradgate.suites.judging.outcomes import FAILED, OUTCOMES, exit_status, last_line
from gradgate.suites.judging.verdict import Task, Verdict


def clean(value: Any) -> Any:
    r"""`value` without escape sequences and characters that XML or UTF-8 cannot hold, in keys and strings at any depth.

    >>> clean({"reason": "\x1b[31mred\x1b[0m \x00 \ud800"})
    {'reason': 'red  '}
    """
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {clean(name): clean(item) for name, item in value.items()}
    return [clean(item) for item in value] if isinstance(value, list) else value


@dataclass(frozen=True)
class Row:
    """One verdict with its place in the document.

    Attributes:
        place: its number, from 1.
        verdict: the verdict.
        page: the file that has its line in the table of all verdicts; "" if it is the page itself.
    """

    place: int
    verdict: Verdict
    page: str = ""

    @property
    def anchor(self) -> str:
        """The id of its line in the full table."""
        return f"v{self.place}"

    @property
    def link(self) -> str:
        """The link to its line in the table of all verdicts."""
        return f"{self.page}#{self.anchor}"

    @property
    def task(self) -> Task:
        """The claim that was judged."""
        return self.verdict.task

    @property
    def reason(self) -> str:
        """The verdict's reason."""
        return self.verdict.reason

    @property
    def outcome(self) -> str:
        """A name in OUTCOMES: the verdict compared with what was declared."""
        return self.verdict.outcome

    @property
    def mark(self) -> str:
        """The sign of its outcome, one character."""
        return OUTCOMES[self.outcome].mark

    @cached_property
    def explanation(self) -> Explanation:
        """The verdict in words."""
        return explain(self.verdict)

    @property
    def shown(self) -> str:
        """The text of its cell: the digits to which the formulas agree, or the mark."""
        digits = self.verdict.digits
        return str(digits) if self.outcome == "upheld" and digits is not None else self.mark

    @property
    def spoken(self) -> str:
        """The text of its cell for screen readers."""
        digits = self.verdict.digits
        return self.explanation.outcome + ("" if digits is None else f", equal to {digits} digits")

    @property
    def exact(self) -> bool:
        """Whether it was judged in sixty digits."""
        return is_exact(self.verdict)

    @property
    def noise(self) -> float | None:
        """The rounding noise with which the error is compared; None for a claim in sixty digits."""
        return None if self.exact else self.verdict.noise

    @property
    def not_finite(self) -> bool:
        """Whether the error was compared, and was NaN or infinite."""
        return self.verdict.verdict == "refuted" and self.verdict.error is None and self.verdict.noise is not None

    @property
    def lost(self) -> str:
        """Digits lost beyond plain backprop; "" if that was not judged."""
        return "" if self.verdict.lost is None else f"{self.verdict.lost:.1f}"

    @property
    def summary(self) -> str:
        """The text of a tooltip: the method, the outcome, the claim, the numbers and the reason, a line each."""
        task = self.verdict.task
        lines = [f"{task.method} · {task.framework}", *self.explanation.lines("outcome", "claim", "measured")]
        lines += [f"{self.verdict.examples} problems"] if self.verdict.examples else []
        lines += self.explanation.lines("reason", "declared_reason")
        return "\n".join(line if len(line) <= 400 else line[:399] + "…" for line in lines)


@dataclass(frozen=True)
class Precision:
    """One method in one framework: to how many digits its formula is proven, and how many it loses in floats.

    Attributes:
        equal: the claim that agrees to the fewest digits, then the claims in sixty digits that are not upheld.
        lost: the claims about the gradient, in the order of GRADIENT_CLAIMS; None for one that is not claimed.
    """

    method: str
    framework: str
    equal: list[Row]
    lost: list[Row | None]


@dataclass(frozen=True)
class Matrix:
    """One family: claims down, method and framework across."""

    family: str
    paper: str
    claims: list[str]
    methods: dict[str, list[str]]
    cells: dict[tuple[str, str, str], list[Row]]

    @property
    def precisions(self) -> list[Precision]:
        """A line for each method and framework that is judged in sixty digits or in floats."""
        found = []
        for method, frameworks in self.methods.items():
            for framework in frameworks:
                rows = [row for key, cell in self.cells.items() if key[1:] == (method, framework) for row in cell]
                exact = [row for row in rows if row.exact]
                known = [row for row in exact if row.outcome == "upheld" and row.verdict.digits is not None]
                fewest = sorted(known, key=lambda row: row.verdict.digits or 0)[:1]
                equal = fewest + [row for row in exact if row.outcome != "upheld"]
                lost = [
                    next((row for row in rows if row.verdict.task.claim == claim), None)
                    for claim in GRADIENT_CLAIMS.values()
                ]
                if equal or any(lost):
                    found.append(Precision(method, framework, equal, lost))
        return found


@dataclass(frozen=True)
class Report:
    """Everything that the page and the JUnit file show."""

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
        """The rows with these outcomes."""
        return [row for row in self.rows if row.outcome in outcomes]

    @property
    def missing(self) -> int:
        """Claims without a verdict: the run was cut off."""
        return self.claims - len(self.rows)

    @property
    def status(self) -> int:
        """The exit status of the run; a run that was cut off is at best 2."""
        return exit_status(self.rows, self.missing)

    @property
    def last_line(self) -> str:
        """How many claims are as declared, and the status in words."""
        return last_line(self.rows, self.missing)

    @cached_property
    def counts(self) -> dict[str, int]:
        """Outcome -> how many."""
        found = collections.Counter(row.outcome for row in self.rows)
        return {outcome: found[outcome] for outcome in OUTCOMES}

    @cached_property
    def failures(self) -> list[list[Row]]:
        """Failures, grouped by cause."""
        return by_cause(self.of_outcome(*FAILED), lambda row: row.verdict)

    @cached_property
    def findings(self) -> list[list[Row]]:
        """Refutations as declared, grouped by method and declared reason."""
        return by_cause(self.of_outcome("finding"), lambda row: row.verdict)

    @cached_property
    def inapplicable(self) -> list[list[Row]]:
        """Inapplicable claims, grouped by reason."""
        return alike(self.of_outcome("inapplicable"), lambda row: row.verdict.reason)

    @cached_property
    def families(self) -> list[list[Row]]:
        """The rows of each family."""
        return alike(self.rows, lambda row: row.verdict.task.family)

    @cached_property
    def matrices(self) -> list[Matrix]:
        """One matrix per family."""
        return [_matrix(rows) for rows in self.families]

    @property
    def precise(self) -> list[Matrix]:
        """The families with a verdict that has digits, or digits lost."""
        known = [row.verdict for row in self.rows if row.verdict.digits is not None or row.verdict.lost is not None]
        families = {verdict.task.family for verdict in known}
        return [matrix for matrix in self.matrices if matrix.family in families]


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
