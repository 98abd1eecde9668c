"""An environment for a release: the framework, its compilers for absent devices, and what gradgate itself needs."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradgate.references.contract import UsageError

FRAMEWORKS = {"jax": ("jax", "tpu", "cuda"), "torch": ("torch",)}
"""Framework -> the extras of pyproject.toml that its environment needs."""
_VERSION = re.compile(r"\d+(\.\d+)*(\+\w+)?")


@dataclass(frozen=True, order=True)
class Release:
    """A release of a framework; releases of one framework are ordered by their version.

    >>> Release.of("jax-0.9.2") < Release.of("jax-0.10.2")
    True
    """

    framework: str
    parts: tuple[int, ...]
    version: str

    @classmethod
    def of(cls, name: str) -> Release:
        """The release of a name such as ``jax-0.9.2``.

        Raises:
            UsageError: the framework is unknown, or the version is none.
        """
        framework, _, version = name.partition("-")
        if framework not in FRAMEWORKS:
            raise UsageError(f"unknown framework {framework!r}; legal: {', '.join(FRAMEWORKS)}")
        if not _VERSION.fullmatch(version):
            raise UsageError(f"{version!r} is no version of {framework}; give one like 0.9.2")
        return cls(framework, tuple(int(part) for part in version.partition("+")[0].split(".")), version)

    @property
    def name(self) -> str:
        """``framework-version``."""
        return f"{self.framework}-{self.version}"


def requirements(project: Mapping[str, Any], release: Release, extras: Sequence[str] = ()) -> list[str]:
    """What to install for a release: the dependencies of gradgate, and its extras with the framework pinned.

    Args:
        project: the ``[project]`` table of gradgate's pyproject.toml.
        release: the release; it may be older than gradgate's range.
        extras: names of extras; by default those of `FRAMEWORKS`.
    """
    wanted = list(project["dependencies"])
    for extra in extras or FRAMEWORKS[release.framework]:
        wanted += [need for need in project["optional-dependencies"][extra] if not need.startswith("gradgate[")]
    ranged = re.compile(rf"{release.framework}[<>=]")
    return [
        *(need for need in dict.fromkeys(wanted) if not ranged.match(need)),
        f"{release.framework}=={release.version}",
    ]


def python_of(folder: Path) -> Path:
    """The interpreter of an environment."""
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def make(release: Release, folder: Path, root: Path, extras: Sequence[str] = ()) -> Path:
    """The interpreter of a release's environment, which is installed if it is not complete.

    Args:
        release: the release.
        folder: the environments' folder.
        root: the folder of gradgate's pyproject.toml.
        extras: as for `requirements`.

    Raises:
        UsageError: pip cannot install the release; its last line says why.

    Cost: about a minute and 1.4 GB for a release of JAX with its compilers, for PyTorch up to 6 GB, depending on the
    build that pip's index offers; nothing if the environment is there.
    """
    place = folder / release.name
    python, stamp = python_of(place), place / "installed"
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = requirements(project, release, extras)
    if stamp.is_file() and set(wanted) <= set(stamp.read_text().splitlines()):
        return python
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--no-cache-dir"]
    ran = subprocess.run([*pip, *wanted], capture_output=True, text=True, check=False)
    if ran.returncode:
        said = [line for line in ran.stderr.splitlines() if line.startswith("ERROR")] or ran.stderr.splitlines()[-1:]
        raise UsageError(f"{release.name} cannot be installed: {' '.join(said) or 'pip says nothing'}")
    stamp.write_text("\n".join(wanted))
    return python
