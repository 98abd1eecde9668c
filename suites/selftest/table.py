"""What ``gradgate selftest`` shows in the terminal: kill rates, survivors by name, and the rivals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from gradgate.references import registry
from gradgate.suites.bugs.mutant import FORMULA
from gradgate.suites.bugs.of_pairs.one_side import FAMILY
from gradgate.suites.console.terminal import console
from gradgate.suites.selftest import summary
from gradgate.suites.selftest.judging import Outcome, everything

LAST_LINE = {
    0: "every mutant refuted, no unbroken method refuted",
    1: "NOT every mutant refuted, or a false alarm",
    2: "not everything could be judged",
}


def show(outcomes: Sequence[Outcome], expected: int) -> None:
    """Kill rates by family and framework, every survivor and alarm in words, the rivals, and one line."""
    out = console()
    out.print(_kills(outcomes))
    killers = ", ".join(f"{claim} {count}" for claim, count in summary.killers(outcomes))
    out.print(f"\nkilled by {killers or 'no claim'}", markup=False)
    for line in _formulas(summary.formulas(outcomes)):
        out.print(line, markup=False)
    if any(row["rivals"] for row in outcomes):
        out.print()
        out.print(_tools(outcomes))
    for row in outcomes:
        if row["status"] in ("survived", "alarm", "undecided"):
            out.print(Text(f"\n• {row['status']}: {row['name']} ({row['method']})", style="red"))
            out.print(f"  {row['story']}; {row['source']}", markup=False)
            out.print(f"  {row['claim']}: {row['reason'] or 'upheld'}", markup=False)
            out.print(f"  reproduce: {command(row)}", markup=False, soft_wrap=True)
    bugs = [row for row in outcomes if row["status"] in summary.BUGS]
    killed = sum(row["status"] == "killed" for row in bugs)
    status = summary.status(outcomes, expected)
    out.print(
        f"\n{killed} of {len(bugs)} mutants killed ({summary.percent(killed, len(bugs))}): {LAST_LINE[status]}",
        style="red" if status else "green",
    )


def _kills(outcomes: Sequence[Outcome]) -> Table:
    grid = _grid(
        ("family", "left"),
        ("framework", "left"),
        ("mutants", "right"),
        ("killed", "right"),
        ("kill rate", "right"),
        ("equivalent", "right"),
        ("problems to the kill", "right"),
        ("seconds", "right"),
        ("smallest planted", "right"),
    )
    for group in summary.groups(outcomes):
        grid.add_row(
            group.family,
            group.framework,
            str(group.mutants),
            str(group.killed),
            summary.percent(group.killed, group.mutants),
            str(group.equivalent),
            f"{group.examples:g}",
            f"{group.seconds:.0f}",
            summary.power(group.smallest),
        )
    return grid


def _formulas(found: summary.Formulas) -> Iterator[str]:
    """What sixty digits kill alone, and the other bugs by the claim that kills them."""
    share = summary.percent(found.killed, found.wrong)
    yield f"\nwrong formulas: {found.wrong}, killed by {' or '.join(FORMULA)} alone: {found.killed} ({share})"
    if found.others:
        yield "bugs of rounding, bytes, state and form, by the claim that kills them:"
    for claim, names in found.others.items():
        bugs = sorted({name.rpartition(".")[2] for name in names})
        yield f"  {claim} {len(names)}: {', '.join(bugs)}"


def _tools(outcomes: Sequence[Outcome]) -> Table:
    grid = _grid(
        ("tool", "left"),
        ("mutants", "right"),
        ("found", "right"),
        ("wrong formulas found", "right"),
        ("false alarms", "right"),
        ("s per problem", "right"),
        ("smallest planted", "right"),
    )
    for tool in summary.tools(outcomes):
        if tool.asked or tool.unbroken:
            grid.add_row(
                tool.label,
                str(tool.asked),
                summary.percent(tool.detected, tool.asked),
                summary.percent(tool.found_formula, tool.asked_formula),
                f"{tool.alarms} of {tool.unbroken}",
                f"{tool.seconds:.2g}",
                summary.power(tool.smallest),
            )
    return grid


def _grid(*columns: tuple[str, str]) -> Table:
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in columns:
        grid.add_column(name, justify=justify)  # type: ignore[arg-type]
    return grid


def command(row: Outcome) -> str:
    """One command that judges a mutant's last claim again."""
    mutant = everything()[row["name"]]
    words = f"gradgate verify {mutant.target}"
    if mutant.family != FAMILY:  # a pair is its own class
        words += f" --family {registry.origin(mutant.family) or mutant.family} --framework {mutant.framework}"
    return f"{words} --claim {row['claim']}" + (f" --profile {mutant.profile}" if mutant.profile != "cpu" else "")
