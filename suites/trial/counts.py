"""Random right things that were judged, the false alarms among them, and an upper bound on their rate.

The counts are a published file that grows: ``counts.json``. A row says which seeds were judged on which code. What has
been judged once is not judged again. After a change of the code the next seeds follow, because new seeds say more than
old ones: the counts of all codes are added, and those of this code are given beside them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from gradgate.suites.console.files import write_atomically

TABLE = Path(__file__).with_name("counts.json")
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Row:
    """Seeds that were judged on one state of the code.

    Attributes:
        what: what was drawn, such as ``pairs jax``; or whose claims were judged, such as ``seeds jax chain:revolve``.
        code: a hash of the modules that draw and judge.
        start, stop: the seeds start … stop − 1 were judged.
        alarms: the false alarms, in words, by their seeds.
        silent: how many gave no answer: their claims were inapplicable.
        seconds: processor time.
        date: the day of the latest of them.
        each: how many things are judged under one seed.
    """

    what: str
    code: str
    start: int
    stop: int
    alarms: dict[str, str] = field(default_factory=dict)
    silent: int = 0
    seconds: float = 0.0
    date: str = ""
    each: int = 1

    @property
    def judged(self) -> int:
        """How many things gave an answer."""
        return (self.stop - self.start) * self.each - self.silent

    def joined(self, other: Row) -> Row:
        """This row and the one of the seeds that follow, on the same code."""
        return Row(
            self.what,
            self.code,
            self.start,
            other.stop,
            {**self.alarms, **other.alarms},
            self.silent + other.silent,
            round(self.seconds + other.seconds, 1),
            max(self.date, other.date),
            self.each,
        )


def read(path: Path = TABLE) -> list[Row]:
    """The rows of the file; [] if there is none."""
    return msgspec.json.decode(path.read_bytes(), type=list[Row]) if path.is_file() else []


def write(rows: Sequence[Row], path: Path = TABLE) -> None:
    """Write the rows; a row that goes on where another ends, on the same code, is joined to it."""
    joined: list[Row] = []
    for row in sorted(rows, key=lambda row: (row.what, row.start)):
        last = joined[-1] if joined else None
        follows = last is not None and (last.what, last.code, last.stop) == (row.what, row.code, row.start)
        if last is not None and follows and last.each == row.each:
            joined[-1] = last.joined(row)
        else:
            joined.append(row)
    text = msgspec.json.format(msgspec.json.encode([asdict(row) for row in joined]), indent=1).decode()
    write_atomically(path, text + "\n")


@dataclass(frozen=True)
class Counted:
    """What some rows say together.

    Attributes:
        judged: how many things gave an answer.
        alarms: how many of these are false alarms.
        first, last: the days of the rows.
    """

    judged: int
    alarms: int
    first: str
    last: str

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Counted:
        """The sums; at least one row."""
        dates = [row.date for row in rows]
        return cls(sum(row.judged for row in rows), sum(len(row.alarms) for row in rows), min(dates), max(dates))

    @property
    def rate(self) -> float:
        """The upper bound on the rate of false alarms."""
        return most_likely_below(self.alarms, self.judged)


def kinds(rows: Iterable[Row]) -> dict[str, Counted]:
    """The counts of each kind in each framework, such as ``seeds jax``, which has the seeds of all methods."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(" ".join(row.what.split()[:2]), []).append(row)
    return {kind: Counted.of(some) for kind, some in found.items()}


def next_seed(rows: Sequence[Row], what: str) -> int:
    """The first seed that no row has."""
    return max((row.stop for row in rows if row.what == what), default=0)


def summary(rows: Sequence[Row], what: str, codes: Mapping[str, str]) -> str:
    """The counts of one kind in a line: of all codes, and of this one.

    Args:
        what: what was drawn, or what the names of all that were begin with.
        codes: what was drawn -> the hash of this code.
    """
    every = [row for row in rows if row.what == what or row.what.startswith(f"{what} ")]
    now = [row for row in every if row.code == codes.get(row.what)]
    if not every:
        return f"{what}: none judged yet"
    found = Counted.of(every)
    here = f"{_words(Counted.of(now))} on this code" if now else "none on this code"
    return f"{what}: {_words(found)}, {found.first} to {found.last}; {here}"


def _words(found: Counted) -> str:
    words = f"{found.alarms or 'no'} false alarm{'s' if found.alarms != 1 else ''} in {found.judged}"
    return f"{words} (rate below {found.rate:.2g})" if found.judged else words


def most_likely_below(alarms: int, judged: int) -> float:
    """The upper end of the one-sided exact (Clopper–Pearson) interval of a rate, at 95%.

    It is the p at which so few alarms have the probability 5%: Σ_{k ≤ alarms} C(n, k) pᵏ (1−p)ⁿ⁻ᵏ = 0.05.

    >>> round(most_likely_below(0, 300), 4), round(most_likely_below(1, 300), 4), most_likely_below(3, 3)
    (0.0099, 0.0157, 1.0)
    """
    if alarms >= judged:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _at_most(alarms, judged, middle) > 1 - CONFIDENCE else (low, middle)
    return high


def _at_most(alarms: int, judged: int, rate: float) -> float:
    """The probability of at most so many alarms."""
    return sum(
        math.exp(
            math.lgamma(judged + 1)
            - math.lgamma(k + 1)
            - math.lgamma(judged - k + 1)
            + k * math.log(rate)
            + (judged - k) * math.log1p(-rate)
        )
        for k in range(alarms + 1)
    )


def today() -> str:
    """The date in UTC, as in a row."""
    return datetime.now(UTC).date().isoformat()
