"""A task, the verdict on it, and the stable JSON of both."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from gradgate.suites.judging.lines import Lines, from_json
from gradgate.suites.judging.outcomes import AGAINST, OUTCOMES, outcome_of
from gradgate.suites.judging.task import Task

SCHEMA = 1
NEVER = 2
"""Sides that no problem took, of which a sentence names so many."""


@dataclass(frozen=True)
class Verdict:
    """The judgement on one claim.

    Attributes:
        verdict: ``upheld``, ``refuted``, ``inapplicable`` or ``error`` (the method gave no answer: it raised, hung
            or ended its process).
        examples: problems that were judged.
        error: the relative error that is largest in proportion to its bound, or that of the smallest failing problem;
            None if there is none.
        noise: the noise allowed for that error, on the same scale.
        leaf: the leaf that error and noise belong to.
        spec: the smallest failing Spec or, for an upheld claim, the worst one; as a dict.
        options: the method's options on this Spec.
        reason: a sentence: what was wrong, or why nothing could be said; for a law, what was measured.
        wrong_line: the line of source to blame for a refuted formula, as ``src/ops.py:12``; "" if none is known.
        digits: for a claim judged in sixty digits: the number of digits to which both formulas are known to agree.
        lost: for a claim about the gradient in floats: decimal digits lost beyond plain backprop, on the worst problem.
        informative: for a claim judged in floats: number of problems that say something about every kind of leaf.
        bound: the relative error that the rule allows for one problem, or in bfloat16 for all problems together.
        coverage: for an upheld claim that draws problems: how many of the ``possible`` pairs of (field, value) were
            ``tried``, and the first of the ``missing`` ones.
        decisions: for an upheld formula of a pair: how many of the ``decisions`` of both programs went ``both`` ways,
            how many others are ``proved`` to have sides that cannot be reached,
            the sides that were ``never`` taken after this many ``tries``, the counts for each of the ``lines``, where
            the programs are ``apart``, and how often each mask, `if`, loop and block of its ``kernels`` went which way.
        lines: for an upheld formula of a pair: which lines of the author's files ran, and which loops turned.
        worst: for an upheld gradient of a pair in float64 or float32: the largest error over noise that a search found
            (`hardest`), the ``scales`` by which it multiplied inputs, the ``shape`` if it is another one, and the
            largest that was ``drawn``.
        run: examples and seed, if all problems together refute and no single one does.
        record: identities of the readings on which the verdict rests: everything that its process had read.
        loaded: gradgate's modules that were loaded while it was judged, name -> sha256; it is no part of the JSON.
        laws: for a claim about memory or work: what was measured over which sizes, as `Series.to_dict`.
    """

    task: Task
    verdict: str
    examples: int = 0
    error: float | None = None
    noise: float | None = None
    leaf: str = ""
    spec: dict[str, Any] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    profile: str = "cpu"
    reason: str = ""
    wrong_line: str = ""
    seconds: float = 0.0
    laws: list[dict[str, Any]] = field(default_factory=list)
    digits: int | None = None
    lost: float | None = None
    informative: int | None = None
    bound: float | None = None
    run: dict[str, int] = field(default_factory=dict)
    coverage: dict[str, Any] = field(default_factory=dict)
    decisions: dict[str, Any] = field(default_factory=dict)
    lines: tuple[Lines, ...] = ()
    worst: dict[str, Any] = field(default_factory=dict)
    record: tuple[str, ...] = ()
    loaded: dict[str, str] = field(default_factory=dict)

    @property
    def outcome(self) -> str:
        """The verdict compared with what the method declares: a name in `outcomes.OUTCOMES`."""
        return outcome_of(self.verdict, self.task.expected, bool(self.task.origin or self.task.target))

    @property
    def raised(self) -> bool:
        """Whether it is an error that the method raised; memory and time that ran out are no such error."""
        cause = re.search(r"out of memory|not enough memory|allocate|RESOURCE_EXHAUSTED|bad_alloc", self.reason)
        return self.verdict == "error" and self.reason.startswith("the method raised ") and cause is None

    @property
    def to_declare(self) -> str:
        """The declaration that makes this verdict the expected one, to paste into a user's pair; "" if there is none.

        It needs a reason, which only the author can give.
        """
        task = self.task
        if self.outcome == "unexpected":
            return f'take "{task.claim}" out of expected='
        if self.outcome not in ("failure", "error") or not (task.origin or task.target):
            return ""
        return f'if this is known to fail, declare it: expected={{"{task.claim}": "<the reason>"}}'

    @property
    def decided(self) -> str:
        """How many decisions went both ways, and what no problem reached, in words; "" if there are no decisions."""
        found = self.decisions
        if not found:
            return ""
        said = f"{found['both']} of {found['decisions']} decisions both ways"
        said += f", {found['proved']} of the others proved one-sided" if found.get("proved") else ""
        never = found["never"]
        more = f", … (+{len(never) - NEVER})" if len(never) > NEVER else ""
        return f"{said}; never: {', '.join(never[:NEVER])}{more}" if never else said

    @property
    def unrun(self) -> str:
        """What of the author's files no problem ran, in words; "" if everything ran."""
        return "; ".join(sentence for one in self.lines for sentence in one.sentences)

    @property
    def as_expected(self) -> bool:
        """Whether this verdict is what the method declares; a claim that was inapplicable contradicts nothing."""
        return OUTCOMES[self.outcome].status == 0

    @property
    def reproduce(self) -> str:
        """One command that judges this claim again; if a Spec failed, on this Spec alone."""
        task = self.task
        words = ["gradgate", "verify", *([task.target] if task.target else []), "--family", task.origin or task.family]
        words += [] if task.target else ["--method", task.method]
        words += ["--framework", task.framework, "--claim", task.claim]
        words += ["--profile", self.profile] if self.profile != "cpu" else []
        for name, value in self.run.items():
            words += [f"--{name}", str(value)]
        if not self.laws and self.verdict in AGAINST and self.spec is not None:
            words += ["--spec", json.dumps(self.spec, sort_keys=True)]
            words += ["--options", json.dumps(self.options, sort_keys=True)] if self.options else []
        return shlex.join(words)

    def to_dict(self) -> dict[str, Any]:
        """The verdict as in verdicts.json; numbers that JSON lacks become null."""
        task = self.task
        row = {
            "family": task.family,
            "method": task.method,
            "framework": task.framework,
            "claim": task.claim,
            "statement": task.statement,
            "source": task.source,
            "verdict": self.verdict,
            "expected": task.expected,
            "as_expected": self.as_expected,
            "declared_reason": task.declared_reason,
            "examples": self.examples,
            "error": finite(self.error),
            "noise": finite(self.noise),
            "leaf": self.leaf,
            "spec": self.spec,
            "options": self.options,
            "profile": self.profile,
            "reason": self.reason,
            "seconds": round(self.seconds, 3),
            "reproduce": self.reproduce,
        }
        row |= {"wrong_line": self.wrong_line} if self.wrong_line else {}
        row |= {"laws": self.laws} if self.laws else {}
        row |= {"run": self.run} if self.run else {}
        row |= {"coverage": self.coverage} if self.coverage else {}
        row |= {"decisions": self.decisions} if self.decisions else {}
        row |= {"lines": [dataclasses.asdict(one) for one in self.lines]} if self.lines else {}
        row |= {"worst": self.worst} if self.worst else {}
        measured = (
            ("digits", self.digits),
            ("lost", finite(self.lost)),
            ("informative", self.informative),
            ("bound", finite(self.bound)),
        )
        row |= {name: value for name, value in measured if value is not None}
        row |= {"record": list(self.record)} if self.record else {}
        row |= {"origin": task.origin} if task.origin else {}
        return row | ({"target": task.target} if task.target else {})

    @classmethod
    def from_dict(cls, row: dict[str, Any]) -> Verdict:
        """The Verdict of `to_dict`; older documents call the declared reason ``why``.

        Raises:
            TypeError: a field is missing or holds what `to_dict` never writes, as after an edit by hand; says which.
        """
        if not isinstance(row, dict):
            raise TypeError(f"a verdict is an object, not {row!r:.80}")
        row = {"declared_reason": row["why"], **row} if "why" in row else row
        task = Task(**{f.name: row[f.name] for f in dataclasses.fields(Task) if f.name in row})
        rest = {f.name: row[f.name] for f in dataclasses.fields(cls) if f.name != "task" and f.name in row}
        lines = from_json(row.get("lines", ()))
        return cls(task, **rest | {"record": tuple(row.get("record", ())), "lines": lines})


def both_ways(verdicts: Iterable[Verdict]) -> tuple[int, int]:
    """How many decisions of a run's pairs went both ways, and how many there are."""
    known = [verdict.decisions for verdict in verdicts if verdict.decisions]
    return sum(one["both"] for one in known), sum(one["decisions"] for one in known)


def finite(number: float | None) -> float | None:
    """A number as JSON can hold it: None if it is not finite."""
    return number if number is None or math.isfinite(number) else None
