"""Rises that are allowed, in ``asv_bench/allow.toml``. Each has a ceiling, a reason and a day on which it expires.

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
import difflib
import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from gradgate.references.contract import UsageError, unknown
from gradgate.suites.gate.settings import check_table
from gradgate.suites.measuring.cells import OF_PASSES

QUANTITIES = ("temp_bytes", "state_bytes", "required_bytes", "flops", *OF_PASSES)
_KINDS = {
    "cell": str, "quantity": str, "ceiling": int, "removed": bool, "reason": str, "expires": datetime.date,
}  # fmt: skip


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
        UsageError: not TOML, an unknown or missing key, an impossible value, or two entries for one figure.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ()
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{shown} is not TOML: {error}") from None
    check_table(shown, content, {"allow": list})
    entries: list[Entry] = []
    for place, row in enumerate(content.get("allow", ()), 1):
        entry = _entry(f"{shown}: entry {place}", row)
        if any((old.cell, old.quantity) == (entry.cell, entry.quantity) for old in entries):
            raise UsageError(f"{shown}: entry {place}: {entry.cell} has an entry already; keep one")
        entries.append(entry)
    return tuple(entries)


def check_names(entries: tuple[Entry, ...], known: Collection[str], shown: str) -> None:
    """Raise UsageError for an entry whose name does not exist: a typing error would silently allow nothing."""
    for entry in entries:
        if entry.cell not in known:
            near = difflib.get_close_matches(entry.cell, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(f"{shown}: {entry.cell!r} names nothing that is gated{hint}")


def _entry(where: str, row: object) -> Entry:
    check_table(where, row, _KINDS, ("cell", "reason", "expires"))
    assert isinstance(row, dict)
    if not row["reason"].strip():
        raise UsageError(f"{where}: the reason is empty; say why this is worth it")
    if row.get("removed"):
        if "ceiling" in row or "quantity" in row:
            raise UsageError(f"{where}: what is removed has no quantity and no ceiling")
        return Entry(row["cell"], "", None, row["reason"], row["expires"])
    if "ceiling" not in row:
        raise UsageError(f"{where}: the key 'ceiling' is missing (or removed = true)")
    quantity = row.get("quantity", "temp_bytes")
    if quantity not in QUANTITIES:
        raise UsageError(f"{where}: {unknown('quantity', quantity, QUANTITIES)}")
    if row["ceiling"] < 1:
        raise UsageError(f"{where}: the ceiling must be positive, not {row['ceiling']}")
    return Entry(row["cell"], quantity, row["ceiling"], row["reason"], row["expires"])
