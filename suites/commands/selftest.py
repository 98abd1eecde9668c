"""``gradgate selftest``: judge a corpus of broken methods with the suite, and with the tools that people use today."""

from __future__ import annotations

import argparse
import datetime
import difflib
import hashlib
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gradgate.hw_profiles
import gradgate.references
import gradgate.suites
from gradgate.hw_profiles.fingerprint import fingerprint
from gradgate.references import registry
from gradgate.references.contract import FRAMEWORKS, UsageError, installed, unknown
from gradgate.suites.bugs.of_pairs.one_side import FAMILY
from gradgate.suites.commands import arguments
from gradgate.suites.console import terminal
from gradgate.suites.console.files import need_own, write_atomically
from gradgate.suites.console.progress import progress
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.verdict import Verdict
from gradgate.suites.keeping.keys import Keys
from gradgate.suites.selftest import judging, summary, table
from gradgate.suites.selftest.stored import LASTING, Stored
from gradgate.suites.workers import cluster
from gradgate.suites.workers.shards import cost
from gradgate.suites.workers.supervisor import Limits, Supervisor

SCHEMA = 2
BATCH = 24
"""Mutants that are handed out together where a time is given: most of them break methods of one class."""
DESCRIPTION = """\
Put the suite on trial: every mutant, a reference method with one bug in it,
has to be refuted.

A mutant is judged like a plugged-in method, by the claims that are expected
to refute it, over as many problems as gradgate verify judges. A wrong formula
has to be refuted in sixty digits alone. A mutant that no claim refutes is a
survivor, named, and fails the run. With --tools, the same mutants and the
unbroken methods are also tested with gradcheck, check_grads, assert_allclose
and others, for comparison."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gradgate selftest``."""
    parser.description = DESCRIPTION
    parser.add_argument("mutant", nargs="*", help="names, or parts of names (default: all mutants)")
    arguments.add(parser, "--family", help=f"mutants of this problem class only, or of {FAMILY}")
    arguments.add(parser, "--framework")
    arguments.add(parser, "--examples", help="problems per claim (default 100, as in verify)")
    arguments.add(parser, "--seed", "--jobs")
    arguments.add(parser, "--timeout", default=300.0, help="limit per call in seconds (default 300)")
    arguments.add(parser, "--shard", "--scheduler")
    parser.add_argument(
        "--fresh", action="store_true", help="judge every mutant from nothing; without it, outcomes are reused"
    )
    parser.add_argument("--tools", action="store_true", help="judge the mutants with other tools, too, and compare")
    arguments.add(parser, "--minutes")
    arguments.add(parser, "--json", help="write the outcomes here, as they come")
    arguments.add(parser, "--report", help="write selftest.html here: tables and plots")


