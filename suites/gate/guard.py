"""Makes every Python process of one side import the project from that side's tree. Uses the standard library alone.

`overlay` links this file as ``sitecustomize.py`` into the folder of links, so each process of a side runs it before
anything is imported: the one that describes, the workers, the compilers, and what they start. However a project is
installed, its modules come from the tree:

* entries of the import path that lie in the user's working tree, as ``.pth`` files add them, are mapped to the tree;
* what another finder finds in the working tree, as an editable install does, is loaded from the same place of the tree;
* what ``pip install`` has copied is looked up in the tree by the list of its files, wherever the layout keeps them.

A file that no commit has, because a build has made it, is taken from the installed copy or from the working tree.
"""

from __future__ import annotations

import configparser
import functools
import importlib.metadata
import importlib.util
import json
import os
import re
import sys
import tomllib
import urllib.parse
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path, PurePosixPath
from typing import Any

GIVEN, RESOLVED = "imports.json", "resolved.json"
"""Files in the folder of links: what the gate gives, and where the installed packages lie in the tree."""
SITES = ("site-packages", "dist-packages")
SKIPPED = (".git", "node_modules", "__pycache__")
INIT = "__init__.py"


@dataclass(frozen=True)
class Given:
    """What the gate knows about one side.

    Attributes:
        tree: the top of the side's tree.
        trees: the trees of both sides.
        working: working trees of the repository: the user's, and its other worktrees.
        project: the project's folder, relative to the top.
    """

    tree: Path
    trees: tuple[Path, ...]
    working: tuple[Path, ...]
    project: str = "."

    @classmethod
    def read(cls, path: Path) -> Given:
        """What the gate has written."""
        row = json.loads(path.read_text(encoding="utf-8"))
        trees, working = ([Path(place) for place in row[name]] for name in ("trees", "working"))
        return cls(Path(row["tree"]), tuple(trees), tuple(working), row["project"])

    def within(self, place: str | os.PathLike[str]) -> str | None:
        """The path relative to the working tree that it lies in; None if it lies in none, or in an environment there.

        A link is followed for this, because an editable install may be one.
        """
        real = os.path.realpath(place)
        if any(part in SITES for part in Path(real).parts) or _inside(real, map(str, self.trees)):
            return None
        for top in sorted(map(str, self.working), key=len, reverse=True):
            if _inside(real, [top]) and not _inside(real, [p for p in _prefixes() if _inside(p, [top]) and p != top]):
                return os.path.relpath(real, top)
        return None

    def held(self, relative: str) -> bool:
        """Whether the commit of either side holds a file."""
        return any((tree / relative).exists() for tree in self.trees)


@dataclass(frozen=True)
class Resolved:
    """Where the packages of installed distributions of the repository lie in one tree.

    Attributes:
        roots: folders of the tree that belong on the import path.
        packages: dotted name -> folder or file of the tree, for packages that are installed under another name.
        absent: names that a distribution has and that only the other side's tree holds.
    """

    roots: tuple[str, ...] = ()
    packages: Mapping[str, str] = field(default_factory=dict)
    absent: tuple[str, ...] = ()

    @classmethod
    def of(cls, given: Given) -> Resolved:
        """Look every package of every distribution of this repository up in the tree."""
        layouts = [Layout(tree) for tree in (given.tree, *(tree for tree in given.trees if tree != given.tree))]
        here, *others = layouts
        absent = []
        for installed in _distributions(given, project_names(layouts)):
            site, packages = Path(str(installed.locate_file(""))), _packages(installed)
            for package, files in packages.items():
                if not here.place(package, files, site) and any(tree.place(package, files, site) for tree in others):
                    absent.append(package.removesuffix(".py").replace("/", "."))
        project = PurePosixPath(given.project)
        source = str(project / "src")
        python = [name for name in here.files if name.startswith(f"{source}/")]
        if python and f"{source}/{INIT}" not in here.files:
            here.roots.append(source)  # where most projects keep their code, installed or not
        return cls(tuple(dict.fromkeys(here.roots)), here.packages, tuple(absent))

    @classmethod
    def read(cls, path: Path, given: Given) -> Resolved:
        """What an earlier process has resolved, or resolve it now."""
        try:
            row = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            found = cls.of(given)
            draft = path.with_name(f".{path.name}.{os.getpid()}")
            draft.write_text(json.dumps(found.__dict__), encoding="utf-8")
            os.replace(draft, path)
            return found
        return cls(tuple(row["roots"]), row["packages"], tuple(row["absent"]))


