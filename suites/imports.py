"""Which of gradgate's own modules judge a method: those that are imported, directly or not, and read from their text.

Nothing is run, so this is known before a method is judged. Imports inside functions are followed, and so are the
strings ``module:function`` of a method's declaration. Modules of other projects are not followed: what they import and
read is recorded while they run (`gradgate.hw_profiles.recording`). A module of gradgate that is imported by a computed
name is not seen here; the record of the run has it.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gradgate.references import registry
from gradgate.references.contract import Method

_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_FILE = re.compile(r"[^:]+\.py:[A-Za-z_]\w*")
FORM = 2
"""Version of the kept form of a parsed file. A file that is kept in another form is parsed again."""
MOST = 5000
"""Files whose imports are kept."""


class Imports:
    """Follows the imports of gradgate's modules; each file is read once.

    Cost: about 1 s for gradgate itself the first time, mostly for parsing; a tenth of that with a kept `parsed`.
    """

    def __init__(self, mounts: Mapping[str, Path], parsed: Parsed | None = None) -> None:
        """Begin with nothing read.

        Args:
            mounts: package -> its folder. Modules outside of these packages are not followed.
            parsed: imports that were read earlier.
        """
        self.mounts = dict(mounts)
        self.parsed = parsed or Parsed()
        self._read: dict[Path, tuple[str, frozenset[str]]] = {}
        self._seen: dict[Path, tuple[int, int]] = {}
        self._files: dict[str, Path | None] = {}

    def closure(self, starts: Iterable[str]) -> dict[str, str]:
        """Every module that these import, directly or not, with its packages: name -> sha256 of its text."""
        files: dict[str, str] = {}
        waiting, seen = list(starts), set()
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            place = self.file(name)
            if place is not None:
                files[name], imported = self._imports(name, place)
                waiting += [*imported, *_parents(name)]
        return dict(sorted(files.items()))

    def text(self, name: str) -> str | None:
        """The sha256 of a module's own text; None if it is in none of the packages."""
        place = self.file(name)
        return None if place is None else self._imports(name, place)[0]

    def file(self, name: str) -> Path | None:
        """The file of a module; None if it is in none of the packages."""
        if name not in self._files:
            parts = name.split(".")
            mounted = [n for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in self.mounts]
            inside = self.mounts[".".join(parts[: mounted[0]])] if mounted else None
            self._files[name] = None if inside is None else _module_file(inside, parts[mounted[0] :])
        return self._files[name]

    def unchanged(self, names: Iterable[str]) -> bool:
        """Whether the files of these modules, as listed by a closure, are unchanged since they were read."""
        paths = [path for name in names if (path := self.file(name)) is not None]
        return all(_state(path) == self._seen.get(path) for path in paths)

    def _imports(self, name: str, path: Path) -> tuple[str, frozenset[str]]:
        if path not in self._read:
            self._seen[path] = _state(path)  # before reading, so that a change during the reading is noticed
            content = path.read_bytes()
            package = name if path.name == "__init__.py" else name.rpartition(".")[0]
            text = hashlib.sha256(content).hexdigest()
            self._read[path] = text, self.parsed.imports(text, package, content)
        return self._read[path]


class Parsed:
    """What files import, kept by content from one process to the next. What is lost is parsed again."""

    def __init__(self, kept: Path | None = None) -> None:
        """Read what is kept.

        Args:
            kept: the file in which it is kept; None keeps nothing.
        """
        self._kept, self._new = kept, False
        self._known: dict[str, list[str]] = {}
        if kept is not None:
            try:
                found = json.loads(kept.read_bytes())
                if found["digest"] == _digest(found["imports"]):
                    self._known = found["imports"]
            except (OSError, ValueError, KeyError, TypeError, RecursionError):  # absent, or damaged
                pass

    def imports(self, digest: str, package: str, content: bytes) -> frozenset[str]:
        """The names that a text imports as part of a package. A text that cannot be parsed imports nothing."""
        key = f"{FORM}:{package}:{digest}"
        if key not in self._known:
            try:
                found = sorted(set(_imported(ast.parse(content), package)))
            except (SyntaxError, ValueError):  # importing the file will report it
                found = []
            self._known[key], self._new = found, True
        return frozenset(self._known[key])

    def keep(self) -> None:
        """Write what is new. Of two writers at once, one wins. If the folder cannot be written, nothing is kept."""
        if self._kept is None or not self._new:
            return
        some = dict(list(self._known.items())[-MOST:])
        text = json.dumps({"digest": _digest(some), "imports": some})
        draft = self._kept.with_name(f".{self._kept.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            self._kept.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(text, encoding="utf-8")
            os.replace(draft, self._kept)
        self._new = False


def _state(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, -1
    return found.st_mtime_ns, found.st_size


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _module_file(base: Path, parts: Sequence[str]) -> Path | None:
    """The file of a module below a package's folder."""
    base = base.joinpath(*parts)
    return next((place for place in (base / "__init__.py", base.with_name(f"{base.name}.py")) if place.is_file()), None)


def _words(value: Any) -> Iterator[str]:
    """Every string in a value, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (Mapping, list, tuple)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _words(item)


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


def strings_of(declared: Method) -> list[str]:
    """The modules and files that the declaration of a method names: those that it runs, and those that judge it.

    Only those of gradgate matter to a key; the record of a run has the others.

    The method of a pair is loaded for this, if its class of problems is not one of gradgate.
    """
    spec = registry.family(declared.family).spec
    made = [spec] if isinstance(spec, str) else [f"{base.__module__}:{base.__name__}" for base in spec.__mro__]
    strings: list[Any] = [declared.implementation, declared.sharded, *made]
    strings += registry.targets_of(declared)
    own = registry.package(declared.family)  # a declaration may look up facts about its methods there
    strings += [f"{own}.in_{declared.framework}.methods:all"] if own else []
    claimed: list[Any] = [claim.settings for claim in declared.claims]
    claimed += [dataclasses.asdict(claim.law) for claim in declared.claims if claim.law is not None]
    beside = set(_words(claimed))  # a claim may compare with another method of the class
    others = [m for m in registry.family(declared.family).methods if m.name in beside]
    strings += [[other.implementation, other.sharded] for other in others if other.framework == declared.framework]
    return sorted(set(named([*strings, *claimed])))


def _parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:i]) for i in range(1, len(parts))]


def _imported(tree: ast.AST, package: str) -> Iterator[str]:
    for node in _run(tree):
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


def _run(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node except those under ``if TYPE_CHECKING:``, which are never run."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        typing_only = isinstance(node, ast.If) and ast.unparse(node.test).rpartition(".")[2] == "TYPE_CHECKING"
        waiting += node.orelse if isinstance(node, ast.If) and typing_only else ast.iter_child_nodes(node)
