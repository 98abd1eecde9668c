"""Has every recorded call judged, in workers: its pair's claims, by the engine that judges every other pair."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from gradgate.hw_profiles.recording import Record
from gradgate.references.contract import UsageError
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.verdict import Task, Verdict
from gradgate.suites.pairs.device_names import INTERPRETER
from gradgate.suites.watching import folders
from gradgate.suites.watching.results import CLAIMS, HAZARDS, IMPLICIT, MOST_JUDGED, Explained, Judged, Seen, by_rule
from gradgate.suites.watching.writing import Written
from gradgate.suites.workers.supervisor import Limits, Supervisor
from gradgate.suites.workers.variables import environment

TELLING = ("tree", "gradient_exact")
"""Claims that are judged first. If one is refuted, the others are not judged."""
EXAMPLES = 12
"""Problems per claim. The formula needs few, because the inputs have one shape; bfloat16 is judged on this many."""
NAME = "seen"
"""The variable that holds the pair of a call, in the file that names it."""
TARGET = f'''"""One recorded call as a pair: gradgate verify judges it again."""

from gradgate.suites.watching.replay import pair

{NAME} = pair(__file__)
'''


class Kept(Protocol):
    """Verdicts of earlier runs, as `gradgate.suites.keeping.verdicts` keeps them."""

    def describe(
        self, target: str, family: str, framework: str | None, ask: Callable[[], dict[str, Any]]
    ) -> list[Task]:
        """The tasks of a target: kept ones, or those that a worker reports."""

    def get(self, task: Task) -> Verdict | None:
        """The kept verdict on a task; None if it has to be judged."""

    def put(self, verdict: Verdict, task: Task, readings: Record) -> None:
        """Keep a verdict."""


def judge(
    folder: Path,
    calls: list[Seen],
    *,
    acknowledged: Mapping[str, str],
    jobs: int,
    seconds: float,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
    kept: Kept | None = None,
) -> list[Judged]:
    """Judge the calls that a folder holds.

    Args:
        folder: where they were recorded.
        calls: the calls.
        acknowledged: name of a rule -> the reason why it differs by design.
        jobs: worker processes.
        seconds: limit per call of foreign code.
        seed: of everything that is drawn.
        progress: called with the name of every rule whose call is done.
        kept: verdicts of earlier runs on the same calls with the same values, which are used again; None for none.

    Cost: about two seconds a call in PyTorch, and five in JAX, which compiles.
    """
    rules = by_rule(calls)
    names = {call.stem: call.rule.name for call in calls}
    verdicts: dict[str, list[Verdict]] = {}
    reasons: dict[str, str] = {}
    tasks: list[Task] = []
    with Supervisor(run_of(seed), max(1, min(jobs, len(calls))), Limits(seconds)) as supervisor:
        for call in [call for seen in rules.values() for call in seen[:MOST_JUDGED]]:
            known = rules[call.rule][0]  # one with values, if there is any
            beside = known.stem if call.traced and not known.traced else ""
            target = f"{folders.settled(folder, call.stem, TARGET, beside)}:{NAME}"
            try:
                ask = functools.partial(supervisor.describe_fully, target, "", None)
                described = kept.describe(target, "", None, ask) if kept else supervisor.describe(target, "", None)
            except UsageError as why:
                reasons[call.stem] = str(why).removeprefix(f"{call.rule.name}: ")
                progress(call.rule.name)
                continue
            tasks += [task for task in described if task.claim in (*CLAIMS, *HAZARDS) and _applies(call, task)]
        first = [task for task in tasks if task.claim in TELLING]
        for verdict in _verdicts(supervisor, first, kept):
            verdicts.setdefault(verdict.task.family, []).append(verdict)
        plainly = {name for name, rows in verdicts.items() if any(row.verdict == "refuted" for row in rows)}
        left = collections.Counter(task.family for task in tasks if task.claim not in TELLING)
        for name in plainly:  # nothing more is learnt about a gradient that is plainly wrong
            progress(names[name])
            del left[name]
        others = [task for task in tasks if task.claim not in TELLING and task.family in left]
        for verdict in _verdicts(supervisor, others, kept):
            verdicts.setdefault(verdict.task.family, []).append(verdict)
            left[verdict.task.family] -= 1
            if not left[verdict.task.family]:
                progress(names[verdict.task.family])
    found = [
        Judged(
            rule,
            tuple(seen[:MOST_JUDGED]),
            {call.stem: verdicts[call.stem] for call in seen if call.stem in verdicts},
            {call.stem: reasons[call.stem] for call in seen if call.stem in reasons},
            len(seen[MOST_JUDGED:]),
            sum(call.others for call in seen) + sum(call.count for call in seen[MOST_JUDGED:]),
            acknowledged.get(rule.name, ""),
        )
        for rule, seen in rules.items()
    ]
    loaded = sorted((one for one in found if one.verdicts), key=lambda one: not one.is_wrong)
    explained = dict(zip(map(id, loaded), _explained(folder, loaded, seconds), strict=False))
    return [dataclasses.replace(one, explained=explained.get(id(one), one.explained)) for one in found]


def run_of(seed: int) -> Run:
    """The settings with which every claim is judged."""
    return Run(EXAMPLES, seed)


def _verdicts(supervisor: Supervisor, tasks: list[Task], kept: Kept | None) -> Iterator[Verdict]:
    """The verdicts on these tasks, kept ones first."""
    known = {task: verdict for task in tasks if kept is not None and (verdict := kept.get(task)) is not None}
    yield from known.values()
    missing = {task.name: task for task in tasks if task not in known}
    for verdict in supervisor.judge_all(missing.values()):
        if kept is not None:
            kept.put(verdict, missing[verdict.task.name], supervisor.readings)
        yield verdict


def _applies(call: Seen, task: Task) -> bool:
    """Whether a claim applies: a ``custom_vjp`` has no forward mode, an equation's reference no second derivative."""
    return not (call.rule.kind in ("custom_vjp", *IMPLICIT) and task.claim == "forward_mode")


