"""What a run shows in the terminal when it ends: a table, the findings and the failures."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gradgate.references.contract import Method
from gradgate.suites.judging.verdict import Verdict, exit_status

WIDTH = 120
"""Columns where the output is no terminal, so that a log reads the same everywhere."""
LAST_LINE = {0: "as claimed", 1: "NOT as claimed", 2: "not everything could be measured"}
EXACT = ("gradient_exact", "second_order_exact")
"""Claims that are judged in sixty digits."""
SHOWN = 2
"""Pairs that a summary names of those that were never tried."""
LOST = ("gradient_float64", "gradient_float32", "gradient_bfloat16")
"""Claims whose lost digits a summary shows, in its order."""


def console(*, stderr: bool = False) -> Console:
    """A console; colours and motion only on a terminal."""
    made = Console(stderr=stderr, highlight=False, soft_wrap=False)
    if not made.is_terminal:
        made.width = WIDTH
    return made


def table(verdicts: Sequence[Verdict]) -> None:
    """One row per method and framework, then every finding and every failure in words, then one verdict line."""
    out = console()
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in (
        ("family", "left"), ("method", "left"), ("framework", "left"), ("upheld", "right"), ("findings", "right"),
        ("failed", "right"), ("n/a", "right"), ("problems", "right"), ("equal to", "right"),
        ("digits lost\nf64 f32 bf16", "right"),
    ):  # fmt: skip
        grid.add_column(name, justify=justify, no_wrap=name != "method", overflow="fold")  # type: ignore[arg-type]
    for _, rows in itertools.groupby(verdicts, key=lambda v: v.task.owner):
        grid.add_row(*_row(list(rows)))
    out.print(grid)
    out.print()
    _coverage(out, verdicts)
    findings = [v for v in verdicts if v.verdict == "refuted" and v.as_expected]
    failures = [v for v in verdicts if not v.as_expected]
    if findings:
        out.print(Text("\nfindings: refuted, as declared", style="bold"))
        for group in _alike(findings):
            _explain(out, group, "yellow")
    if failures:
        out.print(Text("\nfailures", style="bold"))
        for group in _same_reason(failures):
            _explain(out, group, "red")
            out.print(f"  reproduce: {group[0].reproduce}", markup=False, soft_wrap=True)
    skipped = sorted({v.reason for v in verdicts if v.verdict == "inapplicable"})
    for reason in skipped:
        count = sum(v.reason == reason for v in verdicts if v.verdict == "inapplicable")
        out.print(f"\ninapplicable ({count}): {reason}", markup=False)
    status = exit_status(list(verdicts))
    out.print()
    good = sum(v.as_expected for v in verdicts)
    out.print(
        f"{good} of {len(verdicts)} claims as declared: {LAST_LINE[status]}", style="green" if not status else "red"
    )


def _coverage(out: Console, verdicts: Sequence[Verdict]) -> None:
    """For each claim about the gradient: how many pairs of (field, value) its problems tried, over all methods."""
    for claim in (*EXACT, *LOST):
        found = [v.coverage for v in verdicts if v.task.claim == claim and v.coverage]
        if not found:
            continue
        tried, possible = (sum(one[name] for one in found) for name in ("tried", "possible"))
        never = list(dict.fromkeys(pair for one in found for pair in one["missing"]))
        more = f"; never, among others: {', '.join(never[:SHOWN])}" if never else ""
        out.print(f"{claim}: {tried} of {possible} pairs of (field, value) tried{more}", markup=False)


def _row(group: list[Verdict]) -> list[str | Text]:
    task = group[0].task
    failed = sum(not v.as_expected for v in group)
    upheld = sum(v.verdict == "upheld" and v.as_expected for v in group)
    found = sum(v.verdict == "refuted" and v.as_expected for v in group)
    absent = sum(v.verdict == "inapplicable" for v in group)
    digits = fewest_digits(group)
    lost = [("–" if one is None else f"{one:.1f}") for one in lost_digits(group)]
    shown = [f"{digits} digits" if digits is not None else "", "{:>3} {:>3} {:>4}".format(*lost)]
    count = sum(v.examples for v in group)
    return [
        task.family, task.method, task.framework, str(upheld), Text(str(found or ""), style="yellow"),
        Text(str(failed or ""), style="red"), str(absent or ""), str(count), *shown,
    ]  # fmt: skip


def fewest_digits(verdicts: Iterable[Verdict]) -> int | None:
    """The fewest digits to which the formulas agree, over the claims that are upheld; None if none was judged so."""
    return min((v.digits for v in verdicts if v.verdict == "upheld" and v.digits is not None), default=None)


def lost_digits(verdicts: Iterable[Verdict]) -> list[float | None]:
    """Digits lost beyond plain backprop in float64, float32 and bfloat16; None where that was not judged."""
    found = {v.task.claim: v.lost for v in verdicts}
    return [found.get(claim) for claim in LOST]


def is_exact(verdict: Verdict) -> bool:
    """Whether a verdict is about the formula, in sixty digits: its `noise` is then the width of the balls."""
    return verdict.digits is not None or verdict.task.claim in EXACT


def measured(verdict: Verdict) -> str:
    """The numbers of a verdict in words; "" if it has none.

    >>> task = Task("chain", "revolve", "jax", "gradient_float64")
    >>> measured(Verdict(task, "upheld", error=3.2e-16, noise=4e-16, leaf="w", lost=0.02))
    'error 3.2e-16 in w, noise 4e-16; 0.0 digits lost beyond plain backprop'
    >>> measured(Verdict(task, "upheld", 100, error=3.2e-16, noise=4e-16, leaf="w", bound=6.4e-15, informative=97))
    'error 3.2e-16 in w, noise 4e-16, bound 6.4e-15; 97 of 100 problems informative'
    >>> measured(Verdict(task, "upheld", error=1e-58, digits=57))
    'equal to 57 digits'
    """
    where = f" in {verdict.leaf}" if verdict.leaf else ""
    if verdict.digits is not None:
        return f"equal to {verdict.digits} digits"
    parts = []
    if is_exact(verdict):
        width = "" if verdict.noise is None else f", known to within {number(verdict.noise)}"
        parts += [] if verdict.error is None else [f"relative error {number(verdict.error)}{where}{width}"]
    elif verdict.error is not None or verdict.noise is not None:
        error = number(verdict.error) or "not finite"
        bound = "" if verdict.bound is None else f", bound {number(verdict.bound)}"
        parts.append(f"error {error}{where}, noise {number(verdict.noise) or 'not known'}{bound}")
    parts += [] if verdict.lost is None else [f"{verdict.lost:.1f} digits lost beyond plain backprop"]
    if verdict.informative is not None:
        parts.append(f"{verdict.informative} of {verdict.examples} problems informative")
    return "; ".join(parts)


def number(value: float | None) -> str:
    """Two digits; "" for None and for what is not finite.

    >>> number(1.2368e-6), number(0.0), number(None)
    ('1.2e-06', '0', '')
    """
    return "" if value is None or not math.isfinite(value) else f"{value:.2g}"


def _alike(findings: Iterable[Verdict]) -> list[list[Verdict]]:
    groups: dict[tuple[str, str, str], list[Verdict]] = {}
    for verdict in findings:
        groups.setdefault((verdict.task.family, verdict.task.method, verdict.task.declared_reason), []).append(verdict)
    return list(groups.values())


def _same_reason(failures: Iterable[Verdict]) -> list[list[Verdict]]:
    groups: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in failures:
        groups.setdefault((verdict.task.owner, verdict.reason), []).append(verdict)
    return list(groups.values())


def _explain(out: Console, group: list[Verdict], style: str) -> None:
    first = group[0]
    claims = sorted({v.task.claim for v in group})
    frameworks = sorted({v.task.framework for v in group})
    head = f"{first.task.family} {first.task.method} ({', '.join(frameworks)}): {', '.join(claims)} {first.verdict}"
    out.print(Text("• " + head, style=style))
    out.print(f"  claim: {first.task.statement} ({first.task.source})", markup=False)
    if first.task.declared_reason:
        out.print(f"  why: {first.task.declared_reason}", markup=False)
    if first.reason:
        out.print(f"  {first.reason}", markup=False)
    if first.spec:
        options = f"  options {json.dumps(first.options)}" if first.options else ""
        out.print(f"  smallest: {compact(first.spec)}{options}", markup=False)


def compact(spec: dict[str, Any]) -> str:
    """A Spec on one line: field=value."""
    return " ".join(f"{name}={value}" for name, value in spec.items())


def methods(found: Sequence[Method]) -> None:
    """The methods and their claims."""
    out = console()
    for method in found:
        options = ", ".join(f"{o.name}: {o.legal}" for o in method.options)
        out.print(Text(f"{method.family} {method.name} {method.framework}", style="bold"), end="")
        out.print(f"  [{options}]" if options else "", markup=False)
        for claim in method.claims:
            expected = "  (expected: refuted)" if claim.expected == "refuted" else ""
            out.print(f"  {claim.name:24} {claim.statement} — {claim.source}{expected}", markup=False)


def profiles(rows: Sequence[dict[str, Any]]) -> None:
    """The hardware profiles, and what to install for those whose compiler is missing."""
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in (("profile", "left"), ("kind", "left"), ("memory GiB", "right"), ("GB/s", "right")):
        grid.add_column(name, justify=justify)  # type: ignore[arg-type]
    grid.add_column("compiler")
    for row in rows:
        memory = f"{row['memory_bytes'] / 2**30:.1f}" if row["memory_bytes"] else ""
        bandwidth = f"{row['bandwidth'] / 1e9:.0f}" if row["bandwidth"] else ""
        reason = Text(row["reason"], style="green" if row["available"] else "yellow")
        grid.add_row(row["name"], row["kind"], memory, bandwidth, reason)
    console().print(grid)


def note(text: str) -> None:
    """A line on standard error."""
    console(stderr=True).print(text, markup=False, soft_wrap=True)
