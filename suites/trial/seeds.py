"""Seeds of random right pairs and calls, judged in a process of its own, and of all claims that draw problems."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from gradgate.suites.calibration import check_calls, drawn_pairs
from gradgate.suites.judging.verdict import Verdict
from gradgate.suites.trial import counts
from gradgate.suites.trial.counts import Row

Judge = Callable[[str, int, int], tuple[dict[str, str], int]]
"""(framework, first seed, one past the last) -> the false alarms by their seeds, and how many gave no answer."""
DRAWN: Mapping[str, Judge] = {"pairs": drawn_pairs.alarms, "calls": check_calls.alarms}


def judged(kind: str, framework: str, code: str, start: int, stop: int) -> Row:
    """Judge some seeds, in a process of its own."""
    began = time.process_time()
    alarms, silent = DRAWN[kind](framework, start, stop)
    seconds = round(time.process_time() - began, 1)
    return Row(f"{kind} {framework}", code, start, stop, alarms, silent, seconds, counts.today())


def repeated(what: str, code: str, start: int, stop: int, jobs: int) -> Row | None:
    """Judge the claims of a method that draw problems, under some seeds together, which share compiled programs.

    A verdict that is not the declared one is a false alarm, or a fault that another seed does not see.

    Args:
        what: the method, as ``seeds jax chain:revolve``.

    Returns:
        None if some were not judged, as the terminal says; what was judged is kept for the next run.
    """
    _, framework, method = what.split()
    family, _, name = method.partition(":")
    began = os.times()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "repeat.json"
        words = ["repeat", stop - start, "--first", start, "--family", family, "--method", name]
        words += ["--framework", framework, "--jobs", jobs, "--json", path]
        command = [sys.executable, "-m", "gradgate.suites.cli", *map(str, words)]
        if subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode not in (0, 1):
            return None
        found = json.loads(path.read_bytes())
    ended = os.times()
    seconds = ended.children_user + ended.children_system - began.children_user - began.children_system
    alarms = {
        f"{flake['seed']} {Verdict.from_dict(flake).task.name}": f"{flake['verdict']}: {flake['reason']}"
        for flake in found["flakes"]
    }
    silent = sum(map(len, found["silent"].values()))
    return Row(what, code, start, stop, alarms, silent, round(seconds, 1), counts.today(), len(found["judged"]))
