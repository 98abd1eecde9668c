"""Judge exploits, or with ``--pairs`` right and wrong candidates: ``python -m gradgate.suites.bugs.strangers``.

Afterwards nothing may be left: no process below this one, and no new entry in the folders where anybody may write.
``--cost`` says what candidates cost, and compares it with what is promised for two quiet cores.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from gradgate.references.contract import FRAMEWORKS, installed
from gradgate.suites.bugs.strangers.exploits import EXPLOITS, JAX, TORCH
from gradgate.suites.bugs.strangers.of_pairs import heard, tasks
from gradgate.suites.court import wall
from gradgate.suites.court.cases import Case, Settings, judge_cases
from gradgate.suites.court.court import Court
from gradgate.suites.court.stranger import descendants
from gradgate.suites.workers.shards import Shard

SECONDS = {"torch": 6.0, "jax": 20.0}
"""Limit for one answer of an exploit."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each candidate, and counts; returns 1 if a verdict is not what it has to be, else 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wall", choices=wall.WALLS, default="auto")
    parser.add_argument("--framework", choices=FRAMEWORKS, action="append")
    parser.add_argument("--shard", type=Shard.parse, default=Shard(), metavar="I/N", help="only the I-th of N shares")
    parser.add_argument("--cost", action="store_true", help="what candidates cost, on a machine that does nothing else")
    parser.add_argument("--pairs", action="store_true", help="right candidates and mutants in place of exploits")
    parser.add_argument("--jobs", type=int, default=1, help="courts at once, for pairs (default 1)")
    parser.add_argument("names", nargs="*", help="exploits, or parts of targets of pairs (default: all)")
    chosen = parser.parse_args(arguments)
    if chosen.cost:
        return 1 if sum(_too_expensive(one, chosen.wall) for one in chosen.framework or FRAMEWORKS) else 0
    before = _entries()
    counts: Counter[str] = Counter()
    frameworks = [one for one in chosen.framework or FRAMEWORKS if installed(one)]
    if chosen.pairs:
        rows = _pairs(frameworks, chosen.wall, chosen.names, chosen.shard, chosen.jobs)
    else:
        each = (_exploits(one, chosen.wall, chosen.names, chosen.shard) for one in frameworks)
        rows = itertools.chain.from_iterable(each)
    for name, wanted, answer, took in rows:
        state = answer["verdict"]
        good = state == "upheld" if wanted == "upheld" else state in ("refuted", "error")
        counts[f"{wanted}: {state}"] += 1
        counts["unexpected"] += not good
        mark = "  " if good else "! "
        print(f"{mark}{name:50}{state:14}{took:6.1f} s  {str(answer['reason'])[:120]}", flush=True)
    print(", ".join(f"{key} {count}" for key, count in sorted(counts.items())), f"(wall {wall.chosen(chosen.wall)})")
    left = _left(before)
    print(f"left behind: {', '.join(left) or 'nothing'}")
    return 1 if counts["unexpected"] or left else 0


PROMISED = {"torch": (6.0, 1.5), "jax": (10.0, 3.0)}
"""Framework -> seconds for a first candidate, a new process and its imports included, and for each further one."""
FURTHER = 5
"""Further candidates whose costs are measured."""


def _too_expensive(framework: str, kind: str) -> bool:
    """Print what right candidates cost; whether it is more than promised."""
    text = {"torch": TORCH, "jax": JAX}[framework].replace("return 2 * dy", "return dy")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "right.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        task = f"gradgate.suites.bugs.strangers.task_{framework}:task"
        command = [str(Path(sys.executable).with_name("gradgate")), "judge", task, path]
        began = time.perf_counter()
        status = subprocess.run([*command, "--wall", kind], stdout=subprocess.DEVNULL, check=False).returncode
        first = time.perf_counter() - began
    with Court(task, wall=kind) as court:
        court.judge(text)
        answers = [court.judge(text) for _ in range(FURTHER)]
    each = [answer["seconds"] for answer in answers]
    upheld = status == 0 and all(answer["verdict"] == "upheld" for answer in answers)
    most = PROMISED[framework]
    print(f"{framework}: first {first:.2f} s (at most {most[0]:g}), next {min(each):.2f} to {max(each):.2f} s", end=" ")
    print(f"(at most {most[1]:g}), wall {wall.chosen(kind)}{'' if upheld else ', NOT UPHELD'}", flush=True)
    return first > most[0] or max(each) > most[1] or not upheld


def _entries() -> set[str]:
    folders = {tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm", os.getcwd()}
    return {os.path.join(folder, name) for folder in folders if os.path.isdir(folder) for name in os.listdir(folder)}


def _left(before: set[str]) -> list[str]:
    """What candidates have left: processes, and entries of folders that are of this user and were not there before."""
    deadline = time.monotonic() + 20.0  # a namespace that was killed ends in its own time
    while descendants(os.getpid()) and time.monotonic() < deadline:
        time.sleep(0.1)
    new = sorted(path for path in _entries() - before if "court" in os.path.basename(path))
    return [*(f"process {pid}" for pid in descendants(os.getpid())), *new]


Row = tuple[str, str, dict[str, object], float]


def _exploits(framework: str, kind: str, names: Sequence[str], shard: Shard) -> Iterator[Row]:
    task = f"gradgate.suites.bugs.strangers.task_{framework}:task"
    with Court(task, wall=kind, seconds=SECONDS[framework]) as court:
        for exploit in shard.part(EXPLOITS, lambda one: one.name):
            if framework in exploit.frameworks and (not names or exploit.name in names):
                began = time.perf_counter()
                answer = court.judge(exploit.text(framework), exploit.name)
                yield f"{framework} {exploit.name}", "refuted", answer, time.perf_counter() - began


def _pairs(frameworks: Sequence[str], kind: str, names: Sequence[str], shard: Shard, jobs: int) -> Iterator[Row]:
    """All right candidates and mutants of pairs, in one call."""
    every = [one for framework in frameworks for place, pair in tasks(framework) for one in heard(place, pair)]
    every = [one for one in every if not names or any(name in one.task for name in names)]
    own = shard.part(every, lambda one: one.task)
    cases = [Case(one.task, one.text, one.name, one.function) for one in own]
    for i, answer in judge_cases(cases, Settings(kind, 60.0), jobs):
        name = f"{own[i].task.rpartition('.')[2]} {own[i].name}"
        yield name, "upheld" if own[i].right else "refuted", answer, answer["seconds"]


if __name__ == "__main__":
    sys.exit(main())
