"""``gradgate repeat``: judge the claims that draw problems under many seeds, and name every flake.

A verdict that depends on the seed is a bug: of the rule of equality, of a method, or of a check. Claims about memory
and work draw nothing, give the same bytes and FLOPs every time, and are not repeated. A claim that is declared refuted
needs a problem shape that refutes it. With fewer problems than there are shapes, it may be upheld under every seed.

Cost: 20 seeds of one family in PyTorch, with two problems per claim, take about 100 s on one core. JAX takes several
times that, mostly to compile what is not under jit.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from gradgate.hw_profiles.fingerprint import fingerprint
from gradgate.references import registry
from gradgate.references.contract import UsageError, installed
from gradgate.suites.checks import CHECKS
from gradgate.suites.commands import arguments
from gradgate.suites.console import terminal
from gradgate.suites.console.files import need_own, write_atomically
from gradgate.suites.console.progress import progress
from gradgate.suites.judging.explain import explain
from gradgate.suites.judging.outcomes import exit_status
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.verdict import Task, Verdict
from gradgate.suites.keeping.keys import Keys
from gradgate.suites.keeping.verdicts import Verdicts
from gradgate.suites.workers import cluster
from gradgate.suites.workers.shards import cost
from gradgate.suites.workers.supervisor import Limits, Supervisor

SCHEMA = 1
KEEP_EVERY = 2.0
"""Seconds between writes of the results. A killed run loses the verdicts since the last write."""
Seeds = dict[str, list[int]]
"""The name of a claim -> seeds."""
Flake = dict[str, Any]
"""A verdict that is not the declared one, as in verdicts.json, with the ``seed`` under which it was given."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gradgate repeat``."""
    runs = "how many seeds (default 20)"
    parser.add_argument("runs", nargs="?", type=arguments.positive, default=20, metavar="N", help=runs)
    first = "the first of these seeds (default 1)"
    parser.add_argument("--first", type=arguments.positive, default=1, metavar="S", help=first)
    arguments.add(parser, "--family", help="problem class (default: all)")
    arguments.add(parser, "--method", help="reference method (default: all)")
    arguments.add(parser, "--framework", help="jax or torch (default: both)")
    problems = "problems per claim (default 12, as nox -s tests)"
    arguments.add(parser, "--examples", default=12, metavar="K", help=problems)
    arguments.add(parser, "--jobs", "--timeout", "--minutes", "--shard", "--scheduler")
    again = "judge again what is unchanged; without it, verdicts are reused, as by gradgate verify"
    parser.add_argument("--fresh", action="store_true", help=again)
    arguments.add(parser, "--json", help="write the results here, as they come")


