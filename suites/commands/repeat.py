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
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from gradgate.hw_profiles.fingerprint import fingerprint
from gradgate.references import registry
from gradgate.references.contract import UsageError, installed
from gradgate.suites.checks import CHECKS
from gradgate.suites.commands import arguments
from gradgate.suites.console import terminal
from gradgate.suites.console.files import write_atomically
from gradgate.suites.console.progress import progress
from gradgate.suites.judging.explain import explain
from gradgate.suites.judging.outcomes import exit_status
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.verdict import Task, Verdict
from gradgate.suites.schemas import documents
from gradgate.suites.workers import cluster
from gradgate.suites.workers.shards import cost
from gradgate.suites.workers.supervisor import Limits, Supervisor

SCHEMA = 1
KEEP_EVERY = 2.0
"""Seconds between writes of the results. A killed run loses the verdicts since the last write."""
Flake = dict[str, Any]
"""A verdict that is not the declared one, as in verdicts.json, with the ``seed`` under which it was given."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gradgate repeat``."""
    runs = "how often: seeds 1 to N (default 20)"
    parser.add_argument("runs", nargs="?", type=arguments.positive, default=20, metavar="N", help=runs)
    arguments.add(parser, "--family", help="problem class (default: all)")
    arguments.add(parser, "--method", help="reference method (default: all)")
    arguments.add(parser, "--framework", help="jax or torch (default: both)")
    problems = "problems per claim (default 12, as nox -s tests)"
    arguments.add(parser, "--examples", default=12, metavar="K", help=problems)
    arguments.add(parser, "--jobs", "--timeout", "--shard", "--scheduler")
    arguments.add(parser, "--json", help="keep the results here and resume from them")


def main(chosen: argparse.Namespace) -> int:
    """Judge every claim that draws problems under every seed, and print every flake; returns the exit status.

    Returns:
        0 every verdict is the declared one under every seed · 1 one is not · 2 one could not be measured.

    Raises:
        UsageError: a wrong name, or a file that this command did not write.
    """
    every = _tasks(chosen)
    tasks = chosen.shard.part(every, lambda task: task.owner, lambda task: cost(task.framework))
    head = {"schema": SCHEMA, "fingerprint": fingerprint(), "examples": chosen.examples}
    share = {"shard": chosen.shard.to_dict(len(every))} if chosen.shard.of > 1 else {}
    judged, flakes = _kept(chosen.json, head)
    seeds = range(1, chosen.runs + 1)
    asked = [(t, Run(chosen.examples, s)) for s in seeds for t in tasks if s not in judged.get(t.name, ())]
    written = time.monotonic()
    with (
        Supervisor(Run(chosen.examples), chosen.jobs, Limits(chosen.timeout)) as supervisor,
        cluster.judges(chosen.scheduler, supervisor) as judges,
        progress(len(seeds) * len(tasks), "verdicts") as show,
    ):
        show.advance(count=len(seeds) * len(tasks) - len(asked))
        try:
            for verdict, run in judges.judge_each(asked):
                show.advance()
                judged.setdefault(verdict.task.name, []).append(run.seed)
                if not verdict.as_expected:
                    flakes.append(verdict.to_dict() | {"seed": run.seed})
                    show.note(f"{verdict.task.name} under seed {run.seed}: {verdict.verdict}: {verdict.reason}")
                if chosen.json and time.monotonic() - written > KEEP_EVERY:
                    write_atomically(chosen.json, _text(head | share, judged, flakes))
                    written = time.monotonic()
        finally:
            if chosen.json:
                write_atomically(chosen.json, _text(head | share, judged, flakes))
    names = {task.name for task in tasks}
    found = [row for row in flakes if _name(row) in names and row["seed"] in seeds]
    return _print(tasks, len(seeds), found)


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


def _kept(path: Path | None, head: Mapping[str, Any]) -> tuple[dict[str, list[int]], list[Flake]]:
    """Task name -> the seeds under which it was judged; and the flakes."""
    if path is None or not path.is_file():
        return {}, []
    found = documents.read(path, "repeat")
    if any(found[key] != value for key, value in head.items()):
        raise UsageError(f"{path} was written with another toolchain or number of examples; give another --json")
    return found["judged"], found["flakes"]


def _text(head: Mapping[str, Any], judged: Mapping[str, Sequence[int]], flakes: Sequence[Flake]) -> str:
    return json.dumps({**head, "flakes": flakes, "judged": judged}) + "\n"


def _print(tasks: Sequence[Task], runs: int, flakes: Sequence[Flake]) -> int:
    out = terminal.console()
    for line in _lines(flakes):
        out.print(Text(line), soft_wrap=True)
    claims = len({_name(row) for row in flakes})
    out.print(f"{len(tasks)} claims under {runs} seeds: {claims or 'none'} with another verdict than the declared one")
    return exit_status(Verdict.from_dict(row) for row in flakes)


def _lines(flakes: Sequence[Flake]) -> Iterator[str]:
    """Every flake: claim, seed, verdict and reason, and the command that judges that problem again."""
    for row in sorted(flakes, key=lambda row: (_name(row), row["seed"])):
        words = explain(Verdict.from_dict(row))
        yield f"• {_name(row)} under seed {row['seed']}: {words.outcome}: {words.reason}"
        again = row["reproduce"] if "--spec" in row["reproduce"] else f"{row['reproduce']} --seed {row['seed']}"
        yield f"  reproduce: {again}"
