"""``gradgate verify``: judge every claim of the reference methods, or of a method of your own."""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import platformdirs

from gradgate.hw_profiles import profile as hardware
from gradgate.hw_profiles.fingerprint import fingerprint
from gradgate.hw_profiles.recording import Record
from gradgate.references import laws, loading, registry
from gradgate.references.contract import installed
from gradgate.references.errors import UsageError, unknown
from gradgate.suites.commands import arguments
from gradgate.suites.commands.arguments import json_object, need_report
from gradgate.suites.console import github, terminal
from gradgate.suites.console.files import is_stream, need_own, write_atomically
from gradgate.suites.console.progress import Show, progress
from gradgate.suites.judging.explain import explain
from gradgate.suites.judging.outcomes import FAILED, exit_status
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.verdict import SCHEMA, Task, Verdict, both_ways
from gradgate.suites.keeping.keys import Keys
from gradgate.suites.keeping.verdicts import Verdicts
from gradgate.suites.settings import Settings
from gradgate.suites.workers import cluster
from gradgate.suites.workers.shards import cost
from gradgate.suites.workers.start import WALL
from gradgate.suites.workers.supervisor import Limits, Supervisor

COMPILING = 0.75
"""Share of the time limit per call that a compilation may take, so that it is stopped before its call is."""
PLAIN = ("tree", "value", "outputs", "gradient_float64")
"""Claims that are judged first. A method that fails one of them is plainly wrong, and this is reported at once."""
TELLING = (*PLAIN, "gradient_exact")
PAGES = ("index.html", "junit.xml", "failures.sarif", "plotly.min.js")
"""Files of a report besides verdicts.json, whose names must be free or its own before anything is judged."""
WRITE_EVERY = 1.0
"""Seconds between writes of the files while verdicts arrive."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gradgate verify``."""
    arguments.add(parser, "target", "--problem", "--family", "--method", "--framework")
    only = "judge this claim only (see gradgate list); may be given several times"
    parser.add_argument("--claim", action="append", default=[], help=only)
    arguments.add(parser, "--examples", "--seed")
    arguments.add(parser, "--spec", default="", help="judge this one problem, as printed by a failure")
    arguments.add(parser, "--options", help="options of the method, with --spec")
    profiles = "hardware profile (default cpu); on any other, only the claims about memory and work are judged"
    arguments.add(parser, "--profile", help=profiles)
    arguments.add(parser, "--jobs", "--timeout")
    fresh = "judge everything again; without it, verdicts on what has not changed are reused"
    parser.add_argument("--fresh", action="store_true", help=fresh)
    stop = "stop at the first claim that is not as declared"
    parser.add_argument("--fail-fast", action="store_true", help=stop)
    under = (
        "exit with 2 if fewer percent of the decisions of pairs went both ways (default: fail_under of the settings)"
    )
    parser.add_argument("--fail-under", type=arguments.percentage, metavar="N", help=under)
    wall = "cut the methods off from the network, and let them write into temporary folders and caches alone (Linux)"
    parser.add_argument("--wall", action="store_true", help=wall)
    arguments.add(parser, "--shard", "--scheduler")
    arguments.add(parser, "--json", help="write the verdicts here, as they come")
    arguments.add(
        parser, "--report", help="write index.html with what it loads, verdicts.json, junit.xml and failures.sarif here"
    )


def main(chosen: argparse.Namespace) -> int:
    """Judge the claims, write each verdict and print all of them; returns the exit status.

    Returns:
        0 every verdict is the declared one · 1 one is not · 2 one could not be measured, no framework of the methods
        is installed, or fewer decisions than --fail-under went both ways.

    Raises:
        UsageError, ProfileError: a wrong name or value; lists what is legal.
    """
    hardware.load(chosen.profile)
    if chosen.report:
        need_report()
    pages = [chosen.report / name for name in PAGES] if chosen.report else []
    for path in pages:
        need_own(path)
    for path in _targets(chosen):
        need_own(path, "verdicts")
    json_object(chosen.spec, "--spec")
    if chosen.options and not chosen.spec:
        raise UsageError("--options belong to one problem: give it with --spec")
    options = json_object(chosen.options, "--options")
    run = Run(chosen.examples, chosen.seed, chosen.spec, options, COMPILING * chosen.timeout)
    settings = Settings.read(Path.cwd())
    chosen.targets = arguments.targets(chosen, settings)
    if chosen.fail_under is None:
        chosen.fail_under = settings.fail_under
    kept = Verdicts(run, Keys(Path.cwd(), settings.depends), fresh=chosen.fresh)
    walled = _wall() if chosen.wall else contextlib.nullcontext()
    with (
        walled,
        arguments.users_code(settings),
        Supervisor(run, chosen.jobs, Limits(chosen.timeout)) as supervisor,
        kept.keys.parsing(),
    ):
        every = _tasks(chosen, supervisor, kept)
        tasks = chosen.shard.part(every, lambda task: task.owner, lambda task: cost(task.framework))
        if chosen.spec:
            for name in {task.family for task in tasks} & registry.families().keys():
                registry.spec_class(name).from_json(chosen.spec)
            for origin in sorted({task.origin for task in tasks if task.origin}):
                supervisor.check_spec(origin, chosen.spec)
        arguments.tell_targets(chosen)
        judged = _Judged(chosen, tasks, len(every))
        with cluster.judges(chosen.scheduler, supervisor) as judges:
            _judge(chosen, judges, judged, kept)
    return _end(chosen, judged, kept)


