"""Verdicts on mutants from one run to the next, used again while nothing that decided them has changed.

A verdict on a mutant is decided by its bug, by the method that it breaks, by the code that judges, and by the
toolchain. Of the checks only the one that was asked counts, so a change of one check outdates its verdicts, and no
others; those of the rivals, which take a third of the time, remain.

A verdict that a change of what judges has outdated still names the problem that refuted the mutant. That one is judged
first, as long as the bug and all that draws problems are unchanged; the number of problems until it is then that of the
earlier run. Where it refutes no more, all are judged.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from types import FunctionType
from typing import Any

from gradgate.hw_profiles.recording import digest
from gradgate.references import registry
from gradgate.suites.bugs.mutant import Mutant
from gradgate.suites.bugs.of_pairs.mutant import PACKAGE
from gradgate.suites.bugs.of_pairs.one_side import OPERATORS, OneSide
from gradgate.suites.checks import CHECKS
from gradgate.suites.imports import strings_of
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.verdict import Task, Verdict, finite
from gradgate.suites.keeping.keys import JUDGING, Keys
from gradgate.suites.keeping.store import CannotKeep, Store
from gradgate.suites.selftest.judging import TOOLS, Known, claims

LASTING = ("killed", "sound", "equivalent")
"""The outcomes whose verdicts are used again. A mutant with any other is judged again: what it shows must be mended."""
FIELDS = ("verdict", "examples", "error", "leaf", "reason", "seconds", "spec", "options")
"""What of a verdict an outcome is made of, and the problem that refuted."""
ALL_CHECKS = "gradgate.suites.checks"
"""The package whose modules are the checks."""
DRAWING = ("gradgate.suites.engine.strategies", "gradgate.suites.pairs.draws")
"""Modules that draw problems, with all that they import."""
ASKING = ("gradgate.suites.engine.search", "gradgate.suites.pairs.lengths", ALL_CHECKS)
"""Modules that say how many problems are drawn and of which shapes; what else they import draws nothing."""


class Stored:
    """The verdicts that are stored."""

    def __init__(self, keys: Keys, run: Run, store: Store | None = None) -> None:
        """Read nothing yet.

        Args:
            keys: the hashes.
            run: the settings with which every mutant is judged.
            store: where verdicts are stored.
        """
        self.keys, self.run, self.store = keys, run, (store or Store()).beside("mutants")
        self.failed = ""
        """Why verdicts could not be stored; "" if all could."""
        self._modules: dict[tuple[tuple[str, ...], str], str] = {}

    def get(self, mutant: Mutant | OneSide) -> dict[str, Verdict]:
        """The stored verdicts on a mutant: claim -> verdict."""
        stored = self.store.get(self._key(mutant)) or {}
        decided = self._decided_by(mutant, [claim for claim in claims(mutant, TOOLS) if claim in stored])
        return {
            claim: Verdict(mutant.task(claim), **{name: stored[claim][name] for name in FIELDS})
            for claim in decided
            if stored[claim]["decided by"] == decided[claim]
        }

    def known(self, mutant: Mutant | OneSide) -> dict[str, Known]:
        """Claim -> the problem that refuted a mutant when it was judged last, if a run would still draw it."""
        stored = self.store.get(self._key(mutant)) or {}
        drawn = self._drawn_by(mutant)
        return {
            claim: Known(
                dataclasses.replace(self.run, spec=json.dumps(row["spec"]), options=row["options"]), row["examples"]
            )
            for claim, row in stored.items()
            if claim in claims(mutant, ()) and row.get("drawn by") == drawn and row["verdict"] == mutant.verdict
            if row["spec"] is not None and CHECKS[mutant.task(claim).check].draws != "profile"
        }

    def put(self, mutant: Mutant | OneSide, verdicts: Mapping[str, Verdict]) -> None:
        """Store the verdicts on a mutant, unless modules that judged it were edited since the run began."""
        checks = {_module_of(mutant.task(claim)) for claim in verdicts}
        if not self.keys.unchanged((*JUDGING, *checks), _made_by(mutant)[0]):
            return
        decided, drawn, value = self._decided_by(mutant, verdicts), self._drawn_by(mutant), {}
        for claim, verdict in verdicts.items():
            row = {name: getattr(verdict, name) for name in FIELDS}
            hashes = {"decided by": decided[claim], "drawn by": drawn}
            value[claim] = hashes | row | {"error": finite(verdict.error)}
        try:
            self.store.put(self._key(mutant), value)
        except CannotKeep as error:  # the outcome itself is valid
            self.failed = str(error)

    def _key(self, mutant: Mutant | OneSide) -> str:
        return digest(repr(("verdicts", mutant.name, dataclasses.astuple(self.run))))

    def _drawn_by(self, mutant: Mutant | OneSide) -> str:
        """A hash of the bug, and of the modules that draw the problems on which it is looked for."""
        places, bug = _made_by(mutant)
        every = self.keys.closure(JUDGING, places)
        asks = {name: every[name] for name in ASKING}
        drawn = self.keys.closure(DRAWING, _drawn_for(mutant)) | asks
        return digest(repr((sorted(drawn.items()), bug)))

    def _decided_by(self, mutant: Mutant | OneSide, asked: Iterable[str]) -> dict[str, str]:
        """Claim -> a hash of the bug, of the claim, of the modules that judged it, and of the toolchain."""
        found, (places, bug) = {}, _made_by(mutant)
        for claim in asked:
            task = mutant.task(claim)
            check = _module_of(task)
            if (places, check) not in self._modules:
                used = self.keys.closure((check,), ()) | {
                    name: text
                    for name, text in self.keys.closure(JUDGING, places).items()
                    if not name.startswith(f"{ALL_CHECKS}.")
                }
                self._modules[places, check] = self.keys.question((), (), used)
            found[claim] = digest(repr((self._modules[places, check], dataclasses.astuple(task), bug)))
        return found


def _module_of(task: Task) -> str:
    """The module of the check that judges a task."""
    return CHECKS[task.check].place.partition(":")[0]


def _made_by(mutant: Mutant | OneSide) -> tuple[tuple[str, ...], str]:
    """The modules of the method that a mutant breaks and those that make the bug; and the bug, described."""
    modules: set[str] = set()
    bug = repr(_described(mutant, modules))
    own = [f"{PACKAGE}.{OPERATORS[mutant.framework]}"] if isinstance(mutant, OneSide) else []
    return tuple(sorted({*own, *_drawn_for(mutant), *modules, type(mutant).__module__})), bug


def _drawn_for(mutant: Mutant | OneSide) -> tuple[str, ...]:
    """The modules of the method that a mutant breaks, or of the pair: they declare what is drawn."""
    if isinstance(mutant, OneSide):
        return (f"{PACKAGE}.{mutant.pair.partition(':')[0]}",)
    [base] = registry.methods(mutant.family, mutant.method, mutant.framework)
    return tuple(strings_of(base))


def _described(value: Any, modules: set[str], within: tuple[FunctionType, ...] = ()) -> Any:
    """A value in plain types: of functions the place, what they were given and what they captured.

    Args:
        modules: gets the modules in which these functions are written.
        within: the functions that captured the value. One that calls itself is among what it captured.
    """
    if isinstance(value, functools.partial):
        return ["partial", *(_described(part, modules, within) for part in (value.func, value.args, value.keywords))]
    if isinstance(value, FunctionType):
        modules.add(value.__module__)
        place = [value.__module__, value.__qualname__]
        if value in within:
            return place
        captured = [cell.cell_contents for cell in value.__closure__ or ()]
        return [*place, _described(captured, modules, (*within, value))]
    if dataclasses.is_dataclass(value):
        return [type(value).__name__, *(_described(getattr(value, one.name), modules, within) for one in fields(value))]
    if isinstance(value, Mapping):
        return {str(name): _described(part, modules, within) for name, part in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_described(part, modules, within) for part in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else type(value).__name__
