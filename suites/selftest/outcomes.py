"""Outcomes of mutants from one run to the next, used again while nothing that decided them has changed.

A mutant is decided by its bug, by the method that it breaks, by the code that judges, and by the toolchain. Of the
checks only those count that were asked, so a change of one check outdates the mutants that it judged, and no others.
"""

from __future__ import annotations

import dataclasses
import functools
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
from gradgate.suites.keeping.keys import JUDGING, Keys
from gradgate.suites.keeping.store import CannotKeep, Store
from gradgate.suites.selftest.judging import Outcome

LASTING = ("killed", "sound", "equivalent")
"""The statuses that are used again. A mutant with any other status is judged again: what it shows has to be mended."""
ALL_CHECKS = "gradgate.suites.checks"
"""The package whose modules are the checks."""
JUDGE = "gradgate.suites.selftest.judging"
"""The module that makes outcomes of verdicts."""


class Outcomes:
    """The outcomes that are stored."""

    def __init__(self, keys: Keys, run: Run, store: Store | None = None) -> None:
        """Read nothing yet.

        Args:
            keys: the hashes.
            run: the settings with which every mutant is judged.
            store: where outcomes are stored.
        """
        self.keys, self.run, self.store = keys, run, (store or Store()).beside("mutants")
        self.failed = ""
        """Why an outcome could not be stored; "" if all could."""
        self._places: dict[str, list[str]] = {}

    def get(self, mutant: Mutant | OneSide) -> Outcome | None:
        """The stored outcome of a mutant; None if it has to be judged."""
        found = self.store.get(self._key(mutant))
        if found is None or found.get("decided by") != self._decided_by(mutant, found.get("checks", ())):
            return None
        outcome: Outcome = found["outcome"]
        return outcome

    def put(self, mutant: Mutant | OneSide, outcome: Outcome) -> None:
        """Store the outcome of a mutant, unless it was judged by modules that were edited since the run began."""
        places = self._of(mutant)
        if outcome["status"] not in LASTING or not self.keys.unchanged(JUDGING, places):
            return
        checks = _checks(mutant, outcome["judged"])
        value = {"checks": checks, "decided by": self._decided_by(mutant, checks), "outcome": outcome}
        try:
            self.store.put(self._key(mutant), value)
        except CannotKeep as error:  # the outcome itself is valid
            self.failed = str(error)

    def _key(self, mutant: Mutant | OneSide) -> str:
        return digest(repr((mutant.name, dataclasses.astuple(self.run))))

    def _decided_by(self, mutant: Mutant | OneSide, checks: Iterable[str]) -> str:
        """A hash of the bug, of the modules that judged it, and of the toolchain."""
        modules = self.keys.closure(JUDGING, self._of(mutant))
        asked = self.keys.closure(checks, ())
        used = {name: text for name, text in modules.items() if not name.startswith(f"{ALL_CHECKS}.") or name in asked}
        judge = self.keys.closure((JUDGE,), ())[JUDGE]
        return self.keys.question((), (), used, judge, repr(_described(mutant, set())))

    def _of(self, mutant: Mutant | OneSide) -> list[str]:
        """The modules of the method that a mutant breaks, and those that make the bug."""
        if mutant.name not in self._places:
            modules: set[str] = set()
            _described(mutant, modules)
            if isinstance(mutant, OneSide):
                own = [f"{PACKAGE}.{name}" for name in (mutant.pair.partition(":")[0], OPERATORS[mutant.framework])]
            else:
                [base] = registry.methods(mutant.family, mutant.method, mutant.framework)
                own = strings_of(base)
            self._places[mutant.name] = sorted({*own, *modules, type(mutant).__module__})
        return self._places[mutant.name]


def _checks(mutant: Mutant | OneSide, claims: Iterable[str]) -> list[str]:
    """The modules of the checks that judge these claims of a mutant."""
    return sorted({CHECKS[mutant.task(claim).check].place.partition(":")[0] for claim in claims})


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
