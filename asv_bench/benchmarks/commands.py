"""What an author waits for: ``gradgate verify`` and ``gradgate gate`` on one method of their own, twice.

CPU time is given over that of importing the framework, and what the second run does again is a count. Neither depends
much on the machine.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common import on_host, track
from gradgate.references.contract import installed

EXAMPLES = 12
METHODS = {
    "jax": "import jax\n\n\ndef mine(problem):\n    return jax.value_and_grad(problem.loss)(problem.params)\n",
    "torch": "import torch\n\n\ndef mine(problem):\n"
    "    grads, loss = torch.func.grad_and_value(problem.loss)(problem.params)\n    return loss, grads\n",
}
"""Framework -> mine.py: plain backprop, so that nothing but the judging is measured."""
SETTINGS = """[tool.gradgate]
profiles = ["cpu"]
examples = {examples}
[[tool.gradgate.methods]]
target = "mine.py:mine"
family = "state_space"
framework = "{framework}"
"""


class Commands:
    """Run a command twice in a scratch repository with one method; nothing is kept before the first run."""

    params = (("verify", "gate"), tuple(METHODS))
    param_names = ("command", "framework")
    timeout = 1800

    def setup_cache(self) -> dict[str, dict[str, float]]:
        """Run all commands; the benchmarks only look up the figures."""
        on_host()
        return {
            f"{command} {framework}": measured(command, framework)
            for command in self.params[0]
            for framework in METHODS
            if installed(framework)
        }

    @track("× import")
    def track_first(self, found: dict[str, dict[str, float]], command: str, framework: str) -> float:
        """CPU time of the first run, relative to that of importing the framework."""
        return figure(found, command, framework, "first")

    @track("× import")
    def track_again(self, found: dict[str, dict[str, float]], command: str, framework: str) -> float:
        """CPU time of the second run, relative to that of importing the framework."""
        return figure(found, command, framework, "again")

    @track("claims and figures")
    def track_done_again(self, found: dict[str, dict[str, float]], command: str, framework: str) -> float:
        """Claims judged and figures measured again by the second run, although nothing has changed."""
        return figure(found, command, framework, "done_again")


def figure(found: dict[str, dict[str, float]], command: str, framework: str, name: str) -> float:
    """A measured figure.

    Raises:
        NotImplementedError: the framework is not installed; asv then skips the benchmark.
    """
    if not installed(framework):
        raise NotImplementedError(f"{framework} is not installed")
    return found[f"{command} {framework}"][name]


def measured(command: str, framework: str) -> dict[str, float]:
    """The figures of one command on one method."""
    with tempfile.TemporaryDirectory(prefix="gradgate-bench-") as name:
        folder = Path(name)
        project, out = folder / "project", folder / "out.json"
        project.mkdir()
        (project / "mine.py").write_text(METHODS[framework])
        (project / "pyproject.toml").write_text(SETTINGS.format(examples=EXAMPLES, framework=framework))
        identity = ("-c", "user.name=Bench", "-c", "user.email=bench@example.org", "-c", "commit.gpgsign=false")
        for words in (["init", "--quiet"], ["add", "--all"], [*identity, "commit", "--quiet", "--message", "base"]):
            subprocess.run(["git", *words], cwd=project, check=True)
        words = ["gate", "--base", "HEAD"]
        if command == "verify":
            words = ["verify", "mine.py:mine", "--family", "state_space", "--framework", framework]
            words += ["--examples", str(EXAMPLES)]
        fresh = {"GRADGATE_CACHE": str(folder / "kept"), "JAX_COMPILATION_CACHE_DIR": str(folder / "xla")}
        run = [sys.executable, "-m", "gradgate.suites.cli", *words, "--json", str(out)]
        imported = cpu([sys.executable, "-c", f"import {framework}"], project, fresh)
        first, again = cpu(run, project, fresh) / imported, cpu(run, project, fresh) / imported
        return {"first": first, "again": again, "done_again": done_again(json.loads(out.read_text()))}


def done_again(document: dict[str, Any]) -> int:
    """How many claims and figures a second run did again."""
    if "verdicts" in document:
        return sum(not verdict["reused"] for verdict in document["verdicts"])
    claims, cells = document["claims"], document["cells"]
    return int(claims["judged"] - claims["reused"] + 2 * cells["measured"] - cells["reused"])


def cpu(words: list[str], folder: Path, fresh: dict[str, str]) -> float:
    """CPU seconds of a process and of all that it waited for."""

    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = spent()
    subprocess.run(words, cwd=folder, env={**os.environ, **fresh}, capture_output=True, check=True)
    return spent() - before
