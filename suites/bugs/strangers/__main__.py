"""Judge exploits: ``python -m gradgate.suites.bugs.strangers``.

``--pairs`` judges right candidates and mutants in one call of ``gradgate judge --cases``. ``--many N`` judges N cheap
candidates in one call, and kills one of its courts in the middle. Afterwards nothing may be left: no process below this
one, and no new entry in the folders where anybody may write. ``--cost`` says what candidates cost, and compares it with
what is promised for two quiet cores. ``--wall-cost`` says how much more processor time ``gradgate verify --wall`` takes
than ``gradgate verify``.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gradgate.references.contract import FRAMEWORKS, installed
from gradgate.suites.bugs.strangers.exploits import EXPLOITS, JAX, TORCH
from gradgate.suites.bugs.strangers.of_pairs import heard, tasks
from gradgate.suites.court import wall
from gradgate.suites.court.cases import Case
from gradgate.suites.court.court import Court
from gradgate.suites.court.stranger import descendants
from gradgate.suites.workers.shards import Shard

GRADGATE = str(Path(sys.executable).with_name("gradgate"))
SECONDS = {"torch": 6.0, "jax": 20.0}
"""Limit for one answer of an exploit."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each candidate, and counts; returns 1 if a verdict is not what it has to be, else 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wall", choices=wall.WALLS, default="auto")
    parser.add_argument("--framework", choices=FRAMEWORKS, action="append")
    parser.add_argument("--shard", type=Shard.parse, default=Shard(), metavar="I/N", help="only the I-th of N shares")
    parser.add_argument("--cost", action="store_true", help="what candidates cost, on a machine that does nothing else")
    parser.add_argument("--wall-cost", action="store_true", help="what verify --wall costs, on any machine")
    parser.add_argument("--pairs", action="store_true", help="right candidates and mutants in place of exploits")
    parser.add_argument("--many", type=int, metavar="N", help="N cheap candidates, every fourth one right")
    parser.add_argument("--jobs", type=int, default=2, help="courts at once, for --pairs and --many (default 2)")
    parser.add_argument("names", nargs="*", help="exploits, or parts of targets of pairs (default: all)")
    chosen = parser.parse_args(arguments)
    if chosen.cost:
        return 1 if sum(_too_expensive(one, chosen.wall) for one in chosen.framework or FRAMEWORKS) else 0
    if chosen.wall_cost:
        return 1 if sum(_costs_too_much(target) for target in chosen.names or VERIFIED) else 0
    if chosen.many and chosen.jobs < 2:
        parser.error("--many needs --jobs 2 or more, of which one is killed")
    before = _entries()
    began = time.perf_counter()
    counts: Counter[str] = Counter()
    frameworks = [one for one in chosen.framework or FRAMEWORKS if installed(one)]
    if chosen.pairs:
        rows = _pairs(frameworks, chosen.wall, chosen.names, chosen.shard, chosen.jobs)
    elif chosen.many:
        rows = _many(chosen.many, chosen.wall, chosen.jobs)
    else:
        each = (_exploits(one, chosen.wall, chosen.names, chosen.shard) for one in frameworks)
        rows = itertools.chain.from_iterable(each)
    for name, wanted, answer, took in rows:
        state = answer["verdict"]
        good = state == "upheld" if wanted == "upheld" else state in ("refuted", "error")
        counts[f"{wanted}: {state}"] += 1
        counts["unexpected"] += not good
        mark = "  " if good else "! "
        shown = "".join(one if one.isprintable() else " " for one in answer["reason"])
        print(f"{mark}{name:50}{state:14}{took:6.1f} s  {shown[:120]}", flush=True)
    print(", ".join(f"{key} {count}" for key, count in sorted(counts.items())), end=" ")
    print(f"(wall {wall.chosen(chosen.wall)}, {time.perf_counter() - began:.0f} s)")
    left = _left(before)
    print(f"left behind: {', '.join(left) or 'nothing'}")
    return 1 if counts["unexpected"] or left else 0


