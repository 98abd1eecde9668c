"""Which files of which tree ran. Both sides of a comparison import from their own trees, or the gate refuses."""

from __future__ import annotations

import ast
import hashlib
import os
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradgate.suites.gate.guard import INIT, SITES, Given, files_of

Record = Mapping[str, Mapping[str, Any]]
"""``modules``: dotted name -> path, and ``files``: path -> sha256 or None. A path in the side's tree is relative to its
top; another one is absolute."""
EMPTY: Record = {"modules": {}, "files": {}}
NOT_THEIRS = ("gradgate", "__main__", "sitecustomize")
"""Top-level modules that are no part of the project."""
SUBJECT = "gradgate.references"
"""The modules of gradgate that are, in its own repository."""
HOMES = ("", "src", "lib", "python")
"""Folders of a project in which its packages usually lie."""
SOURCES = (
    ".c",
    ".cc",
    ".cpp",
    ".cxx",
    ".cu",
    ".cuh",
    ".h",
    ".hpp",
    ".pyx",
    ".pxd",
    ".f90",
    ".rs",
    ".in",
    ".tmpl",
    ".j2",
    "meson.build",
    "CMakeLists.txt",
    "setup.py",
    "build.py",
    "hatch_build.py",
    "Cargo.toml",
)
"""How the names of files end from which a build makes others."""


