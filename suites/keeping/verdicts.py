"""The verdicts of ``gradgate verify``, kept from one run to the next."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from gradgate.references import registry
from gradgate.references.loading import is_path
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.verdict import Task, Verdict
from gradgate.suites.keeping.keys import JUDGING, Keys, surroundings
from gradgate.suites.keeping.sources import strings_of
from gradgate.suites.keeping.store import CannotKeep, Store

Described = dict[str, Any]
"""What a worker reports about a target: ``tasks``, and ``places``, owner of tasks -> modules and files of its
declaration."""


class Kept:
    """Verdicts kept by content: the files of the method and of the judge, the toolchain, the seed and the settings.

    Errors are never kept, because this machine may have caused them. A verdict on a method whose files cannot be found
    is not kept either.
    """

    def __init__(self, run: Run, keys: Keys, store: Store | None = None, fresh: bool = False) -> None:
        """Read nothing yet.

        Args:
            run: the settings with which every claim is judged.
            keys: the hashes.
            store: where verdicts are kept.
            fresh: read no kept verdict; every claim is judged again and its verdict kept.
        """
        self.run, self.keys, self.store, self.fresh = run, keys, store or Store(), fresh
        self.failed = ""
        """Why something could not be kept; "" if all was."""
        self._places: dict[tuple[str, str], list[str] | None] = {}
        self._known: dict[Task, str] = {}

    def describe(self, target: str, family: str, framework: str | None, ask: Callable[[], Described]) -> list[Task]:
        """The tasks of a target: kept ones, or those that a worker reports.

        Args:
            target: as given on the command line.
            family: the class of its problems; "" for a pair or a file of pairs.
            framework: as given on the command line.
            ask: requests the description from a worker.
        """
        foreign = ":" in family or is_path(family)
        named = [target, *([family] if foreign else [])]
        places = [self.keys.place(name) for name in named]
        spec = registry.family(family).spec if family and not foreign else ""
        starts = [place for place in places if place] + ([spec.rpartition(":")[0]] if isinstance(spec, str) else [])
        known = None
        facts = ["described", target, family, framework, surroundings()]
        key = self.keys.digest(JUDGING, filter(None, starts), *facts) if all(places) else ""
        if key and not self.fresh:
            known = self.store.get(key)
        if known is None:
            known = ask()
            if key:
                self._put(key, known)
        tasks = [Task(**task) for task in known["tasks"]]
        for task in tasks:
            beside = [self.keys.place(name) for name in (target, task.origin) if name]
            own = [*known["places"][task.owner], *filter(None, beside)]
            self._places[task.owner, task.target] = own if all(beside) else None
        return tasks

    def get(self, task: Task) -> Verdict | None:
        """The kept verdict on a claim; None if the claim has to be judged."""
        if self.fresh or not self.key(task):
            return None
        row = self.store.get(self.key(task))
        try:
            return None if row is None else dataclasses.replace(Verdict.from_dict(row), task=task)
        except (KeyError, TypeError):  # of an older form
            return None

    def put(self, verdict: Verdict, task: Task) -> None:
        """Keep the verdict on a task, unless it is an error, or a file has been edited since the run began."""
        if verdict.verdict != "error" and self.key(task) and self.keys.unchanged(JUDGING, self._of(task) or ()):
            self._put(self.key(task), verdict.to_dict())

    def key(self, task: Task) -> str:
        """The hash of all that the verdict depends on; "" if that is not known, or only one problem is judged."""
        if self.run.spec:
            return ""
        if task not in self._known:
            places = self._of(task)
            self._known[task] = "" if places is None else self.keys.verdict(places, task, self.run)
        return self._known[task]

    def _of(self, task: Task) -> list[str] | None:
        owner = (task.owner, task.target)
        if owner not in self._places:
            [declared] = registry.methods(task.family, task.method, task.framework)
            self._places[owner] = strings_of(declared)
            if task.origin:
                place = self.keys.place(task.origin)
                self._places[owner] = [*strings_of(declared), place] if place else None
        return self._places[owner]

    def _put(self, key: str, value: dict[str, Any]) -> None:
        try:
            self.store.put(key, value)
        except CannotKeep as error:  # the verdict itself is valid
            self.failed = str(error)
