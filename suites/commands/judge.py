"""``gradgate judge``: judge candidates of strangers against a task. No process of gradgate's own imports them."""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gradgate.hw_profiles.fingerprint import fingerprint
from gradgate.references.errors import UsageError
from gradgate.suites.commands import arguments
from gradgate.suites.console import court_table
from gradgate.suites.court import wall
from gradgate.suites.workers.variables import environment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gradgate judge``."""
    parser.add_argument("task", metavar="TASK", help="file.py:name of a gradgate.Pair; its function is not used")
    parser.add_argument("candidates", nargs="+", type=Path, metavar="CANDIDATE", help="Python files")
    parser.add_argument("--function", default="", metavar="NAME", help="the candidates' function")
    parser.add_argument("--wall", choices=wall.WALLS, default="auto", help="plain: without bubblewrap (default auto)")
    arguments.add(parser, "--timeout", default=20.0, help="limit for one answer of a candidate (default 20 s)")
    arguments.add(parser, "--jobs", default=1, help="courts at once, each with its own truth (default 1)")
    parser.add_argument("--lines", type=Path, metavar="FILE", help="add each answer to this file as a line of JSON")
    arguments.add_json_flag(parser)


def main(chosen: argparse.Namespace) -> int:
    """Judge the candidates, and show or print their answers; returns the exit status.

    Returns:
        0 all are upheld · 1 one is refuted · 2 one gave no answer, or could not be judged.

    Raises:
        UsageError: the task is none for strangers, or a file cannot be read.
    """
    for path in chosen.candidates:
        if not path.is_file():
            raise UsageError(f"there is no file {path}")
    wall.chosen(chosen.wall)
    os.environ.update(environment())
    answers = []
    for answer in _answers(chosen):
        answers.append(answer)
        if chosen.lines:
            with chosen.lines.open("a", encoding="utf-8") as file:
                file.write(json.dumps(answer) + "\n")
        if not chosen.json:
            court_table.show(answer)
    if chosen.json:
        document = {"schema": 1, "fingerprint": fingerprint(), "task": chosen.task, "answers": answers}
        print(json.dumps(document, indent=1))
    else:
        court_table.conclude(answers)
    return exit_status(answers)


def exit_status(answers: Sequence[dict[str, Any]]) -> int:
    """0 if every candidate is upheld, 1 if one is refuted, else 2."""
    states = {answer["verdict"] for answer in answers}
    return 1 if "refuted" in states else 0 if states <= {"upheld"} else 2


def _answers(chosen: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The candidates' answers, in their order."""
    jobs = min(chosen.jobs, len(chosen.candidates))
    settings = (chosen.task, chosen.wall, chosen.timeout)
    if jobs == 1:
        _open(*settings)
        try:
            for path in chosen.candidates:
                yield _judged(path, chosen.function)
        finally:
            _close()
        return
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs, context, _open, settings) as pool:
        waiting = [pool.submit(_judged, path, chosen.function) for path in chosen.candidates]
        for one in waiting:
            yield one.result()


_COURTS: list[Any] = []
"""The court of this process."""


def _open(task: str, kind: str, seconds: float) -> None:
    import atexit

    from gradgate.suites.court.court import Court

    _COURTS.append(Court(task, wall=kind, seconds=seconds))
    atexit.register(_close)


def _close() -> None:
    while _COURTS:
        _COURTS.pop().close()


def _judged(path: Path, function: str) -> dict[str, Any]:
    found: dict[str, Any] = _COURTS[0].judge(path, function=function)
    return found
