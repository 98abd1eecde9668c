"""What a figure or a verdict depends on: the files that are imported, and the versions of everything else imported.

Imports are read from the text, those inside functions included, so nothing is run. What is imported by a computed name
is not seen; a method's declaration names its implementation as a string, and those strings are followed.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_FILE = re.compile(r"[^:]+\.py:[A-Za-z_]\w*")


@dataclass(frozen=True)
class Closure:
    """Modules reached by imports.

    Attributes:
        files: name -> sha256 of the text, for every module found on the import path.
        foreign: top-level names of what was not found there, the standard library left out.
    """

    files: Mapping[str, str]
    foreign: frozenset[str]

    def digest(self, *facts: Any) -> str:
        """One hash over the files, the versions of the foreign distributions, and further facts of plain JSON types."""
        text = json.dumps([dict(self.files), versions(self.foreign), *facts], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()


class Imports:
    """Follows imports along an import path; each file is read once. Names that end in .py are files of the project."""

    def __init__(self, paths: Sequence[Path], project: Path) -> None:
        self.paths, self.project = [Path(path) for path in paths], project
        self._read: dict[Path, tuple[str, frozenset[str]]] = {}

    def closure(self, starts: Iterable[str]) -> Closure:
        """Everything imported from modules (``a.b``) and files (``x/y.py``), directly or not, with its packages."""
        files: dict[str, str] = {}
        foreign: set[str] = set()
        waiting, seen = list(starts), set()
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            found = self.file(name)
            if found is None:
                top = name.partition(".")[0]
                if self.file(top) is None and not self._namespace(top) and top not in sys.stdlib_module_names:
                    foreign.add(top)
                continue
            text, imported = self._imports(name, found)
            files[name] = text
            waiting += [*imported, *_parents(name)]
        return Closure(dict(sorted(files.items())), frozenset(foreign))

    def file(self, name: str) -> Path | None:
        """The file of a module, or of a path that ends in .py; None where there is none."""
        if name.endswith(".py"):
            return self.project / name if (self.project / name).is_file() else None
        for path in self.paths:
            base = path.joinpath(*name.split("."))
            for place in (base / "__init__.py", base.with_suffix(".py")):
                if place.is_file():
                    return place
        return None

    def _namespace(self, name: str) -> bool:
        return any((path / name).is_dir() for path in self.paths)

    def _imports(self, name: str, path: Path) -> tuple[str, frozenset[str]]:
        if path not in self._read:
            content = path.read_bytes()
            package = name if path.name == "__init__.py" else name.rpartition(".")[0]
            try:
                found = frozenset(_imported(ast.parse(content), package))
            except (SyntaxError, ValueError):  # importing it will tell
                found = frozenset()
            self._read[path] = hashlib.sha256(content).hexdigest(), found
        return self._read[path]


def named(value: Any) -> Iterator[str]:
    """Modules and files that strings of the form ``module:name`` in a declaration point to, at any depth."""
    if isinstance(value, str):
        if _FILE.fullmatch(value) or _NAME.fullmatch(value):
            yield value.rpartition(":")[0]
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from named(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from named(item)


def versions(names: Iterable[str]) -> dict[str, str]:
    """Version of every installed distribution that provides one of these top-level names."""
    found = {}
    for name in names:
        for distribution in _distributions().get(name, ()):
            if distribution != "gradgate":
                found[distribution] = metadata.version(distribution)
    return dict(sorted(found.items()))


@functools.cache
def _distributions() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()


def _parents(name: str) -> list[str]:
    if name.endswith(".py"):
        return []
    parts = name.split(".")
    return [".".join(parts[:i]) for i in range(1, len(parts))]


def _imported(tree: ast.AST, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                base = ".".join([*parts[: len(parts) - node.level + 1], *([base] if base else [])])
            yield base
            # `from a import b`: b may be a module, or a name of a.
            yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")
