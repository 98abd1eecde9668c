"""The table of the census: kept in ``results.json``, and shown on the guide's page ``census.md``."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradgate.suites.guide
from gradgate.suites.gallery.census.package import BY_DESIGN, FOLDER, HERE, SCHEMA, Row, counts, is_judged

KEPT = "results.json"
TESTS = "tests.json"
"""What watching costs packages' own tests, as `package_tests` measures it."""
PAGE = Path(gradgate.suites.guide.__file__).parent / "census.md"
HEADS = ("declared", "called", "judged", "exact", "upheld", "floats", "by design", "refuted")
HEAD = """# The census: rules of public packages

Each package is driven by a script of at most 25 lines in `suites/gallery/census/packages/`. `gradgate watch` judges
every handwritten derivative that the script calls, and nobody wrote a reference. `nox -s census` judges them again,
each package in an environment of its own, and `nox -s census -- --keep` writes this page.

*Declared* counts the rules in the package's text, *called* those that the script reaches with a gradient, and *exact*
those that are judged in sixty digits. *Floats* have a verdict in floats alone, or by finite differences. *By design*
are rules that differ from the derivative of their forward pass on purpose, such as straight-through estimators: the
script says which and why. That they do what they are designed to do is not judged.
"""

COSTS = """## Their own tests

Tests from the packages' source distributions (`suites/gallery/census/tests.toml` says which), run in turn with watching
and without. The seconds are CPU seconds, the median of three runs; judging comes afterwards, and is not in them.
`python -m gradgate.suites.gallery.census.package_tests` runs them again.
"""
COST_HEADS = ("tests", "outcomes", "rules", "calls", "seconds", "watched")


def keep(found: Sequence[Row]) -> Path:
    """Put rows into `KEPT`, in place of older rows of these packages, and write the page; returns its path."""
    every = {row["name"]: row for row in stored_rows()} | {row["name"]: row for row in found}
    there = {path.stem for path in FOLDER.glob("*.py")}
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for name, row in sorted(every.items()) if name in there)
    (HERE / KEPT).write_text(f'{{"schema": {SCHEMA}, "rows": [\n{lines}\n]}}\n', encoding="utf-8")
    PAGE.write_text(text(stored_rows()), encoding="utf-8")
    return PAGE


def rows(report: Path) -> list[Row]:
    """The rows that runs have written into a folder."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(report.glob("*.json"))]


def stored_rows() -> list[Row]:
    """The rows of the last runs; [] if there are none."""
    path = HERE / KEPT
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return list(found["rows"]) if found.get("schema") == SCHEMA else []


def text(rows: Sequence[Row]) -> str:
    """The page."""
    every = counts(rows)
    dates = sorted({row["date"] for row in rows})
    share = 100 * every["exact"] / max(1, every["judged"])
    days = " to ".join(dict.fromkeys((*dates[:1], *dates[-1:])))
    told = f"{len(rows)} packages, {days}: {every['judged']} distinct rules judged, " if rows else ""
    told += f"{every['exact']} of them ({share:.0f}%) in sixty digits.\n" if rows else "No package has been judged.\n"
    without = sorted({path.stem for path in FOLDER.glob("*.py")} - {row["name"] for row in rows})
    if without:
        told += f"\nNo row yet, because the run failed or a refutation is not explained: {', '.join(without)}.\n"
    lines = [f"| package | {' | '.join(HEADS)} |", f"|---|{'---:|' * len(HEADS)}"]
    for row in rows:
        found = counts([row])
        name = f"[{row['library']}]({row['home']}) {row['version']}"
        lines.append(f"| {name} | {' | '.join(str(found[head]) for head in HEADS)} |")
    lines.append(f"| **all, each rule once** | {' | '.join(f'**{every[head]}**' for head in HEADS)} |")
    parts = [HEAD, told, "\n".join(lines) + "\n", *_costs(), *_findings(rows), *_left(rows), *_designs(rows)]
    return "\n".join(parts)


def stored_costs() -> list[dict[str, Any]]:
    """The rows of `TESTS`; [] if there are none."""
    path = HERE / TESTS
    return list(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else []


def _costs() -> list[str]:
    """What watching costs packages' own tests."""
    found = stored_costs()
    if not found:
        return []
    lines = [COSTS, f"| package | {' | '.join(COST_HEADS)} |", f"|---|{'---:|' * len(COST_HEADS)}"]
    for row in found:
        more = row["watched"] - row["plain"]
        numbers = [row["results"], "the same" if row["same"] else "others", row["rules"], row["calls"]]
        cells = [*map(str, numbers), f"{row['plain']:.1f}", f"{more:+.1f} ({100 * more / row['plain']:+.0f}%)"]
        lines.append(f"| {row['name']} | {' | '.join(cells)} |")
    return ["\n".join(lines) + "\n"]


def _findings(rows: Sequence[Row]) -> list[str]:
    found = [one for row in rows for one in row["findings"]]
    if not found:
        return []
    lines = ["## Findings\n", "Each has a script of at most 20 lines without gradgate.\n"]
    lines += [f"- `{one['rule']}`: {one['cause']} (`suites/gallery/census/{one['script']}`)" for one in found]
    return ["\n".join(lines) + "\n"]


def _left(rows: Sequence[Row]) -> list[str]:
    """The rules that were called and not judged, with the reason."""
    left = {one["name"]: one["reason"] for row in rows for one in row["rules"] if not is_judged(one)}
    left |= {row["library"]: row["reason"] for row in rows if row["reason"]}
    if not left:
        return []
    lines = [f"- `{name}`: {textwrap.shorten(reason, 200, placeholder=' …')}" for name, reason in sorted(left.items())]
    return ["\n".join(["## Called and not judged\n", *lines]) + "\n"]


def _designs(rows: Sequence[Row]) -> list[str]:
    found = [one for row in rows for one in row["rules"] if one["state"] == BY_DESIGN]
    if not found:
        return []
    lines = [f"- `{one['name']}`: {one['likeness'] or 'another gradient'}" for one in found]
    return ["\n".join(["## By design\n", *lines]) + "\n"]
