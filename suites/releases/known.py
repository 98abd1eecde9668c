"""Known regressions as a test of the gate: what a thread reports, what is measured here, and caught or why not.

A row with a pair is run through the gate, ``--base HEAD --base-python`` of the older release. Other rows are compiled
by `regressions.probe` under both releases, and the gate's rule compares the figures: any rise counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from gradgate.references.contract import UsageError
from gradgate.suites.console.files import write_atomically
from gradgate.suites.gate.overlay import Overlay
from gradgate.suites.releases import environments
from gradgate.suites.releases.environments import Release
from gradgate.suites.schemas.checking import checked

FOLDER = Path(__file__).parent / "regressions"
ROWS, MEASURED = "rows.toml", "measured.json"
LIMIT = 900.0
"""Seconds for one row under one release."""


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One public regression.

    Attributes:
        name: the program in `regressions.programs` or the pair in `regressions.gated`.
        thread: ``owner/repository#number``.
        reported: what the thread says, in a sentence with its figures and releases.
        way: ``gate``, ``probe``, or ``none`` if nothing can be compiled here.
        profile: the profile it is compiled for.
        before, after: the two releases of JAX; "" if nothing can be compiled.
        cause: why the gate sees nothing, or why the releases or the program differ from the thread's; "" otherwise.
    """

    name: str
    thread: str
    reported: str
    way: Literal["gate", "probe", "none"]
    profile: str = ""
    before: str = ""
    after: str = ""
    cause: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError for a row without figures and without a cause."""
        if self.way == "none" and not self.cause:
            raise ValueError("nothing is compiled, so cause has to say why")

    @property
    def key(self) -> str:
        """The name of the row's figures."""
        return f"{self.thread} {self.name} {self.profile} {self.before} {self.after} {self.way}"

    @property
    def url(self) -> str:
        """The thread's address."""
        place, _, number = self.thread.partition("#")
        return f"https://github.com/{place}/issues/{number}"


def rows(folder: Path = FOLDER) -> list[Row]:
    """The declared rows.

    Raises:
        UsageError: a row lacks a key, or has one that does not exist, or neither figures nor a cause is possible.
    """
    tables = tomllib.loads((folder / ROWS).read_text(encoding="utf-8"))["regression"]
    return [checked(table, Row, f"{ROWS}: regression {place}") for place, table in enumerate(tables, 1)]


def measured(folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """Key of a row -> its figures: ``before`` and ``after``, temporary bytes, and ``verdict`` of the gate."""
    path = folder / MEASURED
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def run(chosen: Sequence[str], environments_folder: Path, root: Path, folder: Path = FOLDER) -> list[str]:
    """Measure rows, all or those with these names, and keep the figures; returns a line for each.

    Raises:
        UsageError: a name is unknown, or a release cannot be installed.
    """
    every = rows(folder)
    if wrong := [name for name in chosen if name not in {row.name for row in every}]:
        raise UsageError(f"no regression is called {', '.join(wrong)}; {ROWS} has {', '.join(r.name for r in every)}")
    told = []
    for row in every:
        if row.way == "none" or (chosen and row.name not in chosen):
            continue
        extras = ("jax", "cuda") if row.profile != "cpu" else ("jax",)
        pythons = [
            environments.make(Release.of(f"jax-{version}"), environments_folder, root, extras)
            for version in (row.before, row.after)
        ]
        found = (_by_gate if row.way == "gate" else _by_probe)(row, pythons, root)
        kept = measured(folder) | {row.key: found}
        write_atomically(folder / MEASURED, json.dumps(kept, indent=1, sort_keys=True) + "\n")
        told.append(f"{row.thread} {row.name}: {found['before']} → {found['after']}, {found['verdict']}")
    return told


def verdict(before: int | None, after: int | None) -> str:
    """What the gate's rule says about two figures: any rise fails."""
    if before is None or after is None:
        return "not measured"
    return "RISE" if after > before else "fell" if after < before else "the same"


def table(folder: Path = FOLDER) -> str:
    """The rows as a Markdown section."""
    figures = measured(folder)
    told = [
        "## Known regressions\n",
        "Public reports of memory that a release of JAX or XLA raised, as programs of our own with the same structure. "
        "Figures are temporary bytes. *gate*: run through `gradgate gate --base HEAD --base-python`. *probe*: compiled "
        "by a script, because gradgate does not support the older release; the gate's rule compares the figures.\n",
        "| thread | reported | here | from → to | verdict |",
        "|---|---|---|---|---|",
    ]
    for row in rows(folder):
        found = figures.get(row.key, {})
        told.append(
            f"| [{row.thread}]({row.url}) | {row.reported} | {_here(row)} | {_pair(found)} | {_said(row, found)} |"
        )
    return "\n".join([*told, ""])


def _here(row: Row) -> str:
    if row.way == "none":
        return "–"
    return f"`{row.name}`, {row.profile}, {row.before} → {row.after}, {row.way}"


def _pair(found: Mapping[str, Any]) -> str:
    if not found:
        return "–"
    return " → ".join("–" if value is None else f"{value:,}" for value in (found["before"], found["after"]))


def _said(row: Row, found: Mapping[str, Any]) -> str:
    caught = found.get("verdict") == "RISE"
    return " ".join(filter(None, ["**caught.**" if caught else "not caught.", row.cause]))


def _by_probe(row: Row, pythons: Sequence[Path], root: Path) -> dict[str, Any]:
    """Compile a program under both releases, each in a process of its own, and compare."""
    from gradgate.hw_profiles.compiler_main import gpu_target
    from gradgate.hw_profiles.profile import load

    figures: list[int | None] = []
    reasons: list[str] = []
    profile = load(row.profile)
    with tempfile.TemporaryDirectory(prefix="gradgate-known-") as place:
        target = Path(place) / "target.txt"
        if profile.compiler == "cuda":
            target.write_text(gpu_target(profile))
        for python in pythons:
            command = [str(python), str(FOLDER / "probe.py"), row.name, *([str(target)] if target.is_file() else [])]
            ran = subprocess.run(
                command, cwd=place, capture_output=True, text=True, check=False, timeout=LIMIT, env=_clean()
            )
            lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]
            ended = {"reason": f"the process ended with status {ran.returncode}"}
            found: dict[str, Any] = json.loads(lines[-1]) if lines else ended
            figures.append(found.get("temp_bytes"))
            reasons.append(found.get("reason", ""))
    return {
        "before": figures[0],
        "after": figures[1],
        "verdict": verdict(figures[0], figures[1]),
        "reason": "; ".join(filter(None, reasons)),
    }


