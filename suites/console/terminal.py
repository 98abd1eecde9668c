"""What a run shows in the terminal when it ends: a table, the findings and the failures."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from gradgate.references.claims import GRADIENT_CLAIMS
from gradgate.references.contract import Method
from gradgate.suites.console.plain import plain
from gradgate.suites.judging.explain import EXACT, LABELS, by_cause, explain
from gradgate.suites.judging.outcomes import FAILED, exit_status, last_line, not_judged
from gradgate.suites.judging.verdict import Verdict

WIDTH = 120
"""Width in columns where the output is not a terminal, so that a log looks the same everywhere."""
SHOWN = 2
"""How many of the pairs that were never tried a summary names."""
NAMED = 6
"""How many of the claims that are inapplicable for one reason a summary names."""
LOST = tuple(GRADIENT_CLAIMS.values())
"""Claims whose lost digits a summary shows, in the order of its columns."""


class _Console(Console):
    """A console that shows every text as it is: no markup, no codes of emoji, no character that steers a terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of a renderable; those of the console itself, which move the cursor, are kept."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(plain(segment.text), segment.style)


def console(*, stderr: bool = False) -> Console:
    """A console. It uses colours and moving bars only on a terminal."""
    made = _Console(stderr=stderr, highlight=False, soft_wrap=False, markup=False, emoji=False)
    if not made.is_terminal:
        made.width = WIDTH
    return made


def table(verdicts: Sequence[Verdict]) -> None:
    """Show one row per method and framework, then every finding and failure in words, then one verdict line."""
    out = console()
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in (
        ("family", "left"),
        ("method", "left"),
        ("framework", "left"),
        ("upheld", "right"),
        ("findings", "right"),
        ("failed", "right"),
        ("n/a", "right"),
        ("problems", "right"),
        ("equal to", "right"),
        ("digits lost\nf64 f32 bf16", "right"),
    ):
        grid.add_column(name, justify=justify, no_wrap=name != "method", overflow="fold")  # type: ignore[arg-type]
    for _, rows in itertools.groupby(verdicts, key=lambda v: v.task.owner):
        grid.add_row(*_row(list(rows)))
    out.print(grid)
    out.print()
    _coverage(out, verdicts)
    for verdict in verdicts:
        if verdict.decisions and verdict.decisions["never"]:
            out.print(f"{verdict.task.method} {verdict.task.framework}: {verdict.decided}", markup=False)
        if verdict.unrun:
            out.print(f"{verdict.task.method} {verdict.task.framework}: {verdict.unrun}", markup=False)
    for title, outcomes, style in (("findings", ("finding",), "yellow"), ("failures", FAILED, "red")):
        chosen = [v for v in verdicts if v.outcome in outcomes]
        if chosen:
            out.print(Text(f"\n{title}", style="bold"))
        for group in by_cause(chosen, lambda verdict: verdict):
            _explain(out, group, style)
    _inapplicable(out, [v for v in verdicts if v.outcome == "inapplicable"])
    out.print()
    for sentence in not_judged(verdicts):
        out.print(sentence, style="red", markup=False)
    out.print(last_line(verdicts), style="red" if exit_status(verdicts) else "green")


def _inapplicable(out: Console, verdicts: Sequence[Verdict]) -> None:
    """For each reason why claims are inapplicable: how many there are, and which."""
    for reason in sorted({v.reason for v in verdicts}):
        alike = [v.task for v in verdicts if v.reason == reason]
        names = list(dict.fromkeys(f"{task.method} {task.framework} {task.claim}" for task in alike))
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        out.print(f"\ninapplicable ({len(alike)}): {reason}\n  {', '.join(names[:NAMED])}{more}", markup=False)


