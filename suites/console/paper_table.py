"""The figures of papers in the terminal: a table of verdicts, every failure in words, and the counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gradgate.references.ledger import NOT_YET, NOTE, Entry, Ledger
from gradgate.references.published import Judged, counts, summary
from gradgate.suites.console.terminal import console

STYLES = {"refuted as declared": "yellow", "unexplained": "yellow", "not as declared": "red"}
"""Outcome -> colour; the others have none."""
STATUS_LINE = {0: "as declared", 1: "NOT as declared", 2: "not everything was measured and declared"}
"""Exit status -> the end of the last line."""


def show(papers: Mapping[str, Sequence[Mapping[str, Any]]]) -> int:
    """Show the figures of papers, and return the exit status.

    Args:
        papers: family -> rows of `paper_results.with_verdict`.

    Returns:
        0 every figure is as declared; 1 one is not; 2 one could not be measured, or has no expectation.
    """
    out = console()
    judged: list[Judged] = []
    unmeasured: list[str] = []
    for family, rows in papers.items():
        printed = [row for row in rows if row["outcome"]]
        found = [Judged(row["outcome"], row["sentence"]) for row in printed]
        out.print(Text(f"\n{family}", style="bold"))
        for place in dict.fromkeys(row["place"] for row in printed):
            grid = _grid(place, [row for row in printed if row["place"] == place])
            out.print(Padding(grid, (0, 0, 0, 2), expand=False))
        out.print(f"  {line(found, len(rows) - len(printed))}", markup=False)
        judged += found
        unmeasured += [_unmeasured(row) for row in rows if row["ours"] is None and not row["outcome"]]
    for outcome, more in (("not as declared", []), ("not measured here", unmeasured)):
        chosen = [one.sentence for one in judged if one.outcome == outcome] + more
        if chosen:
            out.print(Text(f"\n{outcome}", style=f"bold {STYLES.get(outcome, '')}".strip()))
        for sentence in chosen:
            out.print(f"• {sentence}", markup=False, soft_wrap=True)
    status = exit_status(judged, bool(unmeasured))
    out.print()
    out.print(f"{line(judged)}; {STATUS_LINE[status]}", style="red" if status else "green")
    return status


def _unmeasured(row: Mapping[str, Any]) -> str:
    """Why a figure without a printed number has no measured one."""
    return f"{row['place']} / {row['series']} / {row['x']}: {row['problem']} (no number is printed)"


def exit_status(judged: Sequence[Judged], unmeasured: bool = False) -> int:
    """0 all figures are as declared; 1 one is not; 2 one was not measured, or has no expectation.

    Args:
        judged: the printed figures.
        unmeasured: whether a figure without a printed number was not measured.
    """
    found = {one.status for one in judged} | ({2} if unmeasured else set())
    return min(found - {0}, default=0)


def line(judged: Sequence[Judged], others: int = 0) -> str:
    """Such as ``69 printed figures: 3 upheld, 66 unexplained; 173 without a printed number``."""
    count = f"{len(judged)} printed {'figure' if len(judged) == 1 else 'figures'}"
    told = f"{count}: {summary(counts(judged))}" if judged else count
    return told + (f"; {others} without a printed number" if others else "")


def _grid(place: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    grid = Table(box=None, pad_edge=False, header_style="bold")
    grid.add_column(place, overflow="fold", min_width=30)
    for name in ("printed", "measured", "ratio"):
        grid.add_column(name, justify="right", no_wrap=True)
    grid.add_column("unit", overflow="fold")
    grid.add_column("agreement", overflow="fold")
    grid.add_column("verdict", no_wrap=True)
    for row in rows:
        numbers = [f"{row['printed']:.4g}", _number(row["ours"], ".4g"), _number(row["ratio"], ".3g")]
        outcome = row["outcome"]
        said = f"{row['series']}, {row['x']}" if row["x"] != "" else row["series"]
        unit = f"{row['unit']} (unlike)" if row["unlike"] else row["unit"]
        grid.add_row(said, *numbers, unit, row["agreement"], Text(outcome, style=STYLES.get(outcome, "")))
    return grid


def _number(value: Any, form: str) -> str:
    return format(value, form) if isinstance(value, (int, float)) else ""


def statements(found: Sequence[Ledger], verdicts: Mapping[str, Mapping[str, Judged]]) -> None:
    """Show the statements of papers, and what became of each.

    Args:
        found: the ledgers.
        verdicts: family -> key of a printed figure -> its verdict.
    """
    out = console()
    for ledger in found:
        judged = verdicts.get(ledger.family, {})
        out.print(Text(f"{ledger.family}: {ledger.paper}", style="bold"))
        _indented(out, f"{len(ledger.entries)} statements: {ledger.summary}", 2)
        if judged:
            _indented(out, line(list(judged.values())), 2)
        if unsettled := ledger.unsettled(judged):
            _indented(out, f"of the statements {unsettled}", 2)
        for entry in ledger.entries:
            _statement(out, entry, judged)


def _statement(out: Console, entry: Entry, judged: Mapping[str, Judged]) -> None:
    said = entry.statement
    _indented(out, f"{said.place}: “{said.words}”", 2)
    if entry.claims:
        _indented(out, f"claim, expected {entry.expected}: {', '.join(said.claims)}", 6)
    if entry.expected == "upheld and refuted":
        _indented(out, f"refuted is {', '.join(_refuted(entry))}", 6)
    if entry.rows:
        printed = sum(row.key in judged for row in entry.rows)
        figures = f"{len(entry.rows)} {'figure' if len(entry.rows) == 1 else 'figures'}"
        figures += f", {printed} with a printed number" if 0 < printed < len(entry.rows) else ""
        _indented(out, f"{figures}, {entry.verdict(judged)}: {'; '.join(said.figures)}", 6)
    for name, one in entry.differing(judged).items():
        _indented(out, f"{one.outcome}: {name}", 8)
    if said.reason:
        _indented(out, f"{said.kind}: {said.reason.removeprefix(NOT_YET).removeprefix(NOTE)}", 6)


def _indented(out: Console, text: str, indent: int) -> None:
    out.print(Padding(Text(text), (0, 0, 0, indent), expand=False))


def _refuted(entry: Entry) -> list[str]:
    """The claims of a statement that are declared refuted."""
    named: dict[tuple[str, str], list[str]] = {}
    for method, claim in entry.claims:
        if claim.expected == "refuted":
            named.setdefault((method.name, claim.name), []).append(method.framework)
    return [f"{m}:{'*' if len(frameworks) > 1 else frameworks[0]}:{c}" for (m, c), frameworks in named.items()]
