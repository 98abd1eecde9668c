"""The figures of measured cells, kept from one run to the next."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradgate.hw_profiles.measurement import Measurement
from gradgate.references.contract import Method
from gradgate.suites.imports import strings_of
from gradgate.suites.keeping.answers import Answers
from gradgate.suites.keeping.keys import MEASURING, Keys
from gradgate.suites.keeping.present import Present
from gradgate.suites.keeping.store import Store


class Figures:
    """Measurements that are used again while everything that was read to measure them is unchanged.

    Only answers are kept: this machine may have caused a failure.
    """

    def __init__(self, keys: Keys, store: Store | None = None, fresh: bool = False) -> None:
        """Read nothing yet.

        Args:
            keys: the hashes.
            store: where figures are kept.
            fresh: use no kept figure; every cell is measured again and its figure kept.
        """
        self.keys, self.fresh = keys, fresh
        store = store or Store()
        self.answers = Answers(store, Present(Path.cwd(), store), keys.imports)
        self._places: dict[str, list[str]] = {}

    def get(self, declared: Method, cell: Mapping[str, Any]) -> Measurement | None:
        """The kept figures of a cell, with the record of what was read; None if it has to be measured.

        Args:
            declared: the cell's method.
            cell: its fields, as `MethodCell.to_dict` gives them.
        """
        answer = None if self.fresh else self.answers.get(self.keys.figure(self._of(declared), cell))
        return None if answer is None else Measurement.from_json({**answer[0], "record": answer[1]})

    def put(self, declared: Method, cell: Mapping[str, Any], measured: Measurement) -> None:
        """Keep the figures of a cell, unless it has none, or a module of gradgate was edited since the run began."""
        places = self._of(declared)
        if measured.ok and self.keys.unchanged(MEASURING, places):
            self.answers.put(self.keys.figure(places, cell), measured.to_json(), dict(measured.record), {})

    def _of(self, declared: Method) -> list[str]:
        if declared.key not in self._places:
            self._places[declared.key] = strings_of(declared)
        return self._places[declared.key]
