"""What watching costs, and whether it changes a result: the scripts of the census, with it and without it.

``python -m gradgate.suites.gallery.census.cost [NAME…]``. Each script runs several times in one process. Once with and
once without watching, every result of every operation is hashed: in PyTorch what each operator returns, forward and
backward, in JAX what each primitive returns outside of `jax.jit`, and each program of `jax.jit` when it first runs.
Then the CPU seconds of the process are measured in turn with watching and without, unhashed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import runpy
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gradgate.suites.console.files import write_atomically
from gradgate.suites.gallery.census.package import FOLDER
from gradgate.suites.gallery.environment import CannotInstall, made
from gradgate.suites.gallery.judge import QUIET
from gradgate.suites.gallery.metadata import chosen
from gradgate.suites.watching import folders, results

MOST_SHARE, MOST_SECONDS = 0.2, 2.0
"""Watching may cost the larger of this share of the time and these seconds."""
UNWRITTEN = "empty"
"""In the name of an operator whose result is memory that nobody has written."""


@dataclass(frozen=True)
class Cost:
    """A package's script with and without watching.

    Attributes:
        name: the package.
        results: number of results that were compared.
        same: whether each has the same bits with watching.
        calls: calls of rules that were recorded.
        plain, watched: CPU seconds, the median of the runs.
        rules: number of rules that were seen.
        walls: seconds on the clock with and without watching; of tests.
        compared: what was compared.
    """

    name: str
    results: int
    same: bool
    calls: int
    plain: float
    watched: float
    rules: int = 0
    walls: tuple[float, float] = (0.0, 0.0)
    compared: str = "bits"

    @property
    def is_small(self) -> bool:
        """Whether watching costs no more than it may."""
        return self.watched - self.plain <= max(MOST_SHARE * self.plain, MOST_SECONDS)

    def __str__(self) -> str:
        bits = f"{self.results} results, {'the same' if self.same else 'OTHER'} {self.compared}"
        more = self.watched - self.plain
        cost = f"{self.plain:.1f} s and {more:+.2f} s ({100 * more / self.plain:+.0f}%)"
        return f"{self.name:18} {self.calls:6} calls  {bits:32} {cost}{'' if self.is_small else '  TOO MUCH'}"


def measured(python: Path, script: Path, name: str, times: int, runs: int) -> Cost:
    """Run a script with and without watching.

    Args:
        python: the interpreter.
        script: the script.
        name: what it is called in the table.
        times: how often it runs in a process.
        runs: processes of each kind whose CPU seconds are measured.
    """
    seconds: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)

        def run(watched: bool, *words: str) -> str:
            calls = folder / "calls"
            calls.mkdir(exist_ok=True)
            env = (folders.environment(calls) if watched else dict(os.environ)) | QUIET | {"PYTHONSAFEPATH": "1"}
            command = [str(python), "-m", "gradgate.suites.gallery.census.cost", "--run", str(script.resolve())]
            before = children_cpu()
            ran = subprocess.run(
                [*command, "--times", str(times), *words],
                cwd=folder,
                env=env,
                capture_output=True,
                text=True,
                check=False,
            )
            if ran.returncode:
                raise RuntimeError(f"{name}: {ran.stderr[-500:]}")
            seconds[watched].append(children_cpu() - before)
            return ran.stdout.splitlines()[-1]

        plain, watched = run(False, "--hash"), run(True, "--hash")
        calls = sum(call.count + call.others for call in results.read(folder / "calls")[0])
        seconds = {False: [], True: []}
        for number in range(2 * runs):
            run(number % 2 == 1)
    number = int(plain.partition(" ")[0])
    unwatched, slowed = (statistics.median(seconds[one]) for one in (False, True))
    return Cost(name, number, plain == watched, calls, unwatched, slowed)


def children_cpu() -> float:
    """CPU seconds of the processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Results:
    """A hash of every result of the program that runs."""

    def __init__(self) -> None:
        self.number, self.digest = 0, hashlib.sha256()

    def add(self, array: Any, name: str) -> None:
        """Add a NumPy array."""
        self.number += 1
        self.digest.update(f"{name} {array.dtype} {array.shape}".encode())
        self.digest.update(array.tobytes())

    def __str__(self) -> str:
        return f"{self.number} {self.digest.hexdigest()}"

    def of_torch(self) -> Any:
        """The scope in which what operators of PyTorch return is added."""
        import torch
        from torch.utils._python_dispatch import TorchDispatchMode
        from torch.utils._pytree import tree_leaves

        found = self
        # Views of memory that nobody has written are results, too: so that memory is filled.
        torch.use_deterministic_algorithms(True, warn_only=True)

        class Every(TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                answer = func(*args, **(kwargs or {}))
                if UNWRITTEN not in func.__name__:
                    for leaf in tree_leaves(answer):
                        if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided and not leaf.is_meta:
                            whole = leaf.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
                            found.add(whole.view(torch.uint8).numpy(force=True), f"{func} {leaf.dtype} {leaf.shape}")
                return answer

        return Every()

    def of_jax(self) -> None:
        """Add what primitives of JAX return, from now on."""
        import jax
        import numpy as np
        from jax._src import core

        trace: Any = core.EvalTrace
        plain = trace.process_primitive

        def process(trace: Any, primitive: Any, args: Any, params: Any) -> Any:
            answer = plain(trace, primitive, args, params)
            for leaf in jax.tree.leaves(answer):
                if isinstance(leaf, jax.Array) and not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.extended):
                    self.add(np.asarray(leaf), primitive.name)
            return answer

        trace.process_primitive = process


def run_script(script: str, times: int, hashed: bool) -> str:
    """Run a script several times in this process; returns the number and the hash of its results, if they are asked."""
    found = Results()
    text = Path(script).read_text(encoding="utf-8")
    if hashed and "jax" in text:
        found.of_jax()
    with found.of_torch() if hashed and "torch" in text else _nothing():
        for _ in range(times):
            runpy.run_path(script, run_name="__main__")
    return str(found)


def _nothing() -> Any:
    import contextlib

    return contextlib.nullcontext()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table and write it; 0 if no result has other bits and nothing costs too much."""
    parser = argparse.ArgumentParser(prog="cost", description="What watching costs, and whether it changes a result.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="packages of the census (default: all)")
    parser.add_argument("--times", type=int, default=20, help="how often a script runs in a process (default 20)")
    parser.add_argument("--runs", type=int, default=3, help="processes of each kind that are measured (default 3)")
    parser.add_argument(
        "--report", type=Path, default=Path("report/census_cost.json"), help="where the table is written"
    )
    parser.add_argument("--environments", type=Path, default=Path(".nox/census"), help="where environments are made")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--hash", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.run:
        print(run_script(given.run, given.times, given.hash))
        return 0
    rows, failed = [], False
    for library in chosen(given.names, FOLDER, None):
        try:
            python = made(library, given.environments.resolve()).python
            rows.append(measured(python, library.path, library.name, given.times, given.runs))
            print(rows[-1], flush=True)
        except (CannotInstall, RuntimeError) as error:
            failed = True
            print(error, flush=True)
    given.report.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(given.report, json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return int(failed or not all(row.same and row.is_small for row in rows))


if __name__ == "__main__":
    sys.exit(main())
