"""``gradgate judge``: judge candidates of strangers against a task. No process of gradgate's own imports them."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gradgate.hw_profiles.fingerprint import fingerprint
from gradgate.references.errors import UsageError
from gradgate.suites.commands import arguments
from gradgate.suites.console import court_table
from gradgate.suites.court import wall
from gradgate.suites.court.benchmarks import of_definition, traces
from gradgate.suites.court.cases import Case, Settings, answered, cases_of, judge_apart, judge_cases
from gradgate.suites.workers import cluster
from gradgate.suites.workers.variables import environment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gradgate judge``."""
    parser.add_argument(
        "task", nargs="?", default="", metavar="TASK", help="file.py:name of a Pair, or a definition.json"
    )
    parser.add_argument("candidates", nargs="*", type=Path, metavar="CANDIDATE", help="Python files, or JSON")
    parser.add_argument("--cases", type=Path, metavar="FILE", help="in place of both: a file of lines of JSON")
    parser.add_argument("--function", default="", metavar="NAME", help="the candidates' function")
    parser.add_argument("--wall", choices=wall.WALLS, default="auto", help="plain: without bubblewrap (default auto)")
    arguments.add(parser, "--timeout", default=20.0, help="limit for one answer of a candidate (default 20 s)")
    arguments.add(parser, "--jobs", default=1, help="courts at once, each with its own truth (default 1)")
    arguments.add(parser, "--shard", help="judge only the I-th of N shares of the candidates")
    arguments.add(parser, "--scheduler")
    parser.add_argument("--lines", type=Path, metavar="FILE", help="add each answer to this file as a line of JSON")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="add SOL-ExecBench's traces, as lines of JSON")
    parser.add_argument("--resume", action="store_true", help="judge no candidate again whose answer --lines has")
    arguments.add_json_flag(parser)


def main(chosen: argparse.Namespace) -> int:
    """Judge the candidates, and show or print their answers; returns the exit status.

    Returns:
        0 all are upheld · 1 one is refuted · 2 one gave no answer, or could not be judged.

    Raises:
        UsageError: the task is none for strangers, or a file cannot be read.
    """
    cases = _cases(chosen)
    wall.chosen(chosen.wall)
    os.environ.update(environment())
    known = answered(chosen.lines) if chosen.resume else {}
    answers: dict[int, dict[str, Any]] = {i: known[case.key] for i, case in enumerate(cases) if case.key in known}
    asked = [i for i in range(len(cases)) if i not in answers]
    if known and not chosen.json:
        court_table.resumed(len(answers), chosen.lines)
    settings, left = Settings(chosen.wall, chosen.timeout), [cases[i] for i in asked]
    with cluster.executor(chosen.scheduler) as executor:
        if executor is None:
            judged = judge_cases(left, settings, min(chosen.jobs, max(1, len(left))))
        else:
            judged = judge_apart(left, settings, executor)
        for place, answer in judged:
            answers[asked[place]] = answer
            if chosen.lines:
                _add_line(chosen.lines, answer)
            if chosen.trace:
                for trace in traces(of_definition(Path(chosen.task)), answer, fingerprint()):
                    _add_line(chosen.trace, trace)
            if not chosen.json:
                court_table.show(answer)
    found = [answers[i] for i in sorted(answers)]
    if chosen.json:
        document = {"schema": 1, "fingerprint": fingerprint(), "task": chosen.task, "answers": found}
        print(json.dumps(document, indent=1))
    else:
        court_table.conclude(found)
    return exit_status(found)


def exit_status(answers: Sequence[dict[str, Any]]) -> int:
    """0 if every candidate is upheld, 1 if one is refuted, else 2."""
    states = {answer["verdict"] for answer in answers}
    return 1 if "refuted" in states else 0 if states <= {"upheld"} else 2


def _cases(chosen: argparse.Namespace) -> list[Case]:
    """The cases of this share, in their order.

    Raises:
        UsageError: there are none, they are given twice, or a file is missing.
    """
    if bool(chosen.cases) == bool(chosen.task):
        raise UsageError("give a TASK and its candidates, or --cases FILE, and not both")
    if chosen.trace and not chosen.task.endswith(".json"):
        raise UsageError("--trace is for a TASK of SOL-ExecBench: the path of its definition.json")
    if chosen.resume and not chosen.lines:
        raise UsageError("--resume needs --lines FILE, in which the answers are")
    if chosen.cases:
        found = cases_of(chosen.cases)
    else:
        found = [Case(chosen.task, path, "", chosen.function) for path in chosen.candidates]
    if not found:
        raise UsageError(f"there is no candidate in {chosen.cases}" if chosen.cases else "give one CANDIDATE or more")
    for case in found:
        if not Path(case.candidate).is_file():
            raise UsageError(f"there is no file {case.candidate}")
    numbered = list(enumerate(found))
    tasks = len({case.task for case in found})
    whole = tasks >= chosen.shard.of  # a task stays together, unless there are too few of them
    return [one for _, one in chosen.shard.part(numbered, lambda one: one[1].task if whole else str(one[0]))]


def _add_line(path: Path, answer: dict[str, Any]) -> None:
    """Add an answer or a trace as a line of its own, also after a line that a kill cut off."""
    with path.open("a+b") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(json.dumps(answer).encode() + b"\n")