class Layout:
    """One tree, and where installed packages lie in it."""

    def __init__(self, tree: Path) -> None:
        self.tree, self.files = tree, files_of(tree)
        self.roots: list[str] = []
        self.packages: dict[str, str] = {}

    def place(self, package: str, files: Sequence[str], site: Path) -> bool:
        """Look up a package or module; whether the tree holds it.

        Args:
            package: its path where it is installed, such as ``ns/mylib`` or ``mod.py``.
            files: its files, relative to it; of a module [""].
            site: the folder in which it is installed.
        """
        found = self._best(package, files, site)
        if found is None:
            return False
        if f"/{found}".endswith(f"/{package}"):
            self.roots.append(found[: -len(package)].rstrip("/") or ".")
        else:
            self.packages[package.removesuffix(".py").replace("/", ".")] = found
        # A subpackage may lie elsewhere: package_dir = {"mylib": "one", "mylib.sub": "two"}.
        for folder in sorted({os.path.dirname(name) for name in files} - {""}):
            below = [name[len(folder) + 1 :] for name in files if name.startswith(f"{folder}/")]
            if not any(_join(found, folder, name) in self.files for name in below):
                apart = self._best(f"{package}/{folder}", below, site)
                if apart is not None:
                    self.packages[f"{package}/{folder}".replace("/", ".")] = apart
        return True

    def _best(self, package: str, files: Sequence[str], site: Path) -> str | None:
        """The folder or file of the tree that holds most of these files; of equals, one with the package's name."""
        if files == [""]:
            places = [name for name in self.files if os.path.basename(name) == package and not self._in_package(name)]
            return max(places, key=lambda name: (self._same(name, site / package), -name.count("/")), default=None)
        score: Counter[str] = Counter()
        for name in files:
            for held in self._named(os.path.basename(name)):
                if f"/{held}".endswith(f"/{name}"):
                    score[held[: -len(name)].rstrip("/") or "."] += 1
        named = {place: f"/{place}".endswith(f"/{package}") for place in score}
        good = [place for place in score if named[place] or 2 * score[place] >= len(files)]

        def rank(place: str) -> tuple[int, bool, int, int]:
            same = sum(self._same(_join(place, name), site / package / name) for name in files)
            return score[place], named[place], same, -place.count("/")

        return max(sorted(good), key=rank, default=None)

    def _named(self, name: str) -> list[str]:
        return self._by_name.get(name, [])

    @functools.cached_property
    def _by_name(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for held in self.files:
            found.setdefault(os.path.basename(held), []).append(held)
        return found

    def _in_package(self, name: str) -> bool:
        return _join(os.path.dirname(name), INIT) in self.files

    def _same(self, held: str, installed: Path) -> bool:
        try:
            return (self.tree / held).read_bytes() == installed.read_bytes()
        except OSError:
            return False


class Guard:
    """The first finder of every import."""

    def __init__(self, given: Given, resolved: Resolved) -> None:
        self.given, self.resolved = given, resolved

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """Where a module is loaded from, as for every finder.

        Raises:
            ModuleNotFoundError: only the other side has this module.
        """
        if name.partition(".")[0] == "gradgate":
            return None
        if name in self.resolved.packages:
            return _spec(name, self.given.tree / self.resolved.packages[name])
        spec = None
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    break
        if spec is None:
            return self._built(name, path)
        if name in self.resolved.absent and not self._in_tree(spec):
            raise ModuleNotFoundError(f"No module named {name!r} in this revision", name=name)
        return self._moved(name, spec)

    def _in_tree(self, spec: ModuleSpec) -> bool:
        places = [spec.origin] if spec.has_location and spec.origin else list(spec.submodule_search_locations or ())
        return all(_inside(os.path.realpath(place), [str(self.given.tree)]) for place in places)

    def _moved(self, name: str, spec: ModuleSpec) -> ModuleSpec | None:
        """The spec, in the tree if it was in the working tree."""
        inside = spec.submodule_search_locations
        places = None if inside is None else list(dict.fromkeys(mapped(self.given, place) for place in inside))
        if not spec.has_location or spec.origin is None:
            if places is not None and inside is not None and places != list(inside):
                spec.submodule_search_locations = places
            return spec
        relative = self.given.within(spec.origin)
        if relative is None:
            return spec
        if (self.given.tree / relative).is_file():
            return _spec(name, self.given.tree / relative)
        if self.given.held(relative):
            raise ModuleNotFoundError(f"No module named {name!r} in this revision", name=name)
        return spec

    def _built(self, name: str, path: Sequence[str] | None) -> ModuleSpec | None:
        """A module of a package of the tree that no commit holds: the installed one, or that of the working tree."""
        for place in path or ():
            real = os.path.realpath(place)
            if not _inside(real, [str(self.given.tree)]):
                continue
            relative = os.path.relpath(real, self.given.tree)
            installed = [Path(site, *name.split(".")[:-1]) for site in sys.path if Path(site).name in SITES]
            for folder in (*installed, *(top / relative for top in self.given.working)):
                spec = PathFinder.find_spec(name, [str(folder)])
                if spec is None or spec.origin is None:
                    continue
                inner = os.path.relpath(spec.origin, folder)
                if not self.given.held(os.path.join(relative, inner)):
                    return spec
        return None


def mapped(given: Given, place: str) -> str:
    """The same folder in the tree, if it lies in a working tree."""
    relative = given.within(place)
    return place if relative is None else os.path.normpath(given.tree / relative)


def files_of(tree: Path) -> frozenset[str]:
    """The Python files of a tree, relative to its top."""
    found = set()
    for folder, folders, names in os.walk(tree):
        folders[:] = [name for name in folders if name not in SKIPPED]
        below = os.path.relpath(folder, tree)
        found |= {os.path.normpath(os.path.join(below, name)) for name in names if name.endswith(".py")}
    return frozenset(found)


def project_names(layouts: Iterable[Layout]) -> frozenset[str]:
    """The normalized names of all projects in these trees."""
    found = set()
    for layout in layouts:
        for folder, folders, names in os.walk(layout.tree):
            folders[:] = [name for name in folders if name not in SKIPPED]
            for name in {"pyproject.toml", "setup.cfg", "setup.py"} & set(names):
                found |= set(_names_in(Path(folder, name)))
    return frozenset(map(_normal, found))


def _names_in(path: Path) -> Iterator[str]:
    try:
        text = path.read_text(encoding="utf-8")
        if path.name == "pyproject.toml":
            row = tomllib.loads(text)
            tools = row.get("tool", {})
            for table in (row.get("project", {}), tools.get("poetry", {}), tools.get("flit", {}).get("metadata", {})):
                yield from (str(table[key]) for key in ("name", "dist-name", "module") if key in table)
        elif path.name == "setup.cfg":
            parsed = configparser.ConfigParser(interpolation=None)
            parsed.read_string(text)
            yield parsed.get("metadata", "name")
        else:
            yield from re.findall(r"\bname\s*=\s*[\"']([\w.-]+)[\"']", text)
    except (OSError, ValueError, AttributeError, TypeError, configparser.Error):
        return  # a file that is no project's own, such as one for tests


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _distributions(given: Given, names: Iterable[str]) -> Iterator[importlib.metadata.Distribution]:
    """The installed distributions of this repository: of a project's name, or installed from the working tree."""
    sites = [place for place in sys.path if os.path.basename(place) in SITES]
    seen = set()
    for name in names:
        for found in importlib.metadata.distributions(name=name, path=sites):
            seen.add(name)
            yield found
            break
    for site in sites:
        for note in Path(site).glob("*.dist-info/direct_url.json"):
            try:
                url = json.loads(note.read_text(encoding="utf-8"))["url"]
            except (OSError, ValueError, KeyError, TypeError):
                continue
            place = urllib.parse.unquote(url.removeprefix("file://"))
            name = _normal(note.parent.name.partition("-")[0])
            if url.startswith("file://") and name not in seen and given.within(place) is not None:
                seen.add(name)
                yield importlib.metadata.PathDistribution(note.parent)


def _packages(installed: importlib.metadata.Distribution) -> dict[str, list[str]]:
    """Path of a package or module where it is installed -> its files, relative to it; of a module [""]."""
    files = [str(path) for path in installed.files or () if str(path).endswith(".py") and ".." not in path.parts]
    files = [name for name in files if not name.startswith("__editable__")]
    folders = {os.path.dirname(name) for name in files if os.path.basename(name) == INIT}
    folders |= {os.path.dirname(name) for name in files if not _within_one(os.path.dirname(name), folders)}
    tops = sorted(folder for folder in folders - {""} if not _within_one(os.path.dirname(folder), folders - {""}))
    found = {top: [name[len(top) + 1 :] for name in files if name.startswith(f"{top}/")] for top in tops}
    return found | {name: [""] for name in files if "/" not in name}


def _within_one(folder: str, folders: Iterable[str]) -> bool:
    return any(folder == other or folder.startswith(f"{other}/") for other in folders if other)


def _spec(name: str, place: Path) -> ModuleSpec | None:
    """The spec of a module or package at a file or folder."""
    if not place.is_dir():
        inside = [str(place.parent)] if place.name == INIT else None
        return importlib.util.spec_from_file_location(name, place, submodule_search_locations=inside)
    if (place / INIT).is_file():
        return _spec(name, place / INIT)
    spec = ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = [str(place)]
    return spec


def _join(*parts: str) -> str:
    return os.path.normpath(os.path.join(*parts))


def _prefixes() -> tuple[str, ...]:
    return tuple({os.path.realpath(place) for place in (sys.prefix, sys.base_prefix, sys.exec_prefix)})


def _inside(place: str, tops: Iterable[str]) -> bool:
    return any(place == top or place.startswith(top.rstrip(os.sep) + os.sep) for top in tops)


def install(folder: Path) -> None:
    """Make this process import from the tree.

    Args:
        folder: the folder of links.
    """
    given = Given.read(folder / GIVEN)
    resolved = Resolved.read(folder / RESOLVED, given)
    entries = [entry for place in sys.path if os.path.exists(entry := mapped(given, place)) or entry == place]
    first = next((n for n, entry in enumerate(entries) if os.path.basename(entry) in SITES), len(entries))
    roots = [os.path.normpath(given.tree / root) for root in resolved.roots]
    entries[first:first] = [root for root in roots if root not in entries[:first]]
    sys.path[:] = dict.fromkeys(entries)
    sys.meta_path.insert(0, Guard(given, resolved))


def _go_on(folder: Path) -> None:
    """Run the ``sitecustomize`` that this one hides, if there is one."""
    spec = PathFinder.find_spec(
        "sitecustomize", [place for place in sys.path if os.path.realpath(place) != os.path.realpath(folder)]
    )
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if __name__ == "sitecustomize":
    install(Path(__file__).parent)
    _go_on(Path(__file__).parent)
