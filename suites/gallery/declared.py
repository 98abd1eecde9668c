"""The findings that are declared in ``findings.toml``, and how verdicts compare with them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradgate.references.errors import UsageError, unknown
from gradgate.suites.gallery.metadata import FOLDER
from gradgate.suites.judging.outcomes import AGAINST

KINDS = (
    "wrong gradient",
    "another function than the one it names",
    "loses digits",
    "crashes",
    "keeps more memory than it says",
)
"""What a finding can be."""
FIELDS = ("library", "pairs", "claims", "kind", "cause", "documented", "script")
MOST_LINES = 20
"""Lines that a finding's script may have."""
Row = Mapping[str, Any]
"""A verdict as in verdicts.json."""


@dataclass(frozen=True)
class Finding:
    """A declared finding. ``suites/gallery/README.md`` explains the fields."""

    library: str
    pairs: tuple[str, ...]
    claims: tuple[str, ...]
    kind: str
    cause: str
    documented: str
    script: str

    @property
    def cells(self) -> list[tuple[str, str]]:
        """Every pair with every claim that is declared refuted."""
        return [(pair, claim) for pair in self.pairs for claim in self.claims]

    def to_dict(self) -> dict[str, Any]:
        """The finding as plain JSON types."""
        return {name: list(value) if isinstance(value := getattr(self, name), tuple) else value for name in FIELDS}


def findings(folder: Path = FOLDER, libraries: Collection[str] | None = None) -> list[Finding]:
    """The findings that a folder declares.

    Args:
        folder: where ``findings.toml`` is.
        libraries: return, and check, the findings of these only.

    Raises:
        UsageError: a field is missing, unknown or wrong; says what is legal.
    """
    path = folder / "findings.toml"
    if not path.exists():
        return []
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8")).get("finding", [])
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"findings.toml is not TOML: {error}") from None
    asked = [one for one in enumerate(found, 1) if libraries is None or one[1].get("library") in libraries]
    return [_finding(place, given) for place, given in asked]


def _finding(place: int, given: dict[str, Any]) -> Finding:
    who = f"finding {place} of findings.toml ({given.get('library', 'no library')})"
    for name in given:
        if name not in FIELDS:
            raise unknown(f"field of {who}", name, FIELDS)
    for name in FIELDS:
        if not given.get(name):
            raise UsageError(f"{who} lacks {name}")
    for name in ("pairs", "claims"):
        value = given[name]
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise UsageError(f"{who}: {name} is a list of names, not {value!r}")
    if given["kind"] not in KINDS:
        raise unknown(f"kind of {who}", given["kind"], KINDS)
    if given["documented"] != "no" and not given["documented"].startswith(("yes: ", "no: ")):
        said = "documented is 'no', or 'yes: ' and the place, or 'no: ' and a remark"
        raise UsageError(f"{who}: {said}, not {given['documented']!r}")
    rest = {name: str(given[name]) for name in FIELDS if name not in ("pairs", "claims")}
    return Finding(pairs=tuple(given["pairs"]), claims=tuple(given["claims"]), **rest)


def faults(known: Iterable[str], declared: Sequence[Finding], folder: Path = FOLDER) -> list[str]:
    """What is wrong with declared findings and their scripts, one sentence each. Runs nothing.

    Args:
        known: the names of the libraries.
        declared: the findings.
        folder: the folder of the scripts' paths.
    """
    names, wrong = set(known), []
    for finding in declared:
        if finding.library not in names:
            wrong.append(f"{finding.script}: there is no library file {finding.library}.py")
        elif missing := [one for one in finding.pairs if not _names(folder / f"{finding.library}.py", one)]:
            wrong.append(f"{finding.script}: {finding.library}.py declares no pair {', '.join(missing)}")
    for script in dict.fromkeys(finding.script for finding in declared):
        wrong += script_faults(folder / script, script)
    return wrong