def _task(framework: str) -> str:
    return f"gradgate.suites.bugs.strangers.task_{framework}:task"


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
        task = _task(framework)
        command = [GRADGATE, "judge", task, path]
        began, before = time.perf_counter(), os.times()
        status = subprocess.run([*command, "--wall", kind], stdout=subprocess.DEVNULL, check=False).returncode
        first, after = time.perf_counter() - began, os.times()
    with Court(task, wall=kind) as court:
        court.judge(text)
        answers = [court.judge(text) for _ in range(FURTHER)]
    each = [answer["seconds"] for answer in answers]
    spent = [answer["score"]["processor_seconds"] + answer["score"]["reference_seconds"] for answer in answers]
    upheld = status == 0 and all(answer["verdict"] == "upheld" for answer in answers)
    most = PROMISED[framework]
    print(f"{framework}: first {first:.2f} s (at most {most[0]:g}), next {min(each):.2f} to {max(each):.2f} s", end=" ")
    print(f"(at most {most[1]:g}); processor time {sum(after[2:4]) - sum(before[2:4]):.2f} s,", end=" ")
    print(f"next {min(spent):.2f} to {max(spent):.2f} s;", end=" ")
    print(f"wall {wall.chosen(kind)}{'' if upheld else ', NOT UPHELD'}", flush=True)
    return first > most[0] or max(each) > most[1] or not upheld


VERIFIED = tuple(
    f"gradgate.suites.bugs.of_pairs.{name}" for name in ("torch_norms:gated", "torch_tables:solved", "jax_norms:gated")
)
"""Pairs on which ``verify --wall`` is measured."""
ROUNDS = 3
MOST_RATIO = 1.15
"""How many times the processor time of ``verify`` it may take with ``--wall``."""


def _costs_too_much(target: str) -> bool:
    """Print what ``verify`` costs with and without ``--wall``, by turns; whether the smallest are too far apart."""
    spent: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for _ in range(ROUNDS):
        for wanted, times in spent.items():
            began, before = time.perf_counter(), os.times()
            command = [GRADGATE, "verify", target, "--examples", "24", "--fresh", *["--wall"] * wanted]
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            times.append((sum(os.times()[2:4]) - sum(before[2:4]), time.perf_counter() - began))
    ratios = []
    for place, what in enumerate(("processor time", "time")):
        plain, walled = ([pair[place] for pair in times] for times in spent.values())
        ratios.append(min(walled) / min(plain))
        shown = [" ".join(f"{one:.1f}" for one in times) for times in (plain, walled)]
        print(f"{target.rpartition('.')[2]}: {what} {shown[0]} s, with --wall {shown[1]} s; ratio {ratios[-1]:.3f}")
    print(f"at most {MOST_RATIO} in processor time, on which other programs have no influence", flush=True)
    return ratios[0] > MOST_RATIO


ENDING = 20.0
"""Seconds that a namespace may take to end after it was killed."""


