"""Judge the packages of the census: ``nox -s census [-- NAME…]``, or this module.

Each package has an environment of its own, made as for the gallery, and a row of its own in ``report/census``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from gradgate.references.errors import UsageError
from gradgate.suites.gallery.census import page
from gradgate.suites.gallery.census.package import FOLDER, Row, Settings, counts, faults, is_judged, row_of
from gradgate.suites.gallery.metadata import chosen
from gradgate.suites.workers.shards import Shard


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="census", description="Judge every handwritten derivative of public packages.")
    made.add_argument("names", nargs="*", metavar="NAME", help="packages (default: all)")
    made.add_argument("--shard", type=Shard.parse, metavar="I/N", help="only the I-th of N shares, of about equal cost")
    made.add_argument("--jobs", type=int, default=2, help="worker processes (default 2)")
    made.add_argument("--timeout", type=float, default=60, metavar="S", help="limit of a call in seconds (default 60)")
    made.add_argument("--fresh", action="store_true", help="make the environments again")
    scripts = "judge nothing; compare the last verdicts with what is declared, and run the scripts of findings again"
    made.add_argument("--scripts", action="store_true", help=scripts)
    keep = "also write the rows to suites/gallery/census/results.json, and the guide's page"
    made.add_argument("--keep", action="store_true", help=keep)
    made.add_argument("--report", type=Path, default=Path("report/census"), help="where rows and logs are written")
    made.add_argument("--environments", type=Path, default=Path(".nox/census"), help="where environments are made")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge, show and write.

    Returns:
        0 every refutation is explained · 1 not so · 3 wrong usage.
    """
    given = parser().parse_args(arguments)
    settings = Settings(
        given.report.resolve(), given.environments.resolve(), given.jobs, given.timeout, given.fresh, not given.scripts
    )
    try:
        libraries = chosen(given.names, FOLDER, given.shard)
    except UsageError as error:
        print(f"census: {error}", file=sys.stderr)
        return 3
    wrong, rows = [], []
    for library in libraries:
        row = row_of(library, settings)
        rows.append(row)
        print(words(row), flush=True)
        for fault in (found := faults(row, library)):
            print(f"  ! {fault}", flush=True)
        wrong += found
    print(json.dumps(counts(rows)))
    if given.keep:
        print(f"kept: {page.keep(page.rows(given.report))}")
    return 1 if wrong else 0


def words(row: Row) -> str:
    """A row in one line."""
    found = counts([row])
    left = [one["name"].rpartition(":")[2] for one in row["rules"] if not is_judged(one)]
    told = f"{row['library']} {row['version']}: {found['declared']} rules declared, {found['called']} called, "
    told += f"{found['judged']} judged, {found['exact']} by sixty digits; {found['by design']} by design, "
    told += f"{found['refuted']} refuted ({row['seconds']:.0f} s)"
    return told + (f"; not judged: {', '.join(left)}" if left else "")


if __name__ == "__main__":
    sys.exit(main())
