"""The gallery's entries of a framework as further cells: a library that cannot be installed costs its own row only."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gradgate.references.contract import UsageError
from gradgate.suites.gallery.metadata import FOLDER, Library, paths, read
from gradgate.suites.gate.overlay import Overlay
from gradgate.suites.releases import measuring
from gradgate.suites.releases.cells import PREFIX
from gradgate.suites.releases.environments import Release


@dataclass(frozen=True)
class Subject:
    """What is measured in one process.

    Attributes:
        overlay: the files that the process imports.
        rows: the cells.
        needs: what pip installs for it besides the release.
        of_gradgate: whether these are the references of gradgate itself.
    """

    overlay: Overlay
    rows: Sequence[dict[str, Any]]
    needs: tuple[str, ...] = ()
    of_gradgate: bool = True


def entries(framework: str, folder: Path = FOLDER) -> list[Library]:
    """The gallery's libraries of a framework."""
    found = [read(path) for path in paths(folder).values()]
    return [library for library in found if library.framework == framework]


def subject(
    library: Library, overlay: Overlay, place: Path, python: Path, release: Release, profiles: Sequence[str]
) -> Subject:
    """The cells of one library, as its file declares its pairs.

    Args:
        library: the library.
        overlay: the files of gradgate.
        place: a folder for the library's project.
        python: the interpreter of a release, in which the library is installed to list its pairs.
        release: this release.
        profiles: where the pairs are measured.

    Raises:
        UsageError: the library cannot be installed or imported; says why.
    """
    project = place / library.name
    project.mkdir(parents=True)
    file = f"{PREFIX}{library.path.name}"
    (project / file).write_bytes(library.path.read_bytes())
    (project / "pyproject.toml").write_text(f"[tool.gradgate]\npairs = {json.dumps([file])}\n")
    over = Overlay(project, (overlay.paths[0], project))
    needs = needed(library)
    install(python, release, needs)
    return Subject(over, measuring.cells(over, release.framework, profiles, python), needs, of_gradgate=False)


def needed(library: Library) -> tuple[str, ...]:
    """What pip installs for a library: what its file names, or else the version of this environment.

    Raises:
        UsageError: its file names nothing, because this environment should have it, and it has not.
    """
    if library.dependencies or library.judges == library.framework:
        return library.dependencies
    try:
        return (f"{library.judges}=={version(library.judges)}",)
    except PackageNotFoundError:
        raise UsageError(f"{library.judges} is not installed here, so its version is not known") from None


def install(python: Path, release: Release, needs: Sequence[str]) -> None:
    """Add packages to the environment of a release, whose framework stays as it is.

    Raises:
        UsageError: they need another release; pip's last line says which.
    """
    if not needs:
        return
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--no-cache-dir"]
    pinned = f"{release.framework}=={release.version}"
    ran = subprocess.run([*command, *needs, pinned], capture_output=True, text=True, check=False)
    if ran.returncode:
        said = [line for line in ran.stderr.splitlines() if line.startswith("ERROR")] or ["pip says nothing"]
        raise UsageError(f"{', '.join(needs)} cannot be installed with {release.name}: {' '.join(said)[:300]}")


def unlisted(library: Library, profile: str) -> dict[str, Any]:
    """The row of a library whose pairs cannot be listed."""
    return {
        "family": library.name,
        "method": "all",
        "framework": library.framework,
        "profile": profile,
        "origin": "",
        "spec": {},
        "options": {},
        "target": "",
    }
