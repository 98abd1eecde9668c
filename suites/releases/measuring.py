"""Measures one release: the gate's process runs in the release's environment, on the files of a commit.

Figures are kept under a hash of everything that they depend on, the release included. So a run that was stopped goes
on where it ended, and a change to one class measures that class again.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradgate.hw_profiles.cache import VARIABLE
from gradgate.references.contract import UsageError
from gradgate.suites.gate.compare import figures
from gradgate.suites.gate.git import Repository
from gradgate.suites.gate.overlay import Overlay
from gradgate.suites.gate.process import SideProcess

ANSWERS = ("measured", "too_large")
LIMIT = 300.0
"""Seconds for one compilation."""


@dataclass(frozen=True)
class Found:
    """One cell under one release.

    Attributes:
        row: the cell.
        figures: quantity -> value; {} if there is none.
        reason: why there is none.
        versions: distribution -> version.
        reused: whether the figures were kept from an earlier run.
    """

    row: Mapping[str, Any]
    figures: Mapping[str, int]
    reason: str
    versions: Mapping[str, str]
    reused: bool


@contextlib.contextmanager
def tree(root: Path, revision: str = "HEAD") -> Iterator[tuple[Overlay, str]]:
    """The files of a revision in a temporary folder, as a process imports them, and the commit.

    Raises:
        UsageError: the revision is unknown.
    """
    repository = Repository.around(root)
    commit = repository.commit(revision)
    with repository.trees([commit]) as (place, tops):
        yield Overlay.make(place / "import", tops[commit], judge=tops[commit]), commit


def cells(
    overlay: Overlay, framework: str, profiles: Sequence[str], python: Path = Path(sys.executable)
) -> list[dict[str, Any]]:
    """The cells of every method of a framework, as the files of an overlay declare them.

    Raises:
        UsageError: they cannot be listed; says why.
    """
    command = [str(python), "-m", "gradgate.suites.releases.cells", framework, ",".join(profiles)]
    quiet = overlay.environment() | {"JAX_PLATFORMS": "cpu"}
    ran = subprocess.run(command, cwd=overlay.project, env=quiet, capture_output=True, text=True, check=False)
    if ran.returncode:
        said = (ran.stderr.strip().splitlines() or ["nothing"])[-1]
        raise UsageError(f"the cells of {framework} in {overlay.project.name} cannot be listed: {said}")
    return list(json.loads(ran.stdout))


def measure(
    python: Path,
    overlay: Overlay,
    rows: Sequence[Mapping[str, Any]],
    who: str,
    jobs: int = 1,
    again: bool = False,
    own: bool = True,
) -> Iterator[Found]:
    """Measure cells in the environment of a release; a cell that fails is a result with a reason.

    Args:
        python: the interpreter of the environment.
        overlay: the files to import.
        rows: the cells.
        who: the name of the release in messages.
        jobs: how many processes measure at once.
        again: compile again, in a new process and with an empty cache, whatever is kept.
        own: whether the cells are of gradgate's own references.

    Raises:
        Unmeasurable: the process could not go on.
    """
    request = {
        "own": own,
        "base": False,
        "describe": False,
        "jobs": jobs,
        "limit": LIMIT,
        "timeout": 60.0,
        "paths": [str(path) for path in overlay.paths],
        "measure": list(rows),
    }
    with _cache(again), SideProcess(str(python), overlay, who) as process:
        for found in (event["figure"] for event in process.ask(request) if "figure" in event):
            known = found["status"] in ANSWERS
            values = {name: value for name, value in _values(found).items() if value is not None} if known else {}
            versions = {k: v for k, v in found.get("fingerprint", {}).items() if not k.startswith(("profile", "flag"))}
            reason = "" if values else f"{found['status']}: {found['reason']}"
            yield Found(found["cell"], values, reason, versions, found.get("reused", False))


def _values(found: Mapping[str, Any]) -> dict[str, Any]:
    """The figures that a history keeps."""
    gated = figures(found)
    return {"required_bytes": found["required_bytes"], "temp_bytes": gated.get("temp_bytes"), "flops": gated["flops"]}


@contextlib.contextmanager
def _cache(fresh: bool) -> Iterator[None]:
    """An empty cache for the processes that are started inside, if it is to be fresh."""
    if not fresh:
        yield
        return
    before = os.environ.get(VARIABLE)
    with tempfile.TemporaryDirectory(prefix="gradgate-again-") as folder:
        os.environ[VARIABLE] = folder
        try:
            yield
        finally:
            os.environ.pop(VARIABLE)
            if before is not None:
                os.environ[VARIABLE] = before