def main(chosen: argparse.Namespace) -> int:
    """Judge what is not judged yet; returns the exit status.

    Returns:
        0 every mutant is refuted · 1 one survives, or an unbroken method is refuted · 2 one could not be judged.

    Raises:
        UsageError: a wrong name, or a file that this command did not write.
    """
    if chosen.report:
        arguments.need_report()
        need_own(chosen.report / "selftest.html")
    if chosen.json:
        need_own(chosen.json, "mutants")
    every = _chosen(chosen)
    mutants = judging.everything()
    weights = {name: cost(mutant.framework) for name, mutant in mutants.items()}
    names = chosen.shard.part(every, str, weights.__getitem__)
    share = {"shard": chosen.shard.to_dict(len(every))} if chosen.shard.of > 1 else {}
    head = {
        "schema": SCHEMA,
        "fingerprint": fingerprint(),
        "sources": _sources(),
        "examples": chosen.examples,
        "seed": chosen.seed,
    }
    run = Run(chosen.examples, chosen.seed, limit=0.75 * chosen.timeout)
    stored = Stored(Keys(Path.cwd()), run)
    with stored.keys.parsing():
        verdicts = {name: {} if chosen.fresh else stored.get(mutants[name]) for name in names}
        known = {} if chosen.fresh else {name: stored.known(mutants[name]) for name in names}
    tools = judging.TOOLS if chosen.tools else ()
    missing = [name for name in names if judging.missing(mutants[name], verdicts[name], tools)]
    outcomes = {name: judging.outcome(mutants[name], verdicts[name], tools) for name in names if name not in missing}
    if outcomes:
        terminal.note(
            f"{len(outcomes)} of {len(names)} outcomes reused: what decided them is unchanged; --fresh judges all"
        )
    with (
        Supervisor(run, chosen.jobs, Limits(chosen.timeout)) as supervisor,
        cluster.judges(chosen.scheduler, supervisor) as judges,
        progress(len(names), "mutants", done=len(outcomes)) as show,
    ):
        for outcome in _judged(missing, judges, verdicts, tools, known, chosen.minutes):
            name, lasting = outcome["name"], outcome["status"] in LASTING
            outcomes[name] = outcome
            if lasting:
                stored.put(mutants[name], verdicts[name])
            show.advance(f"{name}: {outcome['status']}", line=None if lasting else True)
            if chosen.json:
                write_atomically(chosen.json, _text(head | share, outcomes))
    if chosen.json:  # a share with nothing to do writes its file, too
        write_atomically(chosen.json, _text(head | share, outcomes))
    if stored.failed:
        terminal.note(f"outcomes could not be stored for the next run: {stored.failed}")
    ordered = [outcomes[name] for name in names if name in outcomes]
    table.show(ordered, len(names))
    if chosen.report:
        from gradgate.suites.report import frame, selftest_page

        page = selftest_page.render(json.loads(_text(head, outcomes)), len(names))
        frame.write(chosen.report, {"selftest.html": page})
        terminal.note(f"report: {chosen.report / 'selftest.html'}")
    return summary.status(ordered, len(names))


def _judged(
    names: Sequence[str],
    judges: cluster.Judges,
    verdicts: dict[str, dict[str, Verdict]],
    tools: Sequence[str],
    known: Mapping[str, Mapping[str, judging.Known]],
    minutes: float | None,
) -> Iterator[judging.Outcome]:
    """The outcomes of mutants; if a time is given, none is begun after it."""
    end = math.inf if minutes is None else time.monotonic() + 60 * minutes
    size = max(1, len(names)) if minutes is None else BATCH
    for start in range(0, len(names), size):
        if time.monotonic() > end:
            return
        yield from judging.judged(names[start : start + size], judges, verdicts, tools, known)


def _chosen(chosen: argparse.Namespace) -> list[str]:
    if chosen.family and chosen.family != FAMILY:
        chosen.family = registry.family(chosen.family).name
    if chosen.framework and chosen.framework not in FRAMEWORKS:
        raise unknown("framework", chosen.framework, FRAMEWORKS)
    every = judging.everything()
    for part in chosen.mutant:
        if not any(part in name for name in every):
            called = {name if "." in part else name.rpartition(".")[2]: name for name in every}
            near = [called[found] for found in difflib.get_close_matches(part, called, n=3, cutoff=0)]
            raise UsageError(f"none of {len(every)} mutants has {part!r} in its name; nearest: {', '.join(near)}")
    names = [
        name
        for name, mutant in every.items()
        if chosen.family in (None, mutant.family)
        and chosen.framework in (None, mutant.framework)
        and (not chosen.mutant or any(part in name for part in chosen.mutant))
    ]
    there = [name for name in names if installed(every[name].framework)]
    if len(there) < len(names):
        terminal.note(f"{len(names) - len(there)} mutants are left out: their framework is not installed")
    if not there:
        raise UsageError("no mutant is of that family and framework, or the framework is not installed")
    return there


def _sources() -> str:
    """A hash of the package's sources. Outcomes with another hash are not reused."""
    total = hashlib.sha256()
    for package in (gradgate.hw_profiles, gradgate.references, gradgate.suites):
        for folder in package.__path__:
            for path in sorted(Path(folder).rglob("*.py")):
                if "tests" not in path.parts and "report" not in path.parts:
                    total.update(path.read_bytes())
    return total.hexdigest()[:16]


def _text(head: dict[str, Any], outcomes: dict[str, judging.Outcome]) -> str:
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    return json.dumps(summary.document(list(outcomes.values()), {**head, "date": date}), indent=1) + "\n"
