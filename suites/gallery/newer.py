"""What came out since the pins were set: ``nox -s newer [-- NAME…]``, or this module.

Of each library, pip is asked for the newest version. It is judged as the library file judges the pinned one, and what
changed is written to ``report/newer.md``, as the text of an issue. Of JAX and PyTorch it says the newest version within
the range of their extra, which ``nox -s ends`` judges, and the newest of all.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gradgate.references.errors import UsageError
from gradgate.suites.console.files import write_atomically
from gradgate.suites.gallery import declared, judge, results
from gradgate.suites.gallery.environment import last_words, run
from gradgate.suites.gallery.metadata import FOLDER, Library, chosen, read

ROOT = Path(__file__).parents[2]
ASKING = 300.0
"""Seconds after which pip's answer is not waited for."""
FRAMEWORKS = ("jax", "torch")
PIN = re.compile(r"([A-Za-z0-9._-]+)==([\w.+!-]+)")


class CannotAsk(Exception):
    """pip does not say what the newest version is; the message says why."""


@dataclasses.dataclass(frozen=True)
class Newer:
    """A newer version than the one that is pinned, and what it changed, as lines of an issue.

    Attributes:
        name: the distribution.
        old, new: the versions.
        lines: what there is to say.
    """

    name: str
    old: str
    new: str
    lines: tuple[str, ...] = ()


def newest(requirement: str) -> str:
    """The newest version that pip would install here.

    Raises:
        CannotAsk: says why.
    """
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--ignore-installed", "--quiet"]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        ran = run([*command, "--disable-pip-version-check", "--report", str(report), requirement], ASKING)
        if ran.status != 0:
            raise CannotAsk(f"{requirement}: {last_words(ran.output)}")
        return str(json.loads(report.read_text(encoding="utf-8"))["install"][0]["metadata"]["version"])


def of_library(library: Library, settings: judge.Settings) -> Newer | None:
    """The newest version of a library, judged; None if the pinned one is the newest, or if nothing is pinned by number.

    Raises:
        CannotAsk: as in `newest`.
        UsageError: as in `judge.row_of`.
    """
    pin = PIN.fullmatch(library.dependencies[0]) if library.dependencies else None
    if pin is None or (new := newest(pin[1])) == pin[2]:
        return None
    folder = settings.report / "newer"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    text = library.path.read_text(encoding="utf-8").replace(f'"{pin[0]}"', f'"{pin[1]}=={new}"', 1)
    (folder / library.path.name).write_text(text, encoding="utf-8")
    settings = dataclasses.replace(settings, report=folder / "report")
    row = judge.row_of(read(folder / library.path.name), declared.findings(settings.folder, {library.name}), settings)
    known = {one["name"]: one for one in results.stored(settings.folder)}
    return Newer(pin[1], pin[2], new, tuple(changes(known.get(library.name, {}), row)))


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What differs between the rows of two versions, in words: verdicts of each pair, and what is not as declared."""
    if new["state"] != judge.JUDGED:
        return [f"{new['state']}: {new['reason']}"]
    lines = []
    for name in dict.fromkeys((*old.get("pairs", {}), *new["pairs"])):
        was, now = (side.get("pairs", {}).get(name, {}).get("verdicts", {}) for side in (old, new))
        if was != now:
            lines.append(f"`{name}`: {_counted(was)} → {_counted(now)}")
    return [*lines, *judge.faults(new)] or ["every verdict is the same"]


def _counted(verdicts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in verdicts.items()) or "not judged"


def of_framework(name: str, project: Mapping[str, Any]) -> Newer | None:
    """The newest version of a framework within its range, and the newest of all; None if both are the pinned one.

    Args:
        name: ``jax`` or ``torch``.
        project: pyproject.toml.

    Raises:
        CannotAsk: as in `newest`.
    """
    ranged = project["project"]["optional-dependencies"][name][0]
    pins = [pin[2] for group in project["dependency-groups"].values() for one in group if (pin := _pin(one, name))]
    within, every = newest(ranged), newest(name)
    if pins == [within] == [every]:
        return None
    lines = [f"within the range `{ranged}`: {within}; `nox -s ends -- {name}` judges it"]
    if within != every:
        lines.append(f"{every} is out of the range: try it, and move the end of the range")
    return Newer(name, ", ".join(pins), within, tuple(lines))


def _pin(requirement: Any, name: str) -> re.Match[str] | None:
    found = PIN.fullmatch(requirement) if isinstance(requirement, str) else None
    return found if found and found[1] == name else None


def issue(found: Sequence[Newer], unknown: Sequence[str] = ()) -> str:
    """The text of an issue."""
    parts = ["Versions that came out since the pins were set, and what they changed.\n"]
    for one in found:
        lines = "\n".join(f"- {line}" for line in one.lines)
        parts.append(f"## {one.name} {one.old} → {one.new}\n\n{lines}\n")
    if unknown:
        parts.append("## Not known\n\n" + "\n".join(f"- {line}" for line in unknown) + "\n")
    return "\n".join(parts)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="newer", description="Look for newer versions, and judge them.")
    made.add_argument("names", nargs="*", metavar="NAME", help="libraries, jax or torch (default: all)")
    made.add_argument("--examples", type=int, default=12, metavar="N", help="problems per claim (default 12)")
    made.add_argument("--jobs", type=int, default=2, help="worker processes (default 2)")
    made.add_argument("--report", type=Path, default=Path("report"), help="where newer.md is written")
    made.add_argument("--environments", type=Path, default=Path(".nox/newer"), help="where environments are made")
    made.add_argument("--folder", type=Path, default=FOLDER, help="where the library files and findings.toml are")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Look, judge and write.

    Returns:
        0 asked and judged; what is newer stands in ``newer.md`` · 2 of something it is not known · 3 wrong usage.
    """
    given = parser().parse_args(arguments)
    try:
        libraries = [name for name in given.names if name not in FRAMEWORKS]
        asked: list[Library | str] = [*chosen(libraries, given.folder)] if libraries or not given.names else []
    except UsageError as error:
        print(f"newer: {error}", file=sys.stderr)
        return 3
    asked += [name for name in FRAMEWORKS if name in given.names or not given.names]
    settings = judge.Settings(
        given.folder, given.report.resolve(), given.environments.resolve(), given.examples, jobs=given.jobs
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found, unknown = [], []
    for one in asked:
        try:
            newer = of_framework(one, project) if isinstance(one, str) else of_library(one, settings)
        except (CannotAsk, UsageError) as error:
            unknown.append(str(error))
            print(f"? {error}", flush=True)
            continue
        if newer:
            found.append(newer)
            print(f"{newer.name} {newer.old} → {newer.new}: {'; '.join(newer.lines)}", flush=True)
    if found or unknown:
        write_atomically(given.report / "newer.md", issue(found, unknown))
    return 2 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
