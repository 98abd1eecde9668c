"""Gate the commits of a public repository: ``nox -s fieldhistory -- NAME --repository PATH``, or this module.

PATH is a clone that the user has. It is only read: the gate runs in a scratch clone, to whose commits our pairs and
settings are added. Each commit has a row of its own in ``report/history``, which is kept by content. So a run that was
stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gradgate.references.errors import UsageError
from gradgate.suites.gallery.environment import CannotInstall, made
from gradgate.suites.gallery.history import judge, page
from gradgate.suites.gallery.history.commits import FOLDER, UNMEASURED, Repository, read
from gradgate.suites.gallery.history.scratch import Scratch
from gradgate.suites.gallery.metadata import paths
from gradgate.suites.workers.shards import Shard


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="fieldhistory", description="Gate the commits of a public repository.")
    made.add_argument("name", nargs="?", metavar="NAME", help="the repository; without it, all are listed")
    made.add_argument("--repository", type=Path, metavar="PATH", help="a clone of it; it is only read")
    made.add_argument("--commits", nargs="+", default=[], metavar="REV", help="only these commits of the table")
    made.add_argument("--shard", type=Shard.parse, metavar="I/N", help="only the I-th of N shares of the commits")
    made.add_argument("--side", choices=judge.SIDES, help="gate in this direction only")
    made.add_argument("--jobs", type=int, default=2, help="worker processes (default 2)")
    made.add_argument("--timeout", type=float, default=60, metavar="S", help="limit of a call in seconds (default 60)")
    made.add_argument("--fresh", action="store_true", help="make the environment again, and gate everything again")
    keep = "write the rows of all reports to suites/gallery/history/results.json, and the guide's page; gate nothing"
    made.add_argument("--keep", action="store_true", help=keep)
    made.add_argument("--report", type=Path, default=Path("report/history"), help="where rows are written")
    made.add_argument("--environments", type=Path, default=Path(".nox/history"), help="where environments are made")
    made.add_argument("--folder", type=Path, default=FOLDER, help="where the declarations are")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Gate, show and write.

    Returns:
        0 every outcome is as declared · 1 one is not · 2 a commit could not be measured · 3 wrong usage.
    """
    given = parser().parse_args(arguments)
    try:
        if given.keep:
            print(f"kept: {page.keep(judge.read(given.report), given.folder)}")
            return 0
        if given.name is None:
            for name in paths(given.folder):
                found = read(name, given.folder)
                print(
                    f"{name:36} {found.library.framework:6} {len(found.table.commit):3} commits  {found.library.home}"
                )
            return 0
        if given.repository is None:
            raise UsageError("give a clone of the repository: --repository PATH")
        return _gate(read(given.name, given.folder), given)
    except UsageError as error:
        print(f"fieldhistory: {error}", file=sys.stderr)
        return 3
    except CannotInstall as error:
        print(f"fieldhistory: {error}", file=sys.stderr)
        return 2


def _gate(repository: Repository, given: argparse.Namespace) -> int:
    """Gate the chosen commits, each in both directions."""
    chosen = [one for one in repository.table.commit if not given.commits or one.commit in given.commits]
    if given.shard:
        chosen = given.shard.part(chosen, lambda one: one.commit, lambda one: 1.0)
    environment = made(repository.library, given.environments.resolve(), given.fresh)
    sides = (given.side,) if given.side else judge.SIDES
    settings = judge.Settings(given.report, given.jobs, given.timeout, given.fresh, sides)
    rows, wrong = [], []
    with tempfile.TemporaryDirectory(prefix="gradgate-history-") as folder:
        scratch = Scratch(given.repository, Path(folder) / "clone")
        for commit in chosen:
            row, kept = judge.row_of(repository, commit, scratch, environment, settings)
            rows.append(row)
            print(words(row) + (" (kept)" if kept else ""), flush=True)
            for fault in judge.faults(row):
                print(f"  ! {fault}", flush=True)
                wrong.append(fault)
    print(json.dumps(judge.counts(rows)))
    if not wrong:
        return 0
    return 2 if all(f": {UNMEASURED}, declared" in fault for fault in wrong) else 1


def words(row: judge.Row) -> str:
    """A row in one line."""
    gated = [side for side in judge.SIDES if side in row]
    sides = [f"{side} {row[side]['outcome']} in {row[side]['seconds']:.0f} s" for side in gated]
    return f"{row['repository']} {row['commit'][:10]} {row['gives']}: {', '.join(sides)}  {row['title'][:60]}"


if __name__ == "__main__":
    sys.exit(main())
