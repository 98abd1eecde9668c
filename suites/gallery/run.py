"""Judge the public libraries of the gallery: ``nox -s gallery [-- NAME…]``, or this module.

Each library has an environment of its own and a row of its own in ``report/gallery``. Verdicts are kept by content. So
a run that was stopped goes on, and a library that has not changed takes seconds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gradgate.references.errors import UsageError
from gradgate.suites.gallery import declared, judge, results
from gradgate.suites.gallery.metadata import FOLDER, chosen
from gradgate.suites.workers.shards import Shard


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="gallery", description="Judge public libraries, each in its own environment.")
    made.add_argument("names", nargs="*", metavar="NAME", help="libraries (default: all)")
    made.add_argument("--shard", type=Shard.parse, metavar="I/N", help="only the I-th of N shares, of about equal cost")
    made.add_argument("--examples", type=int, default=12, metavar="N", help="problems per claim (default 12)")
    made.add_argument("--seeds", type=int, default=1, metavar="N", help="judge under seeds 0 to N-1 (default 1)")
    refuted = "under seeds after 0, judge only the claims that were refuted"
    made.add_argument("--refuted", action="store_true", help=refuted)
    made.add_argument("--jobs", type=int, default=2, help="worker processes (default 2)")
    made.add_argument("--timeout", type=float, default=60, metavar="S", help="limit of a call in seconds (default 60)")
    made.add_argument("--fresh", action="store_true", help="make the environments and judge everything again")
    scripts = "judge nothing; compare the last verdicts with what is declared, and run the scripts of findings again"
    made.add_argument("--scripts", action="store_true", help=scripts)
    made.add_argument("--list", action="store_true", help="list the libraries, and judge nothing")
    made.add_argument(
        "--unite", nargs="+", type=Path, metavar="DIR", help="unite the rows of shares, and judge nothing"
    )
    made.add_argument("--table", action="store_true", help="print the kept rows as Markdown, and judge nothing")
    made.add_argument("--keep", action="store_true", help="also write the rows to suites/gallery/results.json")
    made.add_argument("--report", type=Path, default=Path("report/gallery"), help="where rows and logs are written")
    made.add_argument("--environments", type=Path, default=Path(".nox/gallery"), help="where environments are made")
    made.add_argument("--folder", type=Path, default=FOLDER, help="where the library files and findings.toml are")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge, show and write.

    Returns:
        0 every refutation is declared, and every declared one occurs · 1 not so · 2 a library could not be judged ·
        3 wrong usage.
    """
    given = parser().parse_args(arguments)
    try:
        return _run(given)
    except UsageError as error:
        print(f"gallery: {error}", file=sys.stderr)
        return 3


def _run(given: argparse.Namespace) -> int:
    if given.table:
        print(results.table(results.stored(given.folder)))
        return 0
    libraries = chosen(given.names, given.folder, given.shard)
    names = {library.name for library in libraries}
    own = declared.findings(given.folder, names)
    if wrong := declared.faults(names, own, given.folder):
        raise UsageError("\n".join(wrong))
    if given.list:
        for library in libraries:
            print(f"{library.name:24} {library.framework:6} {' '.join(library.dependencies) or library.judges}")
        return 0
    if given.unite:
        rows = results.united(given.unite)
        results.write(given.report, rows)
    else:
        rows = _judged(libraries, own, given)
    _show(rows)
    if given.keep:
        print(f"kept: {results.keep(given.folder, given.report)}")
    return judge.status(rows, given.scripts)


def _judged(libraries: Sequence[Any], every: Sequence[declared.Finding], given: argparse.Namespace) -> list[judge.Row]:
    """The rows of the libraries; each is written when it is done."""
    settings = judge.Settings(
        given.folder,
        given.report.resolve(),
        given.environments.resolve(),
        given.examples,
        given.seeds,
        given.jobs,
        given.fresh,
        given.scripts,
        not given.scripts,
        given.refuted,
        _say,
        given.timeout,
    )
    rows = []
    for place, library in enumerate(libraries, 1):
        _say(f"[{place}/{len(libraries)}] {library.name}: {' '.join(library.dependencies) or library.judges}")
        began = time.monotonic()
        own = [finding for finding in every if finding.library == library.name]
        row = judge.row_of(library, own, settings)
        _say(f"  {words(row)} ({time.monotonic() - began:.0f} s)")
        for fault in judge.faults(row):
            _say(f"  ! {fault}")
        rows.append(row)
    return rows


def _say(line: str) -> None:
    print(line, flush=True)


def words(row: Mapping[str, Any]) -> str:
    """A row in one line."""
    if not row["verdicts"]:
        return f"{row['state']}: {row['reason']}" if row["reason"] else str(row["state"])
    counts = ", ".join(f"{count} {name}" for name, count in row["verdicts"].items())
    told = f"{row['library']} {row['version']}: {len(row['pairs'])} pairs, {row['problems']} problems, {counts}"
    told += f", {len(row['findings'])} findings" if row["findings"] else ""
    return told + (f" · {row['state']}: {row['reason']}" if row["reason"] else "")


def _show(rows: Sequence[Mapping[str, Any]]) -> None:
    """The table at the end of a run."""
    wide = max((len(row["name"]) for row in rows), default=0)
    print()
    for row in rows:
        mark = "!" if judge.faults(row) else "✓" if row["state"] == judge.JUDGED else "–"
        print(f"{mark} {row['name']:{wide}}  {words(row)}")
    bad = [row["name"] for row in rows if judge.faults(row)]
    left = [row["name"] for row in rows if row["state"] != judge.JUDGED]
    told = f"{len(rows)} libraries, {sum(row['problems'] for row in rows)} problems"
    told += f", {sum(len(row['findings']) for row in rows)} findings"
    told += f"; NOT as declared: {', '.join(bad)}" if bad else "; as declared"
    print(told + (f"; not judged, or not wholly: {', '.join(left)}" if left else ""))


if __name__ == "__main__":
    sys.exit(main())
