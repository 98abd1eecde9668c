"""Whose code is imported on one side of a comparison.

The subject is the code that is compared. Each side imports its own subject, and both sides import the code that judges
from the head. In gradgate's own repository, the subject is ``references/``; ``suites/`` and ``hw_profiles/`` come from
the head on both sides. In another repository, the subject is that repository, and gradgate is the installed one. Each
side imports from a folder of links, which arranges this.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import gradgate.hw_profiles
import gradgate.references
import gradgate.suites
from gradgate.hw_profiles.recording import LINKS
from gradgate.references.errors import UsageError
from gradgate.suites.gate import guard
from gradgate.suites.settings import read_toml

JUDGES = ("suites", "hw_profiles")
SUBJECT = "references"
API = Path("suites", "api", "__init__.py")
"""The module ``gradgate`` itself."""
INSTALLED = {
    "suites": Path(gradgate.suites.__path__[0]),
    "hw_profiles": Path(gradgate.hw_profiles.__path__[0]),
    "references": Path(gradgate.references.__path__[0]),
}


@dataclass(frozen=True)
class Overlay:
    """One side's import path.

    Attributes:
        project: the folder of the side's files, in which everything for this side is run.
        paths: the import path: first the folder of links, then the project's folders.
        given: what the guard of each process knows; None if there is no guard.
    """

    project: Path
    paths: tuple[Path, ...]
    given: guard.Given | None = None

    @classmethod
    def make(cls, folder: Path, project: Path, judge: Path, also: tuple[str, ...] = ()) -> Overlay:
        """Link the parts together in `folder`.

        Args:
            folder: a new folder, for the links.
            project: the files of the side.
            judge: the files of the head, which judge. Outside gradgate's own repository they are not read.
            also: folders of the project that belong to its import path, such as ``src``.
        """
        package = folder / "gradgate"
        package.mkdir(parents=True)
        own = is_gradgate(project)
        for name in (*JUDGES, SUBJECT):
            theirs = (judge if name in JUDGES else project) / name
            (package / name).symlink_to(theirs.resolve() if own else INSTALLED[name].resolve())
        for module in (package / API).resolve().parent.glob("*.py"):  # gradgate itself, and the modules beside it
            (package / module.name).symlink_to(module)
        return cls(project, (folder, *(project / place for place in (also or (() if own else (".",))))))

    def guarded(self, tree: Path, trees: Iterable[Path], working: Iterable[Path]) -> Overlay:
        """The same, with a guard in each process of the side: what is installed is imported from the tree as well.

        Args:
            tree: the top of the side's tree.
            trees: the tops of both sides' trees.
            working: working trees of the repository, which no side imports from.
        """
        project = self.project.relative_to(tree).as_posix()
        given = guard.Given(tree, tuple(dict.fromkeys(trees)), tuple(working), project)
        row = {"tree": str(tree), "trees": [*map(str, given.trees)], "working": [*map(str, given.working)]}
        links = self.paths[0]
        (links / guard.GIVEN).write_text(json.dumps(row | {"project": project}), encoding="utf-8")
        (links / "sitecustomize.py").symlink_to(Path(guard.__file__).resolve())
        return replace(self, given=given)

    def environment(self) -> dict[str, str]:
        """The caller's environment with this import path in front. No byte code is written into the trees."""
        kept = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
        if self.given is not None:  # relative entries are relative to the caller's folder
            kept = [guard.mapped(self.given, os.path.abspath(place)) for place in kept]
        path = os.pathsep.join([*(str(path.resolve()) for path in self.paths), *kept])
        found = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        if self.paths:
            found[LINKS] = str(self.paths[0].resolve())
        return found


def is_gradgate(project: Path) -> bool:
    """Whether these are the files of gradgate itself. Then its references are the subject."""
    try:
        named = read_toml(project / "pyproject.toml", "pyproject.toml").get("project")
    except (FileNotFoundError, UsageError):
        return False
    own = isinstance(named, dict) and named.get("name") == "gradgate"
    return own and (project / SUBJECT / "registry.py").is_file()