def record(tree: Path) -> Record:
    """The modules that this process has imported, without gradgate and the standard library."""
    standard = {os.path.realpath(sysconfig.get_path(kind)) for kind in ("stdlib", "platstdlib")}
    modules, files = {}, {}
    for name, module in sorted(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or not os.path.isabs(path):
            continue
        place = Path(os.path.realpath(path))
        inside = place.is_relative_to(tree)
        if name.partition(".")[0] in NOT_THEIRS and not (inside and name.startswith(SUBJECT)):
            continue
        if any(place.is_relative_to(folder) for folder in standard) and not {*SITES} & {*place.parts}:
            continue
        modules[name] = place.relative_to(tree).as_posix() if inside else str(place)
    own = {name for name, path in modules.items() if not os.path.isabs(path)}
    for name, path in modules.items():
        if name in own or _ancestors(name) & own:
            files[path] = _digest(tree / path)
    return {"modules": modules, "files": files}


def of_readings(readings: Iterable[Mapping[str, Any]], tree: Path, project: Path) -> Record:
    """The modules and files in readings of other processes (`gradgate.hw_profiles.recording`), as in `record`.

    Args:
        readings: what these processes read; paths are relative to the project, or absolute.
        tree: the top of the side's tree.
        project: the project's folder in it.
    """
    modules: dict[str, Any] = {}
    files: dict[str, Any] = {}

    def shown(path: str) -> str:
        place = Path(os.path.normpath(project / path))
        return place.relative_to(tree).as_posix() if place.is_relative_to(tree) else str(place)

    for reading in readings:
        for name, path in reading.get("modules", {}).items():
            if name.partition(".")[0] not in NOT_THEIRS:
                modules[name] = shown(path)
        for name, text in reading.get("judges", {}).items():
            stem = name.replace(".", "/").removeprefix("gradgate/")
            place = next((end for end in (f"{stem}.py", f"{stem}/{INIT}") if (tree / end).is_file()), None)
            if name.startswith(SUBJECT) and place is not None:
                modules[name], files[place] = place, text
        for path, text in reading.get("files", {}).items():
            place = shown(path)
            if not os.path.isabs(place) or place in modules.values():
                files[place] = text or None
    own = {name for name, path in modules.items() if not os.path.isabs(path)}
    apart = {path for name, path in modules.items() if os.path.isabs(path) and not _ancestors(name) & own}
    return {"modules": modules, "files": {path: text for path, text in files.items() if path not in apart}}


def united(records: Iterable[Record]) -> Record:
    """One record of several processes of one side."""
    found: dict[str, dict[str, Any]] = {"modules": {}, "files": {}}
    for one in records:
        for key in found:
            found[key] |= one.get(key, {})
    return found


@dataclass(frozen=True)
class Ran:
    """One side's record, and its tree.

    Attributes:
        record: what its processes imported.
        given: its tree, and the other trees.
        named: modules that its declarations name: functions, references and files of pairs.
    """

    record: Record
    given: Given
    named: frozenset[str] = frozenset()

    @property
    def from_tree(self) -> dict[str, str]:
        """The modules that came from the tree: name -> path in it."""
        return {name: path for name, path in self.record["modules"].items() if not os.path.isabs(path)}

    def misplaced(self) -> dict[str, tuple[str, str]]:
        """Modules that came from elsewhere although the tree holds them: name -> (where from, path in the tree)."""
        held = files_of(self.given.tree)
        tops, imported = {name.partition(".")[0] for name in self.named}, self._imported()
        homes = self._homes(held)
        found = {}
        for name, path in self.record["modules"].items():
            top = name.partition(".")[0]
            if not os.path.isabs(path) or top not in tops | imported:
                continue
            roots = {
                place[: -len(end)]: place for end in _ends(name) for place in held if f"/{place}".endswith(f"/{end}")
            }
            near = [
                place
                for root, place in roots.items()
                if f"{root}{INIT}" not in held and (top in tops or os.path.normpath(root or ".") in homes)
            ]
            if near:
                found[name] = (path, min(near, key=lambda place: (place.count("/"), place)))
        return found

    def built(self) -> dict[str, str]:
        """Modules in the tree's packages that no commit holds, as a build has made them: name -> path."""
        own = self.from_tree.keys()
        modules = self.record["modules"].items()
        return {name: path for name, path in modules if os.path.isabs(path) and _ancestors(name) & own}

    def line(self, place: str, name: str, path: Iterable[str]) -> str:
        """The setting that makes a module come from the tree.

        Args:
            place: its path in the tree.
            name: its name.
            path: what the setting is now.
        """
        end = next(end for end in _ends(name) if f"/{place}".endswith(f"/{end}"))
        root = os.path.relpath(place[: -len(end)] or ".", self.given.project)
        folders = ", ".join(f'"{folder}"' for folder in dict.fromkeys([*path, root]))
        return f"[tool.gradgate] path = [{folders}]"

    def _imported(self) -> set[str]:
        """The top-level names that the files which ran import."""
        found = set()
        for path in set(self.from_tree.values()):
            try:
                nodes = list(ast.walk(ast.parse((self.given.tree / path).read_bytes())))
            except (OSError, SyntaxError, ValueError):
                continue
            for node in nodes:
                if isinstance(node, ast.Import):
                    found |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    found.add(node.module.partition(".")[0])
        return found

    def _homes(self, held: frozenset[str]) -> set[str]:
        """The folders of all projects of the repository in which packages usually lie."""
        projects = {self.given.project, *(os.path.dirname(p) for p in held if os.path.basename(p) == "setup.py")}
        projects |= {
            path.parent.relative_to(self.given.tree).as_posix() for path in self.given.tree.glob("**/pyproject.toml")
        }
        return {os.path.normpath(os.path.join(project, home)) for project in projects for home in HOMES}


def unmoved(base: Ran, head: Ran, changed: Iterable[str]) -> list[str]:
    """The changed files that ran on both sides with the same content: one of the two did not run its tree's file."""
    before, after = base.record["files"], head.record["files"]
    return sorted(p for p in changed if p in before and p in after and before[p] == after[p] is not None)


def rebuilt(base: Ran, head: Ran, changed: Iterable[str]) -> tuple[list[str], list[str]]:
    """Built files that both sides share although the change touches sources: the files, and those sources.

    A file of constants, such as a version, does not count.
    """
    before, after = base.record["files"], head.record["files"]
    built = {path for path in head.built().values() if path in after and after[path] in before.values()}
    built = {path for path in built if not _constants(Path(path))}
    sources = sorted(name for name in changed if name.endswith(SOURCES))
    return (sorted(built), sources) if built and sources else ([], [])


def _ends(name: str) -> tuple[str, str]:
    stem = name.replace(".", "/")
    return f"{stem}.py", f"{stem}/{INIT}"


def _ancestors(name: str) -> set[str]:
    """The packages that a module is in."""
    parts = name.split(".")
    return {".".join(parts[:n]) for n in range(1, len(parts))}


def _digest(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def _constants(path: Path) -> bool:
    """Whether a module only assigns constants."""
    try:
        body = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return False
    kinds = (ast.Call, ast.FunctionDef, ast.ClassDef, ast.Lambda)
    return path.suffix == ".py" and not any(isinstance(node, kinds) for one in body for node in ast.walk(one))
