"""The figures of releases as asv keeps results: a machine is a profile, a step is a release.

``<folder>/<profile>/<release>.json`` has the benchmarks of `BENCHMARKS`, each with one value per method. What asv does
not know stands under the key ``gradgate``: why a value is missing, and the values of second compilations.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gradgate.references.contract import UsageError
from gradgate.suites.console.files import write_atomically
from gradgate.suites.releases.environments import Release

FOLDER = Path(__file__).parent / "history"
"""The committed history."""
BENCHMARKS = {
    "required_bytes": "figures.Figures.track_required_bytes",
    "temp_bytes": "figures.Figures.track_temp_bytes",
    "flops": "figures.Figures.track_flops",
}
"""Quantity -> the name of its benchmark."""
COLUMNS = ["result", "params", "version"]
VERSION = 2
"""asv's version of a result file."""


@dataclass
class Step:
    """What one release was measured to do on one profile.

    Attributes:
        release: the release.
        profile: the profile.
        figures: name of a cell -> quantity -> value.
        reasons: name of a cell -> why it has no figures: the compiler's sentence, or the program's.
        again: name of a cell -> quantity -> the value of a second compilation in a new process.
        versions: distribution -> version, of everything that can change a figure.
        measured: when the last figure was measured, in milliseconds since 1970.
        commit: the commit of gradgate whose methods were measured.
    """

    release: Release
    profile: str
    figures: dict[str, dict[str, int]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    again: dict[str, dict[str, int]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    measured: int = 0
    commit: str = ""

    def put(self, name: str, figures: Mapping[str, int], reason: str = "") -> None:
        """Enter a cell: its figures, or the reason why there are none. What was known of it before is replaced."""
        self.drop(name)
        if figures:
            self.figures[name] = dict(figures)
        else:
            self.reasons[name] = reason
        self.measured = int(datetime.datetime.now(datetime.UTC).timestamp() * 1000)

    def drop(self, name: str) -> None:
        """Remove a cell."""
        for known in (self.figures, self.reasons, self.again):
            known.pop(name, None)

    def to_json(self) -> dict[str, Any]:
        """The step as asv reads it."""
        names = sorted({*self.figures, *self.reasons})
        values = {q: [self.figures.get(name, {}).get(q) for name in names] for q in BENCHMARKS}
        params = [[repr(name) for name in names]]
        return {
            "version": VERSION,
            "commit_hash": self.release.name,
            "env_name": self.release.framework,
            "date": self.measured,
            "python": self.versions.get("python", ""),
            "requirements": {},
            "env_vars": {},
            "params": {"machine": self.profile},
            "result_columns": COLUMNS,
            "durations": {},
            "results": {BENCHMARKS[q]: [row, params, "1"] for q, row in values.items()},
            "gradgate": {
                "reasons": self.reasons,
                "again": self.again,
                "versions": self.versions,
                "commit": self.commit,
            },
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Step:
        """The inverse of `to_json`.

        Raises:
            UsageError: it is no step; says what is missing.
        """
        try:
            figures: dict[str, dict[str, int]] = {}
            for quantity, benchmark in BENCHMARKS.items():
                values, [names], *_ = document["results"][benchmark]
                for name, value in zip(names, values, strict=True):
                    if value is not None:
                        figures.setdefault(name.strip("'"), {})[quantity] = value
            own = document["gradgate"]
            return cls(
                Release.of(document["commit_hash"]),
                document["params"]["machine"],
                figures,
                dict(own["reasons"]),
                {name: dict(row) for name, row in own["again"].items()},
                dict(own["versions"]),
                document["date"],
                own["commit"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"not a file of releases: {type(error).__name__}: {error}") from None


def path_of(folder: Path, release: Release, profile: str) -> Path:
    """The file of a step."""
    return folder / profile / f"{release.name}.json"


def read(folder: Path, release: Release, profile: str) -> Step:
    """One step; an empty one if nothing was measured.

    Raises:
        UsageError: the file is damaged; says which.
    """
    path = path_of(folder, release, profile)
    return _load(path) if path.is_file() else Step(release, profile)


def write(folder: Path, step: Step) -> None:
    """Write one step."""
    write_atomically(path_of(folder, step.release, step.profile), json.dumps(step.to_json(), indent=1) + "\n")


def steps(folder: Path) -> Iterator[Step]:
    """Every step of a history, by profile, then by release.

    Raises:
        UsageError: a file is damaged; says which.
    """
    found = [_load(path) for path in folder.glob("*/*.json")]
    yield from sorted(found, key=lambda step: (step.profile, step.release))


def unite(shard: Path, folder: Path) -> int:
    """Add the steps of a shard to a history; a cell of the shard replaces the same cell. Returns the number of cells.

    Raises:
        UsageError: the shard holds nothing: a job that measured nothing must not look like one that did.
    """
    count = 0
    for new in steps(shard):
        old = read(folder, new.release, new.profile)
        for name in {*new.figures, *new.reasons}:
            old.put(name, new.figures.get(name, {}), new.reasons.get(name, ""))
            if name in new.again:
                old.again[name] = new.again[name]
            count += 1
        old.versions, old.measured, old.commit = new.versions, new.measured, new.commit
        write(folder, old)
    if not count:
        raise UsageError(f"{shard} holds no figures of releases: its job measured nothing")
    return count


def _load(path: Path) -> Step:
    try:
        return Step.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from None