@contextlib.contextmanager
def _wall() -> Iterator[None]:
    """The scope in which every worker that starts cuts itself off (`landlock.enter`).

    Raises:
        UsageError: this system offers no such wall.
    """
    caches = [platformdirs.user_cache_dir("gradgate"), os.environ.get("GRADGATE_CACHE", "")]
    for path in filter(None, caches):
        os.makedirs(path, exist_ok=True)
    writable = os.pathsep.join(filter(None, [tempfile.gettempdir(), "/dev/shm", *caches]))
    tried = "import sys; from gradgate.suites.workers import landlock; sys.exit(not landlock.enter(sys.argv[1:]))"
    if subprocess.run(
        [sys.executable, "-c", tried, tempfile.gettempdir()], capture_output=True, check=False
    ).returncode:
        raise UsageError("--wall needs Linux with Landlock, and namespaces for everybody; use a container in its place")
    os.environ[WALL] = writable
    try:
        yield
    finally:
        del os.environ[WALL]


def _end(chosen: argparse.Namespace, judged: _Judged, kept: Verdicts) -> int:
    """Show the verdicts and write the report; returns the exit status."""
    verdicts = judged.ordered()
    terminal.table(verdicts)
    if github.wanted():
        github.annotate(verdicts)
    for method, why in getattr(chosen, "left_out", {}).items():
        terminal.note(f"not run on your model: {method}: {why}")
    if chosen.fail_fast and len(verdicts) < len(judged.tasks):
        terminal.note(f"--fail-fast: {len(judged.tasks) - len(verdicts)} claims were not judged")
    if judged.reused:
        said = f"{len(judged.reused)} of {len(verdicts)} verdicts reused: what they depend on is unchanged"
        terminal.note(f"{said}; --fresh judges all again")
    for note in kept.answers.notes("verdicts"):
        terminal.note(note)
    if chosen.report:
        from gradgate.suites.report import write

        terminal.note(f"report: {write(judged.document(), chosen.report)}")
    frameworks = sorted({verdict.task.framework for verdict in verdicts})
    if frameworks and not any(map(installed, frameworks)):
        extras = " or ".join(f"pip install 'gradgate[{name}]'" for name in frameworks)
        terminal.note(f"nothing was judged, because no framework of these methods is installed: {extras}")
        return 2
    both, decisions = both_ways(verdicts)
    if 100 * both < chosen.fail_under * decisions:
        share = f"{both} of {decisions} decisions went both ways ({100 * both / decisions:.1f}%)"
        terminal.note(
            f"not judged enough: {share}, and at least {chosen.fail_under:g}% must: see what was never reached"
        )
        return exit_status(verdicts) or 2
    return exit_status(verdicts)


class _Judged:
    """The verdicts of a run so far, and its files."""

    def __init__(self, chosen: argparse.Namespace, tasks: list[Task], total: int) -> None:
        self.chosen, self.tasks, self.total = chosen, tasks, total
        self.verdicts: list[Verdict] = []
        self.reused: set[Task] = set()
        self.readings: Record = {}
        self._place = {(task.name, task.target): place for place, task in enumerate(tasks)}
        self._next = 0.0
        self.code = arguments.code(chosen)

    def add(self, verdict: Verdict, reused: bool) -> None:
        """Add one verdict."""
        self.verdicts.append(verdict)
        self.reused |= {verdict.task} if reused else set()

    def ordered(self) -> list[Verdict]:
        """The verdicts in the order in which the claims are declared."""
        return sorted(self.verdicts, key=lambda verdict: self._place[verdict.task.name, verdict.task.target])

    def document(self) -> dict[str, Any]:
        """The verdicts so far, as in verdicts.json."""
        rows = [verdict.to_dict() | {"reused": verdict.task in self.reused} for verdict in self.ordered()]
        document = {"schema": SCHEMA, "fingerprint": fingerprint(), "claims": len(self.tasks)}
        asked = {"examples": self.chosen.examples, "seed": self.chosen.seed}
        if self.chosen.shard.of > 1:
            document |= {"shard": self.chosen.shard.to_dict(self.total), "asked": asked} | self.code
        read = {identity: self.readings[identity] for verdict in self.verdicts for identity in verdict.record}
        return document | {"verdicts": rows, "readings": read}

    def write(self, *, now: bool = False) -> None:
        """Write the files unless this was done a moment ago; a pipe gets only the last state.

        A moment is `WRITE_EVERY` seconds, or fifty times what the last writing took, so that it costs two percent at
        most. With `now`, they are written at once.
        """
        began = time.monotonic()
        if not now and began < self._next:
            return
        if paths := [path for path in _targets(self.chosen) if now or not is_stream(path)]:
            text = json.dumps(self.document(), indent=1) + "\n"
            for path in paths:
                write_atomically(path, text)
        ended = time.monotonic()
        self._next = ended + max(WRITE_EVERY, 50 * (ended - began))


