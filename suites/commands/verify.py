"""``gradgate verify``: judge every claim of the reference methods, or of a method of your own."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
from typing import Any

from gradgate.hw_profiles import profile as hardware
from gradgate.hw_profiles.fingerprint import fingerprint
from gradgate.references import laws, registry
from gradgate.references.errors import UsageError, unknown
from gradgate.suites.commands import arguments
from gradgate.suites.commands.arguments import json_object, need_report
from gradgate.suites.console import terminal
from gradgate.suites.console.files import write_atomically
from gradgate.suites.console.progress import progress
from gradgate.suites.judging.engine import Run
from gradgate.suites.judging.outcomes import exit_status
from gradgate.suites.judging.verdict import SCHEMA, Task, Verdict
from gradgate.suites.workers.supervisor import Limits, Supervisor

COMPILING = 0.75
"""Share of the limit per call that a compilation may take: it ends before the call that it is part of."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gradgate verify``."""
    arguments.add(parser, "target", "--family", "--method", "--framework")
    parser.add_argument("--claim", help="judge this claim only (see gradgate list)")
    arguments.add(parser, "--examples", "--seed")
    arguments.add(parser, "--spec", default="", help="judge this one problem, as printed by a failure")
    arguments.add(parser, "--options", help="options of the method, with --spec")
    profiles = "on another profile than cpu (default) the claims about memory and work alone are judged"
    arguments.add(parser, "--profile", help=profiles)
    arguments.add(parser, "--jobs", "--timeout")
    arguments.add(parser, "--json", help="write the verdicts here, after each one")
    arguments.add(parser, "--report", help="write index.html, verdicts.json and junit.xml here")


def main(chosen: argparse.Namespace) -> int:
    """Judge the claims, write each verdict and print all of them; the exit status.

    Returns:
        0 every verdict is the declared one · 1 one is not · 2 one could not be measured.

    Raises:
        UsageError, ProfileError: a wrong name or value; lists what is legal.
    """
    hardware.load(chosen.profile)
    if chosen.options and not chosen.spec:
        raise UsageError("--options belong to one problem: give it with --spec")
    options = json_object(chosen.options, "--options")
    run = Run(chosen.examples, chosen.seed, chosen.spec, options, COMPILING * chosen.timeout)
    with Supervisor(run, chosen.jobs, Limits(chosen.timeout)) as supervisor:
        tasks = _tasks(chosen, supervisor)
        if chosen.spec:
            for name in {task.family for task in tasks} & registry.families().keys():
                registry.spec_class(name).from_json(chosen.spec)
        if chosen.report:
            need_report()
        verdicts = _judged(chosen, supervisor, tasks)
    terminal.table(_ordered(tasks, verdicts))
    if chosen.report:
        from gradgate.suites.report import write

        terminal.note(f"report: {write(_document(tasks, verdicts), chosen.report)}")
    return exit_status(verdicts)


def _judged(chosen: argparse.Namespace, supervisor: Supervisor, tasks: list[Task]) -> list[Verdict]:
    """The verdicts in the order in which they are reached; the files are written after each one."""
    verdicts: list[Verdict] = []
    left = collections.Counter(task.owner for task in tasks)
    with progress(len(tasks), "claims") as show:

        def judging(task: Task, judged: int) -> None:
            show.doing(f"{task.method} {task.framework} {task.claim}: {judged}")

        for verdict in supervisor.judge_all(tasks, judging):
            verdicts.append(verdict)
            left[verdict.task.owner] -= 1
            show.advance(f"{verdict.task.owner} done", line=not left[verdict.task.owner])
            _write(chosen, _document(tasks, verdicts))
    return verdicts


def _tasks(chosen: argparse.Namespace, supervisor: Supervisor) -> list[Task]:
    """The claims that are asked for.

    Raises:
        UsageError: a wrong name, or nothing is left to judge.
    """
    if chosen.target:
        if chosen.family:
            registry.family(chosen.family)
        tasks = supervisor.describe(chosen.target, chosen.family or "", chosen.framework)
    else:
        found = registry.methods(chosen.family, chosen.method, chosen.framework)
        tasks = [Task.of(method, claim) for method in found for claim in method.claims]
        if not chosen.method:
            for family, target in registry.entry_points():
                if chosen.family is None or registry.family(chosen.family).name == family:
                    tasks += supervisor.describe(target, family, None)
            tasks = [task for task in tasks if chosen.framework in (None, task.framework)]
    tasks = [dataclasses.replace(task, profile=chosen.profile) for task in tasks]
    if hardware.load(chosen.profile).compiler != "host":  # what the gradient is, no profile changes
        tasks = [task for task in tasks if task.check in laws.CHECKS]
        if not tasks:
            raise UsageError(f"nothing is claimed about memory or work, which is all that {chosen.profile} can judge")
    if chosen.claim:
        legal = sorted({task.claim for task in tasks})
        tasks = [task for task in tasks if task.claim == chosen.claim]
        if not tasks:
            raise unknown("claim", chosen.claim, legal)
    return tasks


def _ordered(tasks: list[Task], verdicts: list[Verdict]) -> list[Verdict]:
    place = {(task.name, task.target): i for i, task in enumerate(tasks)}
    return sorted(verdicts, key=lambda verdict: place[verdict.task.name, verdict.task.target])


def _document(tasks: list[Task], verdicts: list[Verdict]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "fingerprint": fingerprint(),
        "claims": len(tasks),
        "verdicts": [verdict.to_dict() for verdict in _ordered(tasks, verdicts)],
    }


def _write(chosen: argparse.Namespace, document: dict[str, Any]) -> None:
    targets = [chosen.json] if chosen.json else []
    targets += [chosen.report / "verdicts.json"] if chosen.report else []
    for path in targets:
        write_atomically(path, json.dumps(document, indent=1) + "\n")