def _entries() -> set[str]:
    folders = {tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm", os.getcwd()}
    return {os.path.join(folder, name) for folder in folders if os.path.isdir(folder) for name in os.listdir(folder)}


def _left(before: set[str]) -> list[str]:
    """What candidates have left: processes, and entries of folders that are of this user and were not there before."""
    deadline = time.monotonic() + ENDING
    while descendants(os.getpid()) and time.monotonic() < deadline:
        time.sleep(0.1)
    new = sorted(path for path in _entries() - before if "court" in os.path.basename(path))
    return [*(f"process {pid}" for pid in descendants(os.getpid())), *new]


Row = tuple[str, str, dict[str, Any], float]


def _exploits(framework: str, kind: str, names: Sequence[str], shard: Shard) -> Iterator[Row]:
    task = _task(framework)
    with Court(task, wall=kind, seconds=SECONDS[framework]) as court:
        apart = wall.keeps_apart(court.judge("")["wall"])
        for exploit in shard.part(EXPLOITS, lambda one: one.name):
            if framework in exploit.frameworks and (not names or exploit.name in names):
                if exploit.others and not apart:
                    print(f"  {framework} {exploit.name}: not run, because nothing here keeps it from your processes")
                    continue
                began = time.perf_counter()
                answer = court.judge(exploit.text(framework), exploit.name)
                yield f"{framework} {exploit.name}", "refuted", answer, time.perf_counter() - began


def _pairs(frameworks: Sequence[str], kind: str, names: Sequence[str], shard: Shard, jobs: int) -> Iterator[Row]:
    """All right candidates and mutants of pairs, in one call."""
    every = [one for framework in frameworks for place, pair in tasks(framework) for one in heard(place, pair)]
    every = [one for one in every if not names or any(name in one.task for name in names)]
    own = shard.part(every, lambda one: one.task)
    for i, answer in _answers([Case(one.task, one.text, function=one.function) for one in own], kind, jobs):
        name = f"{own[i].task.rpartition('.')[2]} {own[i].name}"
        yield name, "upheld" if own[i].right else "refuted", answer, answer["seconds"]


def _many(count: int, kind: str, jobs: int) -> Iterator[Row]:
    """Four candidates of PyTorch, again and again: right, wrong, no Python, and one that ends its process.

    All are judged in one call; when half are, one of its courts is killed.

    Raises:
        RuntimeError: a candidate has no answer, or two.
    """
    texts = TORCH.replace("return 2 * dy", "return dy"), TORCH, "def candidate(x, w:", "import os\nos._exit(0)"
    cases = [Case(_task("torch"), f"# {i}\n{texts[i % 4]}", function="candidate") for i in range(count)]
    seen: Counter[int] = Counter()
    for i, answer in _answers(cases, kind, jobs, count // 2):
        seen[i] += 1
        yield f"candidate {i}", "refuted" if i % 4 else "upheld", answer, answer["seconds"]
    if seen != Counter(range(count)):
        raise RuntimeError(
            f"{count - len(seen)} candidates have no answer, {seen.total() - len(seen)} have another one"
        )


def _answers(cases: Sequence[Case], kind: str, jobs: int, killed: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
    """(index of a case, answer) of one call of ``gradgate judge --cases``.

    Args:
        killed: the number of answers after which one of its courts is killed; 0: none is.
    """
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder, "lines.jsonl")
        lines.touch()
        for i, case in enumerate(cases):
            Path(folder, f"{i}.py").write_text(str(case.candidate), encoding="utf-8")
        listed = [{"task": one.task, "candidate": f"{i}.py", "function": one.function} for i, one in enumerate(cases)]
        Path(folder, "cases.jsonl").write_text("\n".join(map(json.dumps, listed)), encoding="utf-8")
        command = [GRADGATE, "judge", "--cases", f"{folder}/cases.jsonl", "--lines", str(lines), "--wall", kind]
        command += ["--jobs", str(jobs), "--timeout", "60"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as running, lines.open(encoding="utf-8") as file:
            count, text, ended = 0, "", False
            while not ended:
                ended = running.poll() is not None  # what it wrote before it ended is read once more
                text += file.read()
                *whole, text = text.split("\n")
                for line in whole:
                    answer = json.loads(line)
                    yield int(answer["name"].removesuffix(".py")), answer
                    count += 1
                    if count == killed:
                        os.kill(_courts(running.pid)[0], signal.SIGKILL)
                time.sleep(0.1)


def _courts(pid: int) -> list[int]:
    """The courts among the processes below one."""
    found = []
    for one in descendants(pid):
        with contextlib.suppress(OSError):  # it has ended
            found += [one] * (b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes())
    return found


if __name__ == "__main__":
    sys.exit(main())
