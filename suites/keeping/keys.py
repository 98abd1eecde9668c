"""The hash under which a figure or a verdict is kept: of every file, version and setting that it depends on."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import json
import os
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import gradgate
import gradgate.hw_profiles
import gradgate.references
import gradgate.suites
from gradgate.hw_profiles.cache import Cache
from gradgate.hw_profiles.fingerprint import fingerprint
from gradgate.hw_profiles.profile import load
from gradgate.hw_profiles.work import COUNTING
from gradgate.references.loading import is_path
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.verdict import Task
from gradgate.suites.keeping.sources import Closure, Imports, Parsed, has_distribution
from gradgate.suites.workers.worker import environment

MEASURING = ("gradgate.suites.measuring.cells", "gradgate.hw_profiles.sweep", "gradgate.hw_profiles.torch_memory")
"""Modules that measure a figure."""
JUDGING = (
    "gradgate.suites.workers.worker",
    *(f"gradgate.suites.pairs.{name}" for name in ("pair", "modules", "draws", "laws", "quick", "in_jax", "in_torch")),
)
"""Modules that judge a claim: the worker, which imports every check, and the parts of pairs, which are imported by
name."""
TOLD = ("XLA_", "JAX_", "PYTORCH_", "MKL_", "OMP_", "GRADGATE_ENVIRONMENT")
"""Prefixes of environment variables that change what a framework computes and that no framework sets itself. The last
one is the hash of the environment in which the gallery judges a library."""
SITES = ("site-packages", "dist-packages")
"""Names of folders of installed packages."""


class Keys:
    """Hashes over the files that modules import, what is installed, and further facts.

    Attributes:
        imports: follows the imports.
        fingerprint: the fingerprint of the toolchain.
    """

    def __init__(self, imports: Imports, data: Mapping[str, str] | None = None) -> None:
        self.imports, self.fingerprint = imports, fingerprint()
        self._data = dict(data or {})
        self._digests: dict[tuple[str, ...], str] = {}
        self._closures: dict[tuple[str, ...], Closure] = {}
        self._profiles: dict[str, str] = {}
        self._surroundings = surroundings()

    @classmethod
    def here(cls, depends: Iterable[str] = ()) -> Keys:
        """The keys of the methods that this process and its workers would import in this folder.

        Args:
            depends: globs of files in this folder, besides imported modules, that change what methods compute.
        """
        mounts = {
            "gradgate": Path(str(gradgate.__file__)).parent,
            "gradgate.suites": Path(gradgate.suites.__path__[0]),
            "gradgate.references": Path(gradgate.references.__path__[0]),
            "gradgate.hw_profiles": Path(gradgate.hw_profiles.__path__[0]),
        }
        paths = [Path.cwd(), *(Path(p) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p)]
        parsed = Parsed(Cache().folder.parent / "imports.json")
        return cls(Imports(paths, Path.cwd(), mounts, _elsewhere, parsed), data_of(Path.cwd(), depends))

    def digest(self, judges: Iterable[str], places: Iterable[str], *facts: Any) -> str:
        """One hash over the modules that judge, the modules and files of a method, and facts of plain JSON types."""
        starts = tuple(sorted({*judges, *places}))
        if starts not in self._digests:
            self._closures[starts] = self.imports.closure(starts)
            self._digests[starts] = self._closures[starts].digest(self.fingerprint, self._data)
        text = json.dumps([self._digests[starts], COUNTING, *facts], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    def unchanged(self, judges: Iterable[str], places: Iterable[str]) -> bool:
        """Whether every file behind `digest` is unchanged since it was read. A run takes minutes, so it may change."""
        closure = self._closures.get(tuple(sorted({*judges, *places})))
        return closure is not None and self.imports.unchanged(closure.files)

    def verdict(self, places: Iterable[str], task: Task, run: Run) -> str:
        """The key of a verdict.

        Args:
            places: modules and files of the method, from `sources.strings_of`.
            task: the claim.
            run: the settings with which it is judged.
        """
        facts = [dataclasses.asdict(task), dataclasses.asdict(run), self._profile(task.profile), self._surroundings]
        return self.digest(JUDGING, places, "verdict", *facts)

    def figure(self, places: Iterable[str], cell: Mapping[str, Any]) -> str:
        """The key of a measured cell.

        Args:
            places: modules and files of the method, from `sources.strings_of`.
            cell: its fields, as `MethodCell.to_dict` gives them.
        """
        facts = [cell, self._profile(cell["profile"]), self._surroundings]
        return self.digest(MEASURING, places, "figure", *facts)

    def _profile(self, name: str) -> str:
        if name not in self._profiles:
            self._profiles[name] = load(name).digest()
        return self._profiles[name]

    def place(self, target: str) -> str | None:
        """The module or file of a target, with or without a name after a colon; None if it cannot be found.

        A folder that is a package is mounted under the folder's name, as `references.loading` does.
        """
        place = target.rpartition(":")[0] if ":" in target else target
        if is_path(place) and not place.endswith(".py"):
            folder = Path(place).resolve()
            self.imports.mount(folder.name, folder)
            place = folder.name
        found = self.imports.file(place) is not None
        return place if found or (not is_path(place) and has_distribution(place.partition(".")[0])) else None


def data_of(project: Path, patterns: Iterable[str]) -> dict[str, str]:
    """Hashes of the files of a project that match the globs."""
    found = sorted({path for pattern in patterns for path in project.glob(pattern) if path.is_file()})
    return {str(path.relative_to(project)): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def surroundings() -> dict[str, str]:
    """The environment variables that a worker inherits and that change what a framework computes."""
    set_anyway = environment().keys() - {"XLA_FLAGS"}
    return {
        name: value for name, value in sorted(os.environ.items()) if name.startswith(TOLD) and name not in set_anyway
    }


def _elsewhere(name: str) -> Path | None:
    """The folder or file of a top-level module whose text is hashed: one that no installed version identifies."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None:
        return None
    inside = list(spec.submodule_search_locations or ())
    place = Path(inside[0]) if inside else Path(spec.origin or "")
    installed = {Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib", "stdlib", "platstdlib")}
    installed |= {Path(path).resolve() for path in sys.path if Path(path).name in SITES}  # added by a .pth file
    if has_distribution(name) and any(place.resolve().is_relative_to(folder) for folder in installed):
        return None
    return place if place.exists() and place != Path() else None
