"""The verdicts of ``gradgate verify``, kept from one run to the next."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gradgate.hw_profiles.recording import Record
from gradgate.references import registry
from gradgate.references.contract import Method
from gradgate.references.loading import is_path
from gradgate.suites.imports import strings_of
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.verdict import Task, Verdict
from gradgate.suites.keeping.answers import Answers
from gradgate.suites.keeping.keys import JUDGING, Keys
from gradgate.suites.keeping.present import Present
from gradgate.suites.keeping.store import Store

Described = dict[str, Any]
"""What a worker reports about a target: ``tasks``; ``places``, owner of tasks -> modules and files of its declaration;
and ``record``, what it read."""


class Verdicts:
    """Verdicts that are used again while everything that was read to reach them is unchanged.

    An error is not kept, because this machine may have caused it, unless it is one that the method raises and declares.
    """

    def __init__(
        self,
        run: Run,
        keys: Keys,
        store: Store | None = None,
        fresh: bool = False,
        methods: Mapping[str, Method] | None = None,
    ) -> None:
        """Read nothing yet.

        Args:
            run: the settings with which every claim is judged.
            keys: the hashes.
            store: where verdicts are kept.
            fresh: use no kept verdict; every claim is judged again and its verdict kept.
            methods: the methods of tasks that neither `describe` nor the registry knows, by their keys.
        """
        self.run, self.keys, self.fresh, self.methods = run, keys, fresh, methods or {}
        store = store or Store()
        self.answers = Answers(store, Present(Path.cwd(), store), keys.imports)
        self.readings: Record = {}
        """The readings of the verdicts that were used again."""
        self._places: dict[tuple[str, str], list[str]] = {}
        self._keys: dict[Task, str] = {}
        self._described: list[Callable[[], None]] = []
        """What keeps the descriptions that workers have reported."""

    def under(self, run: Run) -> Verdicts:
        """The same, for claims that are judged with other settings."""
        made = copy.copy(self)
        made.run, made._keys = run, {}
        return made

    def describe(self, target: str, family: str, framework: str | None, ask: Callable[[], Described]) -> list[Task]:
        """The tasks of a target: kept ones, or those that a worker reports.

        A new description is kept when the first verdict is asked for. To keep one takes seconds where the packages of
        an environment have not been hashed yet, and wrong usage that it shows is refused before.

        Args:
            target: as given on the command line.
            family: the class of its problems; "" for a pair or a file of pairs.
            framework: as given on the command line.
            ask: requests the description from a worker.
        """
        foreign = not family or ":" in family or is_path(family)
        spec = "" if foreign else registry.family(family).spec
        places = [spec.rpartition(":")[0]] if isinstance(spec, str) else []
        key = self.keys.question(JUDGING, places, "described", target, family, framework)
        answer = None if self.fresh else self.answers.get(key)
        if answer is None:
            described = ask()
            record = described.pop("record", {})
            self._described.append(lambda: self._keep(key, described, record, places))
        else:
            described, _ = answer
        tasks = [Task(**task) for task in described["tasks"]]
        for task in tasks:
            self._places[task.owner, task.target] = described["places"][task.owner]
        return tasks

    def _keep(self, key: str, described: Described, record: Record, places: list[str]) -> None:
        if self.keys.unchanged(JUDGING, places):
            self.answers.put(key, described, record, {})

    def get(self, task: Task) -> Verdict | None:
        """The kept verdict on a claim; None if the claim has to be judged."""
        while self._described:
            self._described.pop()()
        key = "" if self.fresh else self.key(task)
        answer = self.answers.get(key) if key else None
        if answer is None:
            return None
        row, record = answer
        try:
            verdict = dataclasses.replace(Verdict.from_dict(row), task=task, record=tuple(record))
        except (KeyError, TypeError):  # of an older form
            return None
        self.readings |= record
        return verdict

    def put(self, verdict: Verdict, task: Task, readings: Record) -> None:
        """Keep the verdict on a task, unless it is an undeclared error, or gradgate was edited since the run began.

        Args:
            verdict: the verdict, with the identities of the readings on which it rests.
            task: the claim.
            readings: identity -> reading, of at least these.
        """
        key, places = self.key(task), self._of(task)
        if verdict.verdict == "error" and not (verdict.outcome == "finding" and verdict.raised):
            return
        if not key or not self.keys.unchanged(JUDGING, places):
            return
        record = {identity: readings[identity] for identity in verdict.record}
        row = {name: value for name, value in verdict.to_dict().items() if name != "record"}
        self.answers.put(key, row, record, self._judges(verdict, places))

    def key(self, task: Task) -> str:
        """The hash of what is asked; "" if only one problem is judged, which is never kept."""
        if self.run.spec:
            return ""
        if task not in self._keys:
            self._keys[task] = self.keys.verdict(self._of(task), task, self.run)
        return self._keys[task]

    def _judges(self, verdict: Verdict, places: list[str]) -> dict[str, str]:
        """Gradgate's modules that were first loaded for this verdict and that no import in the text leads to.

        The registry imports the declarations of all classes once in a process; those of other classes judge nothing.
        """
        known = self.keys.closure(JUDGING, places)
        others = tuple(
            package
            for name in registry.families()
            if name != verdict.task.family and (package := registry.package(name))
        )
        return {
            name: text for name, text in verdict.loaded.items() if name not in known and not name.startswith(others)
        }

    def _of(self, task: Task) -> list[str]:
        owner = (task.owner, task.target)
        if owner not in self._places:
            known = self.methods.get(task.owner)
            [declared] = [known] if known else registry.methods(task.family, task.method, task.framework)
            self._places[owner] = strings_of(declared)
        return self._places[owner]