def _targets(chosen: argparse.Namespace) -> list[Path]:
    """The files in which a run keeps its verdicts."""
    written = [chosen.json] if chosen.json else []
    return [*written, chosen.report / "verdicts.json"] if chosen.report else written


def _judge(chosen: argparse.Namespace, judges: cluster.Judges, judged: _Judged, kept: Verdicts) -> None:
    """Fill in the verdicts: first those that are kept; then the others, the most telling claims of a method first."""
    left = collections.Counter(task.owner for task in judged.tasks)
    known = {task: verdict for task in judged.tasks if (verdict := kept.get(task)) is not None}
    for task, verdict in known.items():
        judged.add(verdict, reused=True)
        left[task.owner] -= 1
    judged.readings |= kept.readings
    missing = _telling_first([task for task in judged.tasks if task not in known])
    tasks = {(task.name, task.target): task for task in missing}
    try:
        with progress(len(judged.tasks), "claims", done=len(known)) as show:

            def judging(task: Task, problems: int) -> None:
                show.doing(f"{task.method} {task.framework} {task.claim}: {problems}")

            if any(_tell(verdict, show) for verdict in known.values()) and chosen.fail_fast:
                return
            for verdict in judges.judge_all(missing, judging):
                judged.readings |= judges.readings
                judged.add(verdict, reused=False)
                kept.put(verdict, tasks[verdict.task.name, verdict.task.target], judges.readings)
                left[verdict.task.owner] -= 1
                done = f"{verdict.task.owner} done" if not left[verdict.task.owner] else _words(verdict)
                show.advance(done, line=True if not left[verdict.task.owner] else None if len(left) == 1 else False)
                judged.write()
                if _tell(verdict, show) and chosen.fail_fast:
                    return
    finally:
        judged.write(now=True)


def _words(verdict: Verdict) -> str:
    return f"{verdict.task.method} {verdict.task.framework} {verdict.task.claim}: {verdict.outcome}"


def _telling_first(tasks: list[Task]) -> list[Task]:
    """The tasks, method by method. A method's most telling claims come first, then the others as declared."""
    owners: dict[tuple[str, str], int] = {}
    for task in tasks:
        owners.setdefault((task.owner, task.target), len(owners))

    def rank(task: Task) -> tuple[int, int]:
        return owners[task.owner, task.target], TELLING.index(task.claim) if task.claim in TELLING else len(TELLING)

    return sorted(tasks, key=rank)


def _tell(verdict: Verdict, show: Show) -> bool:
    """Whether a claim is not as declared. If this shows that the method is plainly wrong, it is reported at once."""
    if verdict.outcome not in FAILED:
        return False
    if verdict.task.claim in PLAIN:
        task = verdict.task
        show.note(f"plainly wrong: {task.method} {task.framework} {task.claim}: {explain(verdict).clauses[0]}")
    return True


def _tasks(chosen: argparse.Namespace, supervisor: Supervisor, kept: Verdicts) -> list[Task]:
    """The claims that are requested.

    Raises:
        UsageError: a wrong name, or nothing is left to judge.
    """

    def described(target: str, family: str, framework: str | None) -> list[Task]:
        return kept.describe(target, family, framework, lambda: supervisor.describe_fully(target, family, framework))

    if chosen.framework:
        arguments.need_framework(chosen.framework, here=not chosen.scheduler)
    tasks: list[Task] = []
    for given in chosen.targets:
        if given.family:
            registry.family(given.family)
        loading.need_file(given.target)
        its = described(given.target, given.family, given.framework or None)
        tasks += [task for task in its if chosen.framework in (None, task.framework)]
    if not chosen.targets:
        found = registry.methods(chosen.family, chosen.method, chosen.framework)
        tasks = [Task.of(method, claim) for method in found for claim in method.claims]
        if not chosen.method:
            for family, target in registry.entry_points():
                if chosen.family is None or registry.family(chosen.family).name == family:
                    tasks += described(target, family, None)
            tasks = [task for task in tasks if chosen.framework in (None, task.framework)]
    arguments.need_some(chosen, tasks)
    tasks = [dataclasses.replace(task, profile=chosen.profile) for task in dict.fromkeys(tasks)]  # named twice: once
    if hardware.load(chosen.profile).compiler != "host":  # the gradient is the same on every profile
        tasks = [task for task in tasks if task.check in laws.CHECKS]
        if not tasks:
            raise UsageError(f"nothing is claimed about memory or work, which is all that {chosen.profile} can judge")
    if chosen.claim:
        legal = sorted({task.claim for task in tasks})
        for claim in chosen.claim:
            if claim not in legal:
                raise unknown("claim", claim, legal)
        tasks = [task for task in tasks if task.claim in chosen.claim]
    return tasks
