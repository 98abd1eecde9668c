"""The table of all commits: kept in ``results.json``, and shown on the guide's page ``adopted.md``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import gradgate.suites.guide
from gradgate.suites.console.files import write_atomically
from gradgate.suites.gallery import metadata
from gradgate.suites.gallery.history.commits import FOLDER, read
from gradgate.suites.gallery.history.judge import SCHEMA, SIDES, Row, counts, with_outcomes

KEPT = Path(__file__).parent / "results.json"
PAGE = Path(gradgate.suites.guide.__file__).parent / "adopted.md"
HEAD = """# Gated commits of public repositories

Each row is a commit of a public repository, found by its message. The gate ran forwards, from the revision before the
commit to the commit, and backwards. So a fix must be called a fix forwards, and its reverse must fail. The pairs are
ours, and were written as a maintainer would write them: `suites/gallery/history/repositories`. `nox -s fieldhistory --
NAME --repository PATH` gates the commits of a clone again. [Adopt it in your library](adopt.md) tells how it is done.

*Caught* means that the gate fails with the finding that it should have, and *passed* that it passes and says what it
should: "fixed by this change", or that bytes fall. A *trade* is one figure that falls and another that rises, such as
bytes and FLOPs under a checkpoint: each direction fails until somebody allows the rise. *Missed* means that the gate
says less, and a *false alarm* is a failure that it should not have. Seconds are processor seconds of a gate with one
worker, when the machine was busy with other work. If both directions ran together, the second one found in the cache
what the first had measured.
"""
REVISED = """Commits with a star ({count}) were declared otherwise until the gate spoke, and were then read again. They
show that the gate is right, and not that it says what was foreseen. The notes say what was declared before.
"""


def keep(found: Sequence[Row], folder: Path = FOLDER) -> Path:
    """Put rows into `KEPT`, in place of older rows of these commits, and write the page; returns its path.

    Only commits that are declared are kept, each with the outcomes that are declared of it.
    """
    every = {(row["repository"], row["commit"]): row for row in [*stored_rows(), *found]}
    rows = []
    for name in metadata.paths(folder):
        for commit in read(name, folder).table.commit:
            for (repository, full), row in every.items():
                if repository == name and full.startswith(commit.commit):
                    rows.append(with_outcomes({field: row[field] for field in row if field != "key"}, commit))
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    write_atomically(KEPT, f'{{"schema": {SCHEMA}, "rows": [\n{lines}\n]}}\n')
    write_atomically(PAGE, text(rows))
    return PAGE


def stored_rows() -> list[Row]:
    """The rows that are kept; [] if there are none."""
    found = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    return list(found["rows"]) if found.get("schema") == SCHEMA else []


def text(rows: Sequence[Row]) -> str:
    """The page."""
    names = list(dict.fromkeys(row["repository"] for row in rows))
    dates = sorted({row["gated"] for row in rows})
    days = " to ".join(dict.fromkeys((*dates[:1], *dates[-1:])))
    parts = [
        HEAD,
        f"{len(rows)} commits of {len(names)} repositories, gated {days}.\n",
    ]
    if marked := sum(bool(row["revised"]) for row in rows):
        parts.append(REVISED.format(count=marked))
    parts.append("\n".join(["| commits, direction | outcome | gates |", "|---|---|---:|", *_totals(rows)]) + "\n")
    heads = ["commit", "message", "gives", "forwards", "CPU s", "backwards", "CPU s"]
    for name in names:
        own = [row for row in rows if row["repository"] == name]
        lines = [f"## {name}\n", f"| {' | '.join(heads)} |", "|---|---|---|---|---:|---|---:|"]
        lines += [_line(row) for row in own]
        notes = [note for row in own if (note := _note(row))]
        parts.append("\n".join([*lines, *([""] if notes else []), *notes]) + "\n")
    return "\n".join(parts)


def _totals(rows: Sequence[Row]) -> list[str]:
    return [f"| {' | '.join(name.rsplit(': ', 1))} | {count} |" for name, count in counts(rows).items()]


def _note(row: Row) -> str:
    before = f"declared until the gate spoke: {row['revised']}" if row["revised"] else ""
    words = "; ".join(filter(None, (row["because"], before)))
    return f"- `{row['commit'][:8]}`: {words}" if words else ""


def _line(row: Row) -> str:
    title = "".join(f"\\{letter}" if letter in "|[]<>*_`" else letter for letter in row["title"].strip())
    cells = [
        f"[`{row['commit'][:8]}`]({row['home']}/commit/{row['commit']})",
        title,
        row["gives"] + " \\*" * bool(row["revised"]),
    ]
    for side in SIDES:
        cells += [row[side]["outcome"], f"{row[side]['cpu_seconds']:.0f}"]
    return f"| {' | '.join(cells)} |"
