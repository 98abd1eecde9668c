"""The figures of measured cells, kept from one run to the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradgate.hw_profiles.measurement import Measurement
from gradgate.references.contract import Method
from gradgate.suites.keeping.keys import MEASURING, Keys
from gradgate.suites.keeping.sources import strings_of
from gradgate.suites.keeping.store import CannotKeep, Store


class Figures:
    """Measurements kept by content: the files of the method and of what measures, the toolchain, the profile, the cell.

    Only answers are kept: this machine may have caused a failure. Nothing is kept of a method whose files are unknown.
    """

    def __init__(self, keys: Keys, store: Store | None = None, fresh: bool = False) -> None:
        """Read nothing yet.

        Args:
            keys: the hashes.
            store: where figures are kept.
            fresh: read no kept figure; every cell is measured again and its figure kept.
        """
        self.keys, self.store, self.fresh = keys, store or Store(), fresh
        self.failed = ""
        """Why something could not be kept; "" if all was."""
        self._places: dict[str, list[str]] = {}

    def get(self, declared: Method, cell: Mapping[str, Any]) -> Measurement | None:
        """The kept figures of a cell; None if it has to be measured.

        Args:
            declared: the cell's method.
            cell: its fields, as `MethodCell.to_dict` gives them.
        """
        key = "" if self.fresh else self._key(declared, cell)
        row = self.store.get(key) if key else None
        return None if row is None else Measurement.from_json(row)

    def put(self, declared: Method, cell: Mapping[str, Any], measured: Measurement) -> None:
        """Keep the figures of a cell, unless it has none, or a file has been edited since the run began."""
        key = self._key(declared, cell)
        if not measured.ok or not key or not self.keys.unchanged(MEASURING, self._of(declared, cell)):
            return
        try:
            self.store.put(key, measured.to_json())
        except CannotKeep as error:  # the figures themselves are valid
            self.failed = str(error)

    def _key(self, declared: Method, cell: Mapping[str, Any]) -> str:
        places = self._of(declared, cell)
        return self.keys.figure(places, cell) if places else ""

    def _of(self, declared: Method, cell: Mapping[str, Any]) -> list[str]:
        """Modules and files of a method; [] if one that was named on the command line cannot be found."""
        if declared.key not in self._places:
            named = [declared.implementation, *filter(None, (cell["target"], cell["origin"]))]
            found = [self.keys.place(name) for name in named]
            self._places[declared.key] = [*strings_of(declared), *filter(None, found)] if all(found) else []
        return self._places[declared.key]
