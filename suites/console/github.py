"""Annotations of GitHub: a failure is shown at the line of the pull request that is to blame."""

from __future__ import annotations

import os
from collections.abc import Sequence

from gradgate.suites.judging.explain import by_cause, explain
from gradgate.suites.judging.outcomes import FAILED
from gradgate.suites.judging.verdict import Verdict


def wanted() -> bool:
    """Whether this process runs in a workflow of GitHub, which reads annotations from its output."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def place(verdict: Verdict) -> tuple[str, int]:
    """The file and line to show a failure at: what is to blame, or else the file of the pair, with line 0.

    >>> from gradgate.suites.judging.verdict import Task
    >>> task = Task("op", "op", "torch", "gradient_exact", origin="gradients.py:op")
    >>> place(Verdict(task, "refuted", wrong_line="src/op.py:12")), place(Verdict(task, "refuted"))
    (('src/op.py', 12), ('gradients.py', 0))
    """
    file, _, line = verdict.wrong_line.rpartition(":")
    if file:
        return file, int(line)
    file = (verdict.task.origin or verdict.task.target).rpartition(":")[0]
    return (file, 0) if file.endswith(".py") else ("", 0)


def annotation(level: str, file: str, line: int, text: str) -> str:
    """One annotation as the workflow command that GitHub reads.

    >>> annotation("error", "a,b.py", 3, "50%")
    '::error file=a%2Cb.py,line=3,title=gradgate::50%25'
    """
    where = f"file={_escaped(file, ',:')}," if file else ""
    where += f"line={line}," if line else ""
    return f"::{level} {where}title=gradgate::{_escaped(text)}"


def annotate(verdicts: Sequence[Verdict]) -> None:
    """Print an annotation for each cause of failure."""
    for first, *others in by_cause([v for v in verdicts if v.outcome in FAILED], lambda verdict: verdict):
        more = [f"the same cause: {', '.join(v.task.claim for v in others)}"] if others else []
        text = "\n".join((f"{first.task.method}: {explain(first).clauses[0]}", *explain(first).clauses[1:], *more))
        print(annotation("error", *place(first), text))


def _escaped(text: str, more: str = "") -> str:
    for character in ("%", "\r", "\n", *more):
        text = text.replace(character, f"%{ord(character):02X}")
    return text
