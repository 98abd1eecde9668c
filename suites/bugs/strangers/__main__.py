"""Judge every exploit in both frameworks, behind both walls: ``python -m gradgate.suites.bugs.strangers``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from gradgate.references.contract import installed
from gradgate.suites.bugs.strangers.exploits import EXPLOITS
from gradgate.suites.court import wall
from gradgate.suites.court.court import Court

SECONDS = 6.0
"""Limit for one answer of an exploit."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each exploit, and how many were upheld; 1 if any was, else 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wall", choices=wall.WALLS, default="auto")
    parser.add_argument("--framework", choices=("torch", "jax"))
    parser.add_argument("names", nargs="*", help="exploits (default: all)")
    chosen = parser.parse_args(arguments)
    forged = 0
    for framework in ("torch", "jax"):
        if chosen.framework not in (None, framework) or not installed(framework):
            continue
        task = f"gradgate.suites.bugs.strangers.task_{framework}:task"
        with Court(task, wall=chosen.wall, seconds=SECONDS if framework == "torch" else 3 * SECONDS) as court:
            for exploit in EXPLOITS:
                if framework not in exploit.frameworks or (chosen.names and exploit.name not in chosen.names):
                    continue
                began = time.perf_counter()
                answer = court.judge(exploit.text(framework), exploit.name)
                forged += answer["verdict"] == "upheld"
                took = time.perf_counter() - began
                print(f"{framework} {exploit.name:26}{answer['verdict']:10}{took:6.1f} s  {answer['reason'][:150]}", flush=True)
    print(f"{forged} forged verdicts behind the wall {wall.chosen(chosen.wall)}")
    return 1 if forged else 0


if __name__ == "__main__":
    sys.exit(main())