def _explained(folder: Path, judged: list[Judged], seconds: float) -> list[Explained]:
    """`explaining` in a process of its own, because it runs the rules; the first ones, if that process fails."""
    if not judged:
        return []
    asked = [
        (
            [str(folder / f"{call.stem}.py") for call in _to_explain(one)],
            one.is_wrong,
            one.finding and one.finding.spec,
            one.needs_differences,
        )
        for one in judged
    ]
    lines = "".join(json.dumps(line) + "\n" for line in asked)
    with tempfile.TemporaryFile("w+") as answers, contextlib.suppress(subprocess.SubprocessError):
        words = [sys.executable, "-m", "gradgate.suites.watching.explaining"]
        env = {**os.environ, **environment(INTERPRETER)}  # which changes nothing for a rule without kernels
        try:
            subprocess.run(
                words,
                input=lines,
                stdout=answers,
                stderr=subprocess.DEVNULL,
                text=True,
                env=env,
                check=False,
                timeout=seconds * (1 + len(judged)),
            )
        finally:
            answers.seek(0)
            told = answers.read().splitlines()
    return [Explained(**json.loads(line)) for line in told if line.startswith('{"likeness"')]


def _to_explain(one: Judged) -> Sequence[Seen]:
    """The calls of a rule that are explained: all with known values if differences judge them, else the worst."""
    known = [call for call in one.calls if not call.traced]
    return known if known and one.needs_differences else [one.worst]


def pairs_of(folder: Path, judged: Sequence[Judged]) -> list[Written]:
    """The pairs of rules as text, made in a process of its own, because it imports the rules.

    The pair of a rule that is refuted is that of the call that refutes it, if its values are known.
    """
    calls = [[one.worst] if one.is_wrong and not one.worst.traced else one.calls for one in judged]
    places = [",".join(str(folder / f"{call.stem}.py") for call in some) for some in calls]
    words = [sys.executable, "-m", "gradgate.suites.watching.writing", *places]
    ran = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **environment()}, check=False)
    lines = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith('{"module"')]
    return [Written(**{**line, "draws": tuple(line["draws"])}) for line in lines]