def _coverage(out: Console, verdicts: Sequence[Verdict]) -> None:
    """For each claim about the gradient that more examples would try on more pairs of (field, value): how many.

    Floats are judged on few shapes by design, so they are left out where sixty digits were judged.
    """
    exact = {v.task.owner for v in verdicts if v.task.claim in EXACT and v.coverage}
    for claim in (*EXACT, *LOST):
        told = [v for v in verdicts if v.task.claim == claim and (claim in EXACT or v.task.owner not in exact)]
        found = [v.coverage for v in told if v.coverage.get("enough") and v.coverage["missing"]]
        if not found:
            continue
        tried, possible = (sum(one[name] for one in found) for name in ("tried", "possible"))
        never = list(dict.fromkeys(pair for one in found for pair in one["missing"]))
        enough = max(one["enough"] for one in found)
        out.print(
            f"{claim}: {tried} of {possible} pairs of (field, value) tried; never, among others: "
            f"{', '.join(never[:SHOWN])}; --examples {enough} tries every shape",
            markup=False,
        )


def _row(group: list[Verdict]) -> list[str | Text]:
    task = group[0].task
    outcomes = [v.outcome for v in group]
    upheld, found, absent = (outcomes.count(name) for name in ("upheld", "finding", "inapplicable"))
    failed = sum(name in FAILED for name in outcomes)
    digits = fewest_digits(group)
    lost = [("–" if one is None else f"{one:.1f}") for one in lost_digits(group)]
    shown = [f"{digits} digits" if digits is not None else "", "{:>3} {:>3} {:>4}".format(*lost)]
    count = sum(v.examples for v in group)
    return [
        task.family,
        task.method,
        task.framework,
        str(upheld),
        Text(str(found or ""), style="yellow"),
        Text(str(failed or ""), style="red"),
        str(absent or ""),
        str(count),
        *shown,
    ]


def fewest_digits(verdicts: Iterable[Verdict]) -> int | None:
    """The fewest digits to which the formulas agree, over the upheld claims; None if no claim counts digits."""
    return min((v.digits for v in verdicts if v.verdict == "upheld" and v.digits is not None), default=None)


def lost_digits(verdicts: Iterable[Verdict]) -> list[float | None]:
    """Digits lost beyond plain backprop in float64, float32 and bfloat16; None if that was not judged."""
    found = {v.task.claim: v.lost for v in verdicts}
    return [found.get(claim) for claim in LOST]


def _explain(out: Console, group: list[Verdict], style: str) -> None:
    """Print one cause: what is wrong first, then the claims that fail for it, with one command for a failure."""
    first, *others = group
    words, frameworks = explain(first), sorted({v.task.framework for v in group})
    what, *clauses = words.clauses
    name = " ".join(dict.fromkeys((first.task.family, first.task.method)))
    out.print(Text(f"• {name} ({', '.join(frameworks)}): {what}", style=style))
    for clause in clauses:
        out.print(f"  {clause}", markup=False)
    for line in words.lines(*[field for field in LABELS if field != "reason"]):
        out.print(f"  {line}", markup=False, soft_wrap=line.startswith(LABELS["reproduce"]))
    if others and first.outcome in FAILED:
        out.print(f"  the same cause: {', '.join(v.task.claim for v in others)}", markup=False)
        return
    for other in others:
        (line,) = explain(other).lines("reproduce")
        out.print(f"  {other.task.claim} ({other.task.framework}): {line}", markup=False, soft_wrap=True)


def methods(found: Sequence[Method]) -> None:
    """Print the methods and their claims."""
    out = console()
    for method in found:
        options = ", ".join(f"{o.name}: {o.legal}" for o in method.options)
        out.print(Text(f"{method.family} {method.name} {method.framework}", style="bold"), end="")
        out.print(f"  [{options}]" if options else "", markup=False)
        for claim in method.claims:
            expected = "  (expected: refuted)" if claim.expected == "refuted" else ""
            out.print(f"  {claim.name:24} {claim.statement} — {claim.source}{expected}", markup=False)


def profiles(rows: Sequence[dict[str, Any]]) -> None:
    """Print the hardware profiles, and what to install for those whose compiler is missing."""
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
    """Print a line on standard error."""
    console(stderr=True).print(text, markup=False, soft_wrap=True)
