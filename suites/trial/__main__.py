"""``nox -s trial``: what is due of gradgate's own trial, in a given time.

Four kinds of work share the time. The mutants of the selftest have to be refuted; outcomes that nothing has changed are
reused. The claims that draw problems have to give the declared verdict under every seed. Random right pairs and calls
of `gradgate.check` must not be refuted. The counts of the last three grow from run to run and from machine to machine,
in ``suites/trial/counts.json``. What is not done when the time is over is named, with how far it came.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from gradgate.hw_profiles import processes
from gradgate.hw_profiles.recording import digest
from gradgate.references import registry
from gradgate.references.contract import FRAMEWORKS, installed
from gradgate.suites.commands import arguments
from gradgate.suites.console import terminal
from gradgate.suites.console.progress import progress
from gradgate.suites.keeping.keys import JUDGING, Keys
from gradgate.suites.trial import counts
from gradgate.suites.trial.counts import Row
from gradgate.suites.trial.seeds import DRAWN, judged, repeated
from gradgate.suites.workers.variables import environment

CHUNK = 25
"""Seeds that a process judges at once; a stopped run loses unfinished ones only."""
GOAL = 20_000
"""Random pairs and calls of each framework, after which no more are judged on this code."""
BLOCK = 5
"""Seeds under which the claims of a method are judged together, so that they share compiled programs."""
SEEDS = 20
"""Seeds of each method, after which no more are judged on this code."""
MUTANTS = ["selftest", "--json", "report/selftest.json"]
"""The command that judges the mutants, and resumes."""
KINDS = ("mutants", "seeds", *DRAWN)


def main(words: Sequence[str] | None = None) -> int:
    """Do what is due; 0 nothing speaks against gradgate · 1 something does. What was not reached is said."""
    parser = argparse.ArgumentParser(prog="nox -s trial --", description=__doc__)
    parser.add_argument("kind", nargs="*", help=f"{', '.join(KINDS)} (default: all)")
    time_given = "begin nothing after this time (default 40)"
    parser.add_argument("--minutes", type=arguments.minutes, default=40.0, metavar="M", help=time_given)
    arguments.add(parser, "--jobs")
    chosen = parser.parse_args(words)
    unknown = [kind for kind in chosen.kind if kind not in KINDS]
    if unknown:
        parser.error(f"unknown kind {unknown[0]!r}; legal: {', '.join(KINDS)}")
    kinds = [kind for kind in KINDS if kind in (chosen.kind or KINDS)]
    os.environ.update(environment())
    end, against, lines = time.monotonic() + 60 * chosen.minutes, False, []
    for place, kind in enumerate(kinds):
        seconds = max(1.0, (end - time.monotonic()) / (len(kinds) - place))  # what others left over is shared
        if kind == "mutants":
            status = _run(MUTANTS, seconds, chosen.jobs)
            against |= status == 1
            lines.append(f"{kind}: {OUTCOME.get(status, f'exit status {status}')}; see above")
            continue
        rows = _repeated(seconds, chosen.jobs) if kind == "seeds" else _drawn(kind, seconds, chosen.jobs)
        against |= any(row.alarms for row in rows)
        codes = _methods() if kind == "seeds" else {f"{kind} {framework}": _code(kind) for framework in _there()}
        lines += [counts.summary(counts.read(), f"{kind} {framework}", codes) for framework in _there()]
    for line in lines:
        terminal.console().print(line, soft_wrap=True, markup=False)
    return 1 if against else 0


OUTCOME = {0: "all as claimed", 1: "NOT as claimed", 2: "as claimed so far; the time was over before all was judged"}


def _run(command: Sequence[str], seconds: float, jobs: int) -> int:
    """Run a command of gradgate for so long; its exit status."""
    minutes = f"{max(0.1, seconds / 60):.1f}"
    asked = [sys.executable, "-m", "gradgate.suites.cli", *command, "--minutes", minutes, "--jobs", str(jobs)]
    return subprocess.run(asked, check=False, stdin=subprocess.DEVNULL).returncode


def _there() -> list[str]:
    return [framework for framework in FRAMEWORKS if installed(framework)]


def _code(kind: str) -> str:
    """A hash of the modules that draw and judge, and of the toolchain."""
    return digest(Keys(Path.cwd()).question((*JUDGING, DRAWN[kind].__module__), ()))[:16]


def _methods() -> dict[str, str]:
    """The methods, as in a row, and a hash of what judges each and of its own module."""
    keys = Keys(Path.cwd())
    return {
        f"seeds {method.framework} {method.family}:{method.name}": digest(
            keys.question((*JUDGING, method.implementation.partition(":")[0]), ())
        )[:16]
        for framework in _there()
        for method in registry.methods(None, None, framework)
    }


def _repeated(seconds: float, jobs: int, path: Path = counts.TABLE) -> list[Row]:
    """Judge the claims that draw problems under further seeds, method by method, until the time is over; the rows."""
    end, codes, made = time.monotonic() + seconds, _methods(), list[Row]()
    rows = counts.read(path)
    done = {
        what: sum(row.stop - row.start for row in rows if (row.what, row.code) == (what, code))
        for what, code in codes.items()
    }
    while time.monotonic() < end and min(done.values(), default=SEEDS) < SEEDS:
        what = min(done, key=done.__getitem__)
        start = max(1, counts.next_seed(rows, what))
        row = repeated(what, codes[what], start, start + BLOCK, jobs)
        done[what] += BLOCK
        if row is None:
            terminal.note(f"{what}: not all was judged, so nothing is counted; see above")
            continue
        made.append(row)
        rows = [*counts.read(path), row]
        counts.write(rows, path)
    return made


def _drawn(kind: str, seconds: float, jobs: int, path: Path = counts.TABLE) -> list[Row]:
    """Judge chunks of seeds of both frameworks in turn until the time is over; the new rows."""
    end, code, made = time.monotonic() + seconds, _code(kind), list[Row]()
    waiting: dict[concurrent.futures.Future[Row], None] = {}
    rows = counts.read(path)
    following = {framework: counts.next_seed(rows, f"{kind} {framework}") for framework in _there()}
    done = {
        framework: sum(row.stop - row.start for row in rows if (row.what, row.code) == (f"{kind} {framework}", code))
        for framework in following
    }
    with processes.pool(jobs) as pool, progress(None, f"{kind}, drawn and judged") as show:
        while True:
            while len(waiting) < jobs and time.monotonic() < end and min(done.values(), default=GOAL) < GOAL:
                framework = min(done, key=done.__getitem__)
                start = following[framework]
                waiting[pool.submit(judged, kind, framework, code, start, start + CHUNK)] = None
                following[framework] += CHUNK
                done[framework] += CHUNK
            if not waiting:
                return made
            finished, _ = concurrent.futures.wait(waiting, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in finished:
                del waiting[future]
                row = future.result()
                made.append(row)
                counts.write([*counts.read(path), row], path)
                show.advance(f"{row.what}: seeds to {row.stop}", count=row.stop - row.start)
                for seed, words in row.alarms.items():
                    show.note(f"{row.what}, seed {seed}: {words}")


if __name__ == "__main__":
    raise SystemExit(main())