def without_finding(declared: Sequence[Finding], folder: Path = FOLDER) -> list[str]:
    """The scripts that no finding names."""
    owned = {finding.script for finding in declared}
    found = (f"findings/{path.name}" for path in sorted((folder / "findings").glob("*.py")))
    return [name for name in found if name not in owned]


def _names(path: Path, pair: str) -> bool:
    """Whether a file mentions a variable of this name, or makes its variables in a loop."""
    text = path.read_text(encoding="utf-8")
    return bool(re.search(rf"^(\w+, )*{re.escape(pair)}\b", text, re.MULTILINE)) or "globals()" in text


def script_faults(path: Path, name: str) -> list[str]:
    """What is wrong with a script, one sentence each."""
    if not path.is_file():
        return [f"{name}: there is no such script"]
    lines = path.read_text(encoding="utf-8").splitlines()
    wrong = []
    if len(lines) > MOST_LINES:
        wrong.append(f"{name} has {len(lines)} lines; legal are {MOST_LINES}")
    if any(re.search(r"\bgradgate\b", line) for line in lines):
        wrong.append(f"{name} mentions gradgate; a script shows the defect without it")
    if not any(re.search(r"\bexit\(|SystemExit", line) for line in lines):
        wrong.append(f"{name} never exits with a status: 0 if the defect shows, 1 if it does not")
    if not any("print" in line for line in lines):
        wrong.append(f"{name} prints nothing")
    return wrong


def pair_of(row: Row) -> str:
    """The variable of a verdict's pair: ``liger.py:ce`` is ``ce``."""
    return str(row.get("target") or row.get("origin") or row["family"]).rpartition(":")[2]


def compared(by_seed: Mapping[int, Sequence[Row]], declared: Sequence[Finding], whole: bool) -> dict[str, list[Any]]:
    """Verdicts compared with what is declared of their library.

    Args:
        by_seed: seed -> verdicts.
        declared: the findings of the library.
        whole: whether every claim has a verdict; if not, a declared claim may lack one.

    Returns:
        ``refuted``: every claim that is refuted or ends in an error under some seed, with the place of its finding.
        ``unexplained``: those without a finding. ``gone``: declared, but not refuted. ``unsteady``: verdicts that
        depend on the seed. All as plain JSON types.
    """
    where = {cell: place for place, finding in enumerate(declared) for cell in finding.cells}
    verdicts: dict[tuple[str, str], dict[int, Row]] = {}
    for seed, rows in by_seed.items():
        for row in rows:
            verdicts.setdefault((pair_of(row), row["claim"]), {})[seed] = row
    refuted, unsteady = [], []
    for cell, found in verdicts.items():
        against = {seed: row for seed, row in found.items() if row["verdict"] in AGAINST}
        if not against:
            continue
        first = next(iter(against.values()))
        kept = {name: first.get(name) for name in ("verdict", "reason", "statement", "spec", "options", "reproduce")}
        refuted.append({"pair": cell[0], "claim": cell[1], **kept, "finding": where.get(cell), "seeds": [*against]})
        if len({row["verdict"] for row in found.values()}) > 1:
            told = ", ".join(f"{row['verdict']} under seed {seed}" for seed, row in found.items())
            unsteady.append({"pair": cell[0], "claim": cell[1], "reason": told})
    there = {(row["pair"], row["claim"]) for row in refuted}
    gone = []
    for cell in where:
        if cell in there or (cell not in verdicts and not whole):
            continue
        reason = "there is no such claim"
        if cell in verdicts:
            row = next(iter(verdicts[cell].values()))
            reason = row["verdict"] + (f": {row['reason']}" if row["reason"] else "")
        gone.append({"pair": cell[0], "claim": cell[1], "reason": reason})
    unexplained = [row for row in refuted if row["finding"] is None]
    return {"refuted": refuted, "unexplained": unexplained, "gone": gone, "unsteady": unsteady}
