"""A verdict in words: `explain`, which the terminal, the page, JUnit and pytest all use.

Each of the four only arranges these words. So a reader finds the same sentence wherever a refutation is shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from gradgate.suites.judging.outcomes import OUTCOMES
from gradgate.suites.judging.verdict import Verdict

T = TypeVar("T")
EXACT = ("gradient_exact", "second_order_exact")
"""Claims that are judged in sixty digits."""
KNOWN_ERROR = "finding: error, as declared"
"""The outcome in words of a claim that is declared to fail and could not be measured."""
LABELS = {
    "outcome": "outcome",
    "claim": "claim",
    "declared_reason": "declared false because",
    "reason": "reason",
    "measured": "measured",
    "leaf": "leaf",
    "problem": "problem",
    "options": "options",
    "reproduce": "reproduce",
    "declare": "declare",
}
"""Field of an `Explanation` -> its label, in the order in which the fields are shown."""


@dataclass(frozen=True)
class Explanation:
    """One verdict in words. A field is "" if there is nothing to say.

    Attributes:
        outcome: the verdict compared with what was declared, such as ``finding: refuted, as declared``.
        claim: the claim's name, its statement, and its source.
        declared_reason: why the method declares the claim false.
        reason: the verdict's own sentence: what was wrong, or why nothing could be said.
        measured: the numbers: error and noise, or digits.
        leaf: the leaf of the gradient, unless `measured` names it.
        problem: the Spec of the smallest problem that fails, or the worst one of an upheld claim.
        options: the method's options on that problem.
        reproduce: one command that judges this claim again.
        declare: the declaration to paste if the failure is known.
    """

    outcome: str
    claim: str
    declared_reason: str
    reason: str
    measured: str
    leaf: str
    problem: str
    options: str
    reproduce: str
    declare: str = ""

    def lines(self, *fields: str) -> list[str]:
        """These fields, or all fields, each as ``label: text``; a field that is "" is left out."""
        chosen = [(LABELS[name], str(getattr(self, name))) for name in fields or LABELS]
        return [f"{label}: {text}" for label, text in chosen if text]


def explain(verdict: Verdict) -> Explanation:
    """Everything that is shown about a verdict."""
    task, numbers = verdict.task, measured(verdict)
    said = verdict.reason.removeprefix(f"equal to {verdict.digits} digits").removeprefix("; ")
    return Explanation(
        outcome=KNOWN_ERROR
        if (verdict.outcome, verdict.verdict) == ("finding", "error")
        else OUTCOMES[verdict.outcome].meaning,
        claim=f"{task.claim}: {task.statement}" + (f" ({task.source})" if task.source else ""),
        declared_reason=task.declared_reason,
        reason=said,
        measured=numbers,
        leaf="" if f" in {verdict.leaf}" in numbers else verdict.leaf,
        problem=compact(verdict.spec or {}),
        options=compact(verdict.options),
        reproduce=verdict.reproduce,
        declare=verdict.to_declare,
    )


def told_alike(verdict: Verdict) -> Hashable:
    """A key: verdicts with the same key are shown together.

    Findings share the method and the declared reason; others share the method, the framework and the reason.
    """
    task = verdict.task
    if verdict.outcome == "finding":
        return task.family, task.method, task.declared_reason
    return task.owner, verdict.outcome, verdict.reason


def alike(items: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """The items in groups of equal key, in the order in which the keys first occur."""
    found: dict[Hashable, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return list(found.values())


def is_exact(verdict: Verdict) -> bool:
    """Whether a verdict is about the formula, in sixty digits: its `noise` is then the width of the balls."""
    return verdict.digits is not None or verdict.task.claim in EXACT


def measured(verdict: Verdict) -> str:
    """The numbers of a verdict in words; "" if it has none.

    >>> from gradgate.suites.judging.verdict import Task
    >>> task = Task("chain", "revolve", "jax", "gradient_float64")
    >>> measured(Verdict(task, "upheld", error=3.2e-16, noise=4e-16, leaf="w", lost=0.02))
    'error 3.2e-16 in w, noise 4e-16, 0.8 times the noise; 0.0 digits lost beyond plain backprop'
    >>> measured(Verdict(task, "upheld", 100, error=8e-16, noise=4e-16, leaf="w", bound=6.4e-15, informative=97))
    'error 8e-16 in w, noise 4e-16, 2 times the noise, bound 6.4e-15; 97 of 100 problems informative'
    >>> measured(Verdict(task, "upheld", error=1e-58, digits=57))
    'equal to 57 digits'
    """
    where = f" in {verdict.leaf}" if verdict.leaf else ""
    if verdict.digits is not None:
        return f"equal to {verdict.digits} digits"
    parts = []
    known = verdict.error is not None or verdict.noise is not None
    error, noise = number(verdict.error) or "not finite", number(verdict.noise)
    if known and is_exact(verdict):
        parts.append(f"relative error {error}{where}" + (f", known to within {noise}" if noise else ""))
    elif known:
        ratio = "" if (times := beside_noise(verdict)) is None else f", {times:.3g} times the noise"
        bound = "" if verdict.bound is None else f", bound {number(verdict.bound)}"
        parts.append(f"error {error}{where}, noise {noise or 'not known'}{ratio}{bound}")
    parts += [] if verdict.lost is None else [f"{verdict.lost:.1f} digits lost beyond plain backprop"]
    if verdict.informative is not None:
        parts.append(f"{verdict.informative} of {verdict.examples} problems informative")
    return "; ".join(parts)


def beside_noise(verdict: Verdict) -> float | None:
    """Error over noise, for a claim judged in floats; None if one is unknown or not finite, or the noise is 0."""
    error, noise = verdict.error, verdict.noise
    if is_exact(verdict) or error is None or not noise or not math.isfinite(error):
        return None
    return error / noise


def number(value: float | None) -> str:
    """A number with two digits; "" for None and for a number that is not finite.

    >>> number(1.2368e-6), number(0.0), number(None)
    ('1.2e-06', '0', '')
    """
    return "" if value is None or not math.isfinite(value) else f"{value:.2g}"


def compact(fields: Mapping[str, Any]) -> str:
    """A Spec, or options, on one line: field=value."""
    return " ".join(f"{name}={value}" for name, value in fields.items())