def main(chosen: argparse.Namespace) -> int:
    """Judge every claim that draws problems under every seed, and print every flake; returns the exit status.

    Returns:
        0 every verdict is the declared one under every seed · 1 one is not · 2 one could not be measured.

    Raises:
        UsageError: a wrong name, or a file that this command did not write.
    """
    if chosen.json:
        need_own(chosen.json, "judged")
    every = _tasks(chosen)
    tasks = chosen.shard.part(every, lambda task: task.owner, lambda task: cost(task.framework))
    head = {"schema": SCHEMA, "fingerprint": fingerprint(), "examples": chosen.examples}
    share = {"shard": chosen.shard.to_dict(len(every))} if chosen.shard.of > 1 else {}
    seeds = range(chosen.first, chosen.first + chosen.runs)
    verdicts = Verdicts(Run(chosen.examples), Keys(Path.cwd()), fresh=chosen.fresh)
    stored = {seed: verdicts.under(Run(chosen.examples, seed)) for seed in seeds}
    judged: Seeds = {}
    silent: Seeds = {}
    flakes: list[Flake] = []

    def text() -> str:
        return json.dumps({**head, **share, "flakes": flakes, "judged": judged, "silent": silent}) + "\n"

    def enter(verdict: Verdict, seed: int) -> None:
        judged.setdefault(verdict.task.name, []).append(seed)
        if verdict.verdict == "inapplicable":
            silent.setdefault(verdict.task.name, []).append(seed)
        if not verdict.as_expected:
            flakes.append(verdict.to_dict() | {"seed": seed})

    with verdicts.keys.parsing():
        known = {(task, seed): verdict for seed in seeds for task in tasks if (verdict := stored[seed].get(task))}
    for (_, seed), verdict in known.items():
        enter(verdict, seed)
    asked = [(task, stored[seed].run) for seed in seeds for task in tasks if (task, seed) not in known]
    of = {task.name: task for task in tasks}
    end = math.inf if chosen.minutes is None else time.monotonic() + 60 * chosen.minutes
    written = time.monotonic()
    with (
        Supervisor(Run(chosen.examples), chosen.jobs, Limits(chosen.timeout)) as supervisor,
        cluster.judges(chosen.scheduler, supervisor) as judges,
        progress(len(seeds) * len(tasks), "verdicts", done=len(known)) as show,
    ):
        try:
            for verdict, run in judges.judge_each(asked):
                show.advance()
                enter(verdict, run.seed)
                stored[run.seed].put(verdict, of[verdict.task.name], judges.readings)
                if not verdict.as_expected:
                    show.note(f"{verdict.task.name} under seed {run.seed}: {verdict.verdict}: {verdict.reason}")
                if chosen.json and time.monotonic() - written > KEEP_EVERY:
                    write_atomically(chosen.json, text())
                    written = time.monotonic()
                if time.monotonic() > end:
                    break
        finally:
            if chosen.json:
                write_atomically(chosen.json, text())
    if known:
        terminal.note(f"{len(known)} of {len(seeds) * len(tasks)} verdicts reused: what they depend on is unchanged")
    for note in verdicts.answers.notes("verdicts"):
        terminal.note(note)
    if silent:
        terminal.note(f"{_number(silent)} verdicts say nothing: their claims are inapplicable under these seeds")
    return _print(tasks, len(seeds), flakes, len(seeds) * len(tasks) - _number(judged))


def _tasks(chosen: argparse.Namespace) -> list[Task]:
    methods = registry.methods(chosen.family, chosen.method, chosen.framework)
    there = [method for method in methods if installed(method.framework)]
    if not there:
        raise UsageError("the framework is not installed: pip install 'gradgate[jax]' or 'gradgate[torch]'")
    if len(there) < len(methods):
        terminal.note(f"{len(methods) - len(there)} methods are left out: their framework is not installed")
    return [
        Task.of(method, claim) for method in there for claim in method.claims if CHECKS[claim.check].draws != "profile"
    ]


def _name(row: Flake) -> str:
    return Verdict.from_dict(row).task.name


def _number(of: Seeds) -> int:
    return sum(map(len, of.values()))


def _print(tasks: Sequence[Task], runs: int, flakes: Sequence[Flake], left: int) -> int:
    out = terminal.console()
    for line in _lines(flakes):
        out.print(Text(line), soft_wrap=True)
    claims = len({_name(row) for row in flakes})
    out.print(f"{len(tasks)} claims under {runs} seeds: {claims or 'none'} with another verdict than the declared one")
    if left:
        out.print(f"the time was over: {left} of {len(tasks) * runs} verdicts are missing; the next run goes on")
    return exit_status((Verdict.from_dict(row) for row in flakes), left)


def _lines(flakes: Sequence[Flake]) -> Iterator[str]:
    """Every flake: claim, seed, verdict and reason, and the command that judges that problem again."""
    for row in sorted(flakes, key=lambda row: (_name(row), row["seed"])):
        words = explain(Verdict.from_dict(row))
        yield f"• {_name(row)} under seed {row['seed']}: {words.outcome}: {words.reason}"
        again = row["reproduce"] if "--spec" in row["reproduce"] else f"{row['reproduce']} --seed {row['seed']}"
        yield f"  reproduce: {again}"
