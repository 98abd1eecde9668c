"""Rises that are allowed, in the file that the setting `allow` names.

Each has a ceiling, a reason and a day on which it expires.

    [[allow]]
    cell = "state_space:reverse_recurrence:jax@nvidia-h100"
    quantity = "temp_bytes"
    ceiling = 1_500_000
    reason = "keeps the norm's denominator: 20% less work"
    expires = 2027-03-31

A removal is allowed with ``removed = true`` in place of quantity and ceiling. Then ``cell`` names what was removed: a
method (``family:method:framework``), a cell, a claim (``family:method:framework:claim``) or a benchmark
(``rule.Checking.time_judgement``).
"""

from __future__ import annotations

import datetime
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gradgate.references.contract import UsageError
from gradgate.references.errors import nearest
from gradgate.suites.schemas.checking import checked
from gradgate.suites.settings import Text, read_toml

Quantity = Literal[
    "temp_bytes",
    "state_bytes",
    "required_bytes",
    "flops",
    "residual_bytes",
    "compiled_residual_bytes",
    "compiled_peak_bytes",
]


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table ``[[allow]]``."""

    cell: Annotated[Text, Meta(description="the cell whose figure may rise, or the name of what was removed")]
    reason: Annotated[str, Meta(pattern=r"\S", extra={"legal": "a reason in words"}, description="why it is worth it")]
    expires: Annotated[datetime.date, Meta(description="the last day on which the entry is valid")]
    quantity: Annotated[
        Quantity | UnsetType, Meta(description="the figure that may rise; if it is not given, `temp_bytes`")
    ] = UNSET
    ceiling: Annotated[int, Meta(ge=1, description="the figure may rise up to this value")] | UnsetType = UNSET
    removed: Annotated[bool, Meta(description="in place of `quantity` and `ceiling`: it may be gone")] = False

    def __post_init__(self) -> None:
        """Raise ValueError for a combination of keys that means nothing."""
        if self.removed and not (self.ceiling is UNSET and self.quantity is UNSET):
            raise ValueError("what is removed has no quantity and no ceiling; remove these keys")
        if not self.removed and self.ceiling is UNSET:
            raise ValueError("the key 'ceiling' is missing; legal: a whole number of at least 1, or removed = true")


class Allowances(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file of allowed rises."""

    allow: Annotated[tuple[Row, ...], Meta(description="the entries, each a table `[[allow]]`")] = ()


@dataclass(frozen=True)
class Entry:
    """One allowed rise, or one allowed removal (`ceiling` is None)."""

    cell: str
    quantity: str
    ceiling: int | None
    reason: str
    expires: datetime.date

    def covers(self, cell: str, quantity: str, today: datetime.date) -> bool:
        """Whether this entry is about that figure, or with quantity "" about that removal, and has not expired."""
        return (self.cell, self.quantity) == (cell, quantity) and today <= self.expires


def read(path: Path, shown: str) -> tuple[Entry, ...]:
    """The entries of a file; none if there is no file.

    Args:
        path: the file.
        shown: the name of the file in messages.

    Raises:
        UsageError: it is not TOML, has an unknown key, lacks one, has an impossible value, or two entries for one
            figure.
    """
    try:
        content = read_toml(path, shown)
    except FileNotFoundError:
        return ()
    entries: list[Entry] = []
    for place, row in enumerate(checked(content, Allowances, shown).allow, 1):
        quantity = "" if row.removed else "temp_bytes" if row.quantity is UNSET else row.quantity
        ceiling = None if row.ceiling is UNSET else row.ceiling
        entry = Entry(row.cell, quantity, ceiling, row.reason, row.expires)
        if any((old.cell, old.quantity) == (entry.cell, entry.quantity) for old in entries):
            raise UsageError(f"{shown}: entry {place}: {entry.cell} has an entry already; keep one")
        entries.append(entry)
    return tuple(entries)


def check_names(entries: tuple[Entry, ...], known: Collection[str], shown: str) -> None:
    """Raise UsageError for an entry whose name does not exist: a typing error would silently allow nothing."""
    for entry in entries:
        if entry.cell not in known:
            near = nearest(entry.cell, known)
            hint = f"; did you mean {near}?" if near else ""
            raise UsageError(f"{shown}: {entry.cell!r} names nothing that is gated{hint}")
