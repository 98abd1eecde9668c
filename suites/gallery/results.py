"""The rows of the gallery: read, united from shares, and kept for the site in ``results.json``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gradgate.references.errors import UsageError
from gradgate.suites.console.files import write_atomically
from gradgate.suites.gallery.judge import SCHEMA
from gradgate.suites.judging.outcomes import VERDICTS

KEPT = "results.json"
"""The file with the rows of the last run that was kept, in the folder of the library files."""
Row = dict[str, Any]
MANY = 100
"""More problems than this say much about a library."""


def read(folder: Path) -> list[Row]:
    """The rows in a folder of reports, in the order of their names.

    Raises:
        UsageError: a file is not a row of this version.
    """
    rows = []
    for path in sorted(folder.glob("*.json")):
        try:
            row = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise UsageError(f"{path} is no row of the gallery: {error}") from None
        if not isinstance(row, dict) or row.get("schema") != SCHEMA or "name" not in row:
            raise UsageError(f"{path} is no row of the gallery of version {SCHEMA}; judge the library again")
        rows.append(row)
    return rows


def united(folders: Iterable[Path]) -> list[Row]:
    """The rows of several folders.

    Raises:
        UsageError: a folder has no row, or a library is in two of them.
    """
    found: dict[str, tuple[Path, Row]] = {}
    for folder in folders:
        rows = read(folder)
        if not rows:
            raise UsageError(f"{folder} has no row of the gallery")
        for row in rows:
            if row["name"] in found:
                raise UsageError(f"{found[row['name']][0]} and {folder} both hold {row['name']}; give one of them")
            found[row["name"]] = (folder, row)
    return [row for _, (_, row) in sorted(found.items())]


def write(folder: Path, rows: Sequence[Row]) -> None:
    """Write each row to a file of its own."""
    for row in rows:
        write_atomically(folder / f"{row['name']}.json", json.dumps(row, indent=1) + "\n")


def keep(folder: Path, report: Path) -> Path:
    """Put the rows of a folder of reports into `KEPT`, in place of older rows of these libraries; returns its path."""
    rows = {row["name"]: row for row in stored(folder)} | {row["name"]: _short(row) for row in read(report)}
    there = {path.stem for path in folder.glob("*.py")}
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for name, row in sorted(rows.items()) if name in there)
    path = folder / KEPT
    write_atomically(path, f'{{"schema": {SCHEMA}, "rows": [\n{lines}\n]}}\n')
    return path


def _short(row: Row) -> Row:
    """A row without what only this machine needs."""
    return {name: value for name, value in row.items() if name not in ("key", "reused")}


def stored(folder: Path) -> list[Row]:
    """The rows that are kept; [] if there are none."""
    path = folder / KEPT
    if not path.exists():
        return []
    found = json.loads(path.read_text(encoding="utf-8"))
    return list(found["rows"]) if found.get("schema") == SCHEMA else []


def table(rows: Sequence[Row]) -> str:
    """The rows as a table in Markdown, with the totals below."""
    heads = ("library", "version", "framework", "pairs", "problems", *VERDICTS, "findings", "seconds")
    told = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for row in rows:
        counts = [str(row["verdicts"].get(name, 0)) for name in VERDICTS]
        cells = [f"`{row['name']}`", f"{row['library']} {row['version']}", row["framework"], str(len(row["pairs"]))]
        cells += [f"{row['problems']:,}", *counts, str(len(row["findings"])), f"{row['judging_seconds']:.0f}"]
        told.append(f"| {' | '.join(cells if row['verdicts'] else [*cells[:3], row['state'], *[''] * 7])} |")
    many = sum(row["problems"] > MANY for row in rows)
    dates = sorted({row["date"] for row in rows})
    problems, findings = (sum(row["problems"] for row in rows), sum(len(row["findings"]) for row in rows))
    said = f"{len(rows)} libraries, {many} of them on more than {MANY} problems; "
    said += f"{problems:,} problems, {findings} findings"
    return "\n".join([*told, f"\n{said} ({', '.join(dates)})"])
