"""Answers that are kept with what was read to find them, and used again only while all of that is unchanged."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

from gradgate.hw_profiles.recording import Record, digest
from gradgate.suites.imports import Imports
from gradgate.suites.keeping.present import ChangedMeanwhile, Packages, Present
from gradgate.suites.keeping.store import CannotKeep, Store

MOST = 8
"""Largest number of answers that are kept to one question: of the latest states of the code."""
SHOWN = 3
"""How many reasons a note gives."""


class Answers:
    """Answers by question. One question has several, one for each state of what was read.

    Attributes:
        failed: why an answer could not be kept; "" if all could.
        unrepeatable: why answers were not kept, although they could be written: something that was read cannot be
            compared later.
        outdated: why answers that are kept were not used, one reason for each that was looked at last.
    """

    def __init__(self, store: Store, present: Present, imports: Imports) -> None:
        self.store, self.present, self.imports = store, present, imports
        self.failed = ""
        self.unrepeatable: dict[str, None] = {}
        self.outdated: dict[str, None] = {}
        self._readings: dict[str, dict[str, Any] | None] = {}

    def get(self, question: str) -> tuple[dict[str, Any], Record] | None:
        """The answer whose record is true now, with that record; None if there is none."""
        why = ""
        for kept in self._all(question):
            try:
                record = self._record(kept["record"])
                why = "a reading is missing" if record is None else self._difference(record, kept)
            except (KeyError, TypeError, AttributeError, ValueError):  # of an older form
                continue
            if record is not None and not why:
                return kept["value"], record
        if why:
            self.outdated[why] = None
        return None

    def put(self, question: str, value: Mapping[str, Any], record: Record, judges: Mapping[str, str]) -> None:
        """Keep an answer, unless something that was read cannot be compared later.

        Args:
            question: its key.
            value: the answer, in plain JSON types.
            record: everything that was read to find it; {} if nothing was recorded.
            judges: gradgate's modules that were loaded for it and that its key does not have: name -> sha256.
        """
        reasons = [reason for reading in record.values() for reason in reading.get("unrepeatable", ())]
        if not record or reasons:
            self.unrepeatable.update(dict.fromkeys(reasons or ["what was read was not recorded"]))
            return
        try:
            packages: Packages = self.present.packages(record)
            for identity, reading in record.items():
                if identity not in self._readings:
                    self.store.put(_place(identity), reading)
                    self._readings[identity] = reading
            kept = {"record": list(record), "packages": packages, "judges": dict(judges), "value": dict(value)}
            others = [other for other in self._all(question) if other["record"] != kept["record"]]
            self.store.put(question, {"answers": [kept, *others][:MOST]})
        except ChangedMeanwhile as error:
            self.unrepeatable[str(error)] = None
        except CannotKeep as error:  # the answer itself is valid
            self.failed = str(error)

    def notes(self, what: str) -> list[str]:
        """What a user should know at the end of a run, a sentence each.

        Args:
            what: what the answers are, such as ``verdicts``.
        """
        found = []
        if self.outdated:
            found.append(f"{what} that were kept are outdated: {_some(self.outdated)}")
        found += self.not_kept(what)
        if self.failed:
            found.append(f"{what} could not be kept for the next run: {self.failed}")
        return found

    def not_kept(self, what: str) -> list[str]:
        """The note on answers that the next run will have to find again; [] if there are none."""
        some = _some(self.unrepeatable)
        return [f"{what} that cannot be kept for the next run: {some}"] if some else []

    def _all(self, question: str) -> list[dict[str, Any]]:
        """The answers to a question, the latest first; an entry of another form counts as none."""
        with contextlib.suppress(KeyError, TypeError):
            answers = (self.store.get(question) or {})["answers"]
            return [answer for answer in answers if isinstance(answer, dict) and "record" in answer]
        return []

    def _difference(self, record: Record, kept: Mapping[str, Any]) -> str:
        for name, text in kept["judges"].items():
            if self.imports.text(name) != text:
                return f"gradgate's module {name} has changed"
        return self.present.difference(record, kept["packages"])

    def _record(self, identities: list[str]) -> Record | None:
        record: Record = {}
        for identity in identities:
            if identity not in self._readings:
                self._readings[identity] = self.store.get(_place(identity))
            reading = self._readings[identity]
            if reading is None:
                return None
            record[identity] = reading
        return record


def _some(reasons: Iterable[str]) -> str:
    """The first reasons, and how many more there are."""
    listed = list(reasons)
    more = f"; and {len(listed) - SHOWN} more reasons" if len(listed) > SHOWN else ""
    return "; ".join(listed[:SHOWN]) + more


def _place(identity: str) -> str:
    return digest(f"reading {identity}")
