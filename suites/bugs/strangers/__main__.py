"""Judge exploits, or with ``--pairs`` right and wrong candidates: ``python -m gradgate.suites.bugs.strangers``."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from gradgate.references.contract import FRAMEWORKS, installed
from gradgate.suites.bugs.strangers.exploits import EXPLOITS
from gradgate.suites.bugs.strangers.of_pairs import heard, tasks
from gradgate.suites.court import wall
from gradgate.suites.court.court import Court

SECONDS = {"torch": 6.0, "jax": 20.0}
"""Limit for one answer of an exploit."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each candidate, and counts; returns 1 if a verdict is not what it has to be, else 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wall", choices=wall.WALLS, default="auto")
    parser.add_argument("--framework", choices=FRAMEWORKS, action="append")
    parser.add_argument("--pairs", action="store_true", help="right candidates and mutants in place of exploits")
    parser.add_argument("names", nargs="*", help="exploits, or parts of targets of pairs (default: all)")
    chosen = parser.parse_args(arguments)
    counts: Counter[str] = Counter()
    for framework in chosen.framework or FRAMEWORKS:
        if installed(framework):
            rows = _pairs if chosen.pairs else _exploits
            for name, wanted, answer, took in rows(framework, chosen.wall, chosen.names):
                state = answer["verdict"]
                good = state == "upheld" if wanted == "upheld" else state in ("refuted", "error")
                counts[f"{wanted}: {state}"] += 1
                counts["unexpected"] += not good
                mark = "  " if good else "! "
                print(f"{mark}{name:50}{state:14}{took:6.1f} s  {str(answer['reason'])[:120]}", flush=True)
    print(", ".join(f"{key} {count}" for key, count in sorted(counts.items())), f"(wall {wall.chosen(chosen.wall)})")
    return 1 if counts["unexpected"] else 0


Row = tuple[str, str, dict[str, object], float]


def _exploits(framework: str, kind: str, names: Sequence[str]) -> Iterator[Row]:
    task = f"gradgate.suites.bugs.strangers.task_{framework}:task"
    with Court(task, wall=kind, seconds=SECONDS[framework]) as court:
        for exploit in EXPLOITS:
            if framework in exploit.frameworks and (not names or exploit.name in names):
                began = time.perf_counter()
                answer = court.judge(exploit.text(framework), exploit.name)
                yield f"{framework} {exploit.name}", "refuted", answer, time.perf_counter() - began


def _pairs(framework: str, kind: str, names: Sequence[str]) -> Iterator[Row]:
    every = (one for place, pair in tasks(framework) for one in heard(place, pair))
    for target, group in itertools.groupby(every, key=lambda one: one.task):
        if names and not any(name in target for name in names):
            continue
        with Court(target, wall=kind, seconds=60.0) as court:
            for one in group:
                began = time.perf_counter()
                answer = court.judge(one.text, one.name, one.function)
                name = f"{target.rpartition('.')[2]} {one.name}"
                yield name, "upheld" if one.right else "refuted", answer, time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