def _by_gate(row: Row, pythons: Sequence[Path], root: Path) -> dict[str, Any]:
    """Run the gate in a repository that has only the pairs, with the older release for the base."""
    with tempfile.TemporaryDirectory(prefix="gradgate-known-") as folder:
        place = Path(folder) / "project"
        place.mkdir()
        (place / "gated.py").write_bytes((FOLDER / "gated.py").read_bytes())
        (place / "pyproject.toml").write_text(
            f'[tool.gradgate]\npairs = ["gated.py:{row.name}"]\nprofiles = ["{row.profile}"]\nexamples = 1\n'
        )
        who = ("-c", "user.name=gradgate", "-c", "user.email=gradgate@localhost")
        for command in (("init", "-q"), ("add", "."), (*who, "commit", "-q", "-m", "pairs")):
            subprocess.run(["git", *command], cwd=place, check=True, capture_output=True)
        overlay = Overlay.make(Path(folder) / "import", root, judge=root)
        options = ("--base", "HEAD", "--base-python", str(pythons[0]), "--jobs", "1", "--json", "gate.json")
        ran = subprocess.run(
            [str(pythons[1]), "-m", "gradgate.suites.cli", "gate", *options],
            cwd=place,
            check=False,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            env=_clean() | overlay.environment(),
        )
        if not (place / "gate.json").is_file():
            said = (ran.stderr.strip().splitlines() or ["nothing"])[-1]
            return {"before": None, "after": None, "verdict": "not measured", "reason": said}
        document = json.loads((place / "gate.json").read_text())
    return of_gate(document)


def of_gate(document: Mapping[str, Any]) -> dict[str, Any]:
    """The temporary bytes of both sides, and the verdict, from the gate's document."""
    moved = [f for f in document["findings"] if f["quantity"] == "temp_bytes" and f["kind"] in ("rise", "fall")]
    failed = [f["sentence"] for f in document["findings"] if f["kind"] in ("failed", "unmeasured")]
    if moved:
        before, after = int(moved[0]["base"]), int(moved[0]["head"])
        return {"before": before, "after": after, "verdict": verdict(before, after), "reason": ""}
    return {
        "before": None,
        "after": None,
        "verdict": "not measured" if failed else "the same",
        "reason": "; ".join(failed),
    }


def _clean() -> dict[str, str]:
    """The environment without this process's import path: an older release must not see this one's packages."""
    return {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
