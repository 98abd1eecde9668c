"""What ``gradgate watch`` shows: a row for each rule, then what is wrong, in words, with a test that fails."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gradgate.suites.console.github import annotation
from gradgate.suites.console.terminal import console, note
from gradgate.suites.watching.results import AGREES, STATES, Judged, exit_status, place

__all__ = ["annotate", "note", "show"]

SHAPES = 2
"""Distinct calls of a rule that a row names."""
RIGHT = ("upheld", "in floats", "by differences")
"""States of rules whose gradient is right, as far as it is known."""
STYLES = {
    "refuted": "red",
    "elsewhere": "yellow",
    "upheld": "green",
    "in floats": "green",
    "by differences": "green",
    "not judged": "yellow",
}
"""State -> the style of its mark."""


def show(judged: Sequence[Judged], notes: Sequence[str], here: Path, folder: Path) -> None:
    """Show the table, the findings, what differs by design, warnings, and one last line.

    Args:
        judged: the rules.
        notes: sentences about the run.
        here: the folder to which paths are relative.
        folder: where the calls were recorded.
    """
    out = console()
    if judged:
        grid = Table(box=None, pad_edge=False, header_style="bold")
        for name, justify in (("", "left"), ("rule", "left"), ("", "left"), ("calls", "right"), ("seen", "left")):
            grid.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
        for one in judged:
            state = STATES[one.state]
            grid.add_row(
                Text(state.mark, style=STYLES.get(one.state, "")),
                place(one.rule, here),
                _short(one),
                str(one.count),
                _seen(one),
            )
        out.print(grid)
    refuted = [one for one in judged if one.state == "refuted"]
    like = [one for one in refuted if one.explained.likeness not in ("", AGREES)]
    wrong = [one for one in refuted if one not in like]
    for title, rules in (
        ("refuted", wrong),
        ("refuted, and maybe different by design", like),
        ("right at what was seen, wrong at other inputs like these", [o for o in judged if o.state == "elsewhere"]),
    ):
        if rules:
            out.print(Text(f"\n{title}", style="bold"))
        for one in rules:
            _finding(out, one, here, folder)
    if like:
        out.print("  If it is meant to differ, say so once, in pyproject.toml:")
        out.print("  [tool.gradgate.by_design]", markup=False)
        for one in like:
            out.print(f'  "{one.rule.name}" = "the reason"', markup=False)
    for name in ("acknowledged", "by differences", "not judged"):
        rules = [one for one in judged if one.state == name]
        if rules:
            out.print(Text(f"\n{STATES[name].words}", style="bold"))
        for one in rules:
            said = one.acknowledged or one.reason
            out.print(f"• {one.rule.name} ({place(one.rule, here)}): {said}", markup=False)
    warned = [(one, hazard) for one in judged for hazard in one.hazards if one.state in RIGHT]
    if warned:
        out.print(Text("\nwarnings: the gradient is right, but autograd's protocol is not kept", style="bold"))
    for one, hazard in warned:
        out.print(f"• {one.rule.name}: {hazard}", markup=False)
    out.print()
    for sentence in notes:
        out.print(sentence, markup=False)
    out.print(last_line(judged), style="red" if exit_status(judged) else "green")


def last_line(judged: Sequence[Judged]) -> str:
    """The last line of a run, such as ``3 rules: 2 upheld, 1 refuted``."""
    states = [one.state for one in judged]
    counted = [f"{states.count(name)} {STATES[name].words}" for name in STATES if name in states]
    return f"{len(judged)} rule{'' if len(judged) == 1 else 's'}" + (f": {', '.join(counted)}" if counted else "")


def annotate(judged: Sequence[Judged], here: Path) -> None:
    """Print an annotation of GitHub at the line of every rule that is refuted, or wrong at other inputs."""
    for one in judged:
        if one.state in ("refuted", "elsewhere"):
            file, _, line = place(one.rule, here).rpartition(":")
            level = "error" if one.state == "refuted" else "warning"
            print(annotation(level, file, int(line), f"{one.rule.name}: {one.reason}"))


def _short(one: Judged) -> str:
    return one.rule.name.rpartition(":")[2].replace("<locals>.", "")


def _seen(one: Judged) -> str:
    listed = [f"({', '.join(call.arguments)})" + (" traced" if call.traced else "") for call in one.calls]
    more = len(listed) - SHAPES + one.more
    return " ".join(listed[:SHAPES]) + (f" and {more} more" if more > 0 else "")


def _finding(out: Console, one: Judged, here: Path, folder: Path) -> None:
    call = one.worst
    out.print(Text(f"• {one.rule.name} ({place(one.rule, here)})", style=STYLES[one.state]))
    out.print(f"  {one.reason}", markup=False)
    if one.explained.likeness:
        out.print(f"  {one.explained.likeness}", markup=False)
    where = f" in {call.test}" if call.test else ""
    out.print(f"  called with ({', '.join(call.arguments)}){where}", markup=False)
    if one.finding is not None:
        line = f"  reproduce: gradgate verify {folder / call.stem}.py --claim {one.finding.task.claim}"
        out.print(line, markup=False, soft_wrap=True)
    if one.explained.test:
        out.print("  this test fails:", markup=False)
        out.print(textwrap.indent(one.explained.test.rstrip(), "      "), markup=False, soft_wrap=True)
