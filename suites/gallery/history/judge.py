"""One commit of a repository, gated forwards and backwards, as one row."""

from __future__ import annotations

import datetime
import hashlib
import json
import resource
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradgate.suites.settings
from gradgate.references.errors import UsageError
from gradgate.suites.commands.gate import REFUTED_BEFORE, UNJUDGED_BEFORE
from gradgate.suites.console.files import write_atomically
from gradgate.suites.gallery.environment import Environment, last_words, run
from gradgate.suites.gallery.history.commits import (
    ALARM,
    CAUGHT,
    FAILING,
    MISSED,
    PASSED,
    UNMEASURED,
    WANTED,
    Commit,
    Repository,
)
from gradgate.suites.gallery.history.scratch import PAIRS, Scratch
from gradgate.suites.gallery.judge import QUIET
from gradgate.suites.gate.compare import FAILURES

SCHEMA = 1
SIDES = ("forwards", "backwards")
BEFORE = "refuted before"
"""The kind of finding on a claim that did not hold before the change either. The gate fails, and has caught nothing."""
GRADIENT = ("refuted", "failed", "unexpected")
"""Findings that say that a gradient is wrong, or that the function raises."""
ROOMS = (
    "hw_profiles",
    "references",
    "suites/engine",
    "suites/checks",
    "suites/pairs",
    "suites/judging",
    "suites/exact",
    "suites/measuring",
    "suites/workers",
    "suites/keeping",
    "suites/gate",
    "suites/commands",
)
"""The rooms that decide an outcome. When one of their files changes, commits are gated again."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """How commits are gated.

    Attributes:
        report: where rows, documents and the gate's cache are written.
        jobs: worker processes.
        timeout: seconds after which a call counts as hung.
        fresh: gate commits again although nothing has changed.
        sides: the directions to gate.
    """

    report: Path
    jobs: int = 2
    timeout: float = 60.0
    fresh: bool = False
    sides: tuple[str, ...] = SIDES


def row_of(
    repository: Repository, commit: Commit, scratch: Scratch, environment: Environment, settings: Settings
) -> tuple[Row, bool]:
    """Gate a commit in both directions, and write its row; returns it, and whether no gate had to run.

    Each direction is kept as soon as it is known.

    Raises:
        UsageError: the clone lacks the commit, or it cannot be prepared.
    """
    after = scratch.commit(commit.commit)
    before = scratch.commit(commit.base or f"{after}^")
    pairs = repository.library.path.read_text(encoding="utf-8")
    table = _table(repository, commit)
    place = settings.report / repository.name / f"{after[:12]}.json"
    key = _key(pairs, table, before, after, environment.key)
    row, kept = _known(place), True
    if row.get("key") != key or settings.fresh:
        date, title = scratch.title(after)
        row = {
            "schema": SCHEMA,
            "key": key,
            "repository": repository.name,
            "home": repository.library.home,
            "framework": repository.library.framework,
            "commit": after,
            "date": date,
            "title": title,
            "pairs": len(commit.pairs or repository.pairs()),
            "gated": datetime.datetime.now(datetime.UTC).date().isoformat(),
        }
    for side, base, head in zip(SIDES, (before, after), (after, before), strict=True):
        if side in row or side not in settings.sides:
            continue
        kept = False
        old = scratch.with_ours(base, pairs, table)
        change = scratch.with_ours(head, pairs, table, parents=[old])
        document, status, words, spent = _gated(repository, scratch, old, change, environment, settings)
        written = settings.report / repository.name / "gates" / f"{after[:12]}_{side}.json"
        write_atomically(written, json.dumps(document, indent=1) + "\n")
        row[side] = {"status": status, "findings": findings(document), "words": words, **spent}
        write_atomically(place, json.dumps(row, indent=1) + "\n")
    return with_outcomes(row, commit), kept


def findings(document: Mapping[str, Any]) -> dict[str, str]:
    """Kind of finding -> the first of this kind in one line, of the gate's JSON document.

    A claim that the change did not break, because it did not hold before, has the kind `BEFORE`.
    """
    found: dict[str, str] = {}
    for one in document.get("findings", []):
        before = one["kind"] in GRADIENT and any(
            words in one["sentence"] for words in (REFUTED_BEFORE, UNJUDGED_BEFORE)
        )
        figures = (
            f"{one['quantity']} {one['base']:,.0f} → {one['head']:,.0f}" if one["quantity"] and one["base"] else ""
        )
        sentences = [words for words in (figures, " ".join(str(one["sentence"]).split())) if words]
        found.setdefault(BEFORE if before else one["kind"], f"{one['name']}: {'; '.join(sentences)}"[:300])
    return found


def outcome(found: Mapping[str, str], status: int | None, wanted: str) -> tuple[str, str]:
    """What the gate made of a change: the outcome, and the finding that says it.

    Args:
        found: kind of finding -> the first of this kind.
        status: its exit status; None if it was stopped.
        wanted: the kind of finding that it must have, or "" if it must only pass.
    """

    def first(kinds: Sequence[str]) -> str:
        return next((f"{kind} {found[kind]}" for kind in kinds if kind in found), "")

    saying = first(GRADIENT if wanted == "refuted" else (wanted,))
    if status not in (0, 1):
        return UNMEASURED, first(("unmeasured",))
    if wanted in FAILING:
        return CAUGHT if saying and status == 1 else MISSED, saying or first((*FAILURES, BEFORE))
    if status == 1:
        return ALARM, first((*FAILURES, BEFORE))
    return PASSED if saying or not wanted else MISSED, saying


def _gated(
    repository: Repository, scratch: Scratch, base: str, head: str, environment: Environment, settings: Settings
) -> tuple[Row, int | None, str, Row]:
    """Run the gate: its document, its exit status, its last words, and what it took."""
    scratch.check_out(head)
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "gate.json"
        command: list[str | Path] = [environment.python, "-m", "gradgate.suites.cli", "gate", "--base", base]
        command += ["--json", written, "--jobs", str(settings.jobs), "--timeout", str(settings.timeout)]
        cache = settings.report.resolve() / repository.name / "cache"
        variables = {**QUIET, "GRADGATE_CACHE": str(cache), "GRADGATE_ENVIRONMENT": environment.key}
        began = _processor_seconds()
        ran = run(command, float(repository.library.limit), cwd=scratch.root, env=variables)
        spent = {"seconds": round(ran.seconds, 1), "cpu_seconds": round(_processor_seconds() - began, 1)}
        document = json.loads(written.read_text(encoding="utf-8")) if written.exists() else {}
    words = last_words(ran.output) if ran.status not in (0, 1) else ""
    return (
        document,
        ran.status,
        words if ran.status is not None else f"stopped; {words}",
        {"status": ran.status, **spent},
    )


def _processor_seconds() -> float:
    """Processor seconds of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _table(repository: Repository, commit: Commit) -> dict[str, Any]:
    """The table ``[tool.gradgate]`` with which a commit is gated."""
    named = [f"{PAIRS}:{name}" for name in commit.pairs] or [PAIRS]
    return {"pairs": named, "profiles": ["cpu"], **repository.table.settings}


def with_outcomes(row: Row, commit: Commit) -> Row:
    """A row with what is declared, and the outcomes of its gates, for which no gate has to run again."""
    said = {"gives": commit.gives, "because": commit.because, "revised": commit.revised}
    made = row | said | {"declared": list(commit.declared())}
    for side, wanted in zip(SIDES, WANTED[commit.gives], strict=True):
        if side in row:
            one = row[side]
            came, words = outcome(one["findings"], one["status"], wanted)
            made[side] = one | {"outcome": came, "said": words or one["words"]}
    return made


def faults(row: Row) -> list[str]:
    """What is not as declared, a sentence each."""
    found = []
    for side, declared in zip(SIDES, row["declared"], strict=True):
        if side in row and row[side]["outcome"] != declared:
            words = f"{row['repository']} {row['commit'][:10]}, {side}: {row[side]['outcome']}, declared {declared}"
            found.append(f"{words}: {row[side]['said'] or 'the gate says nothing'}")
    return found


def _known(place: Path) -> Row:
    """The row of an earlier run; {} if there is none."""
    try:
        found = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return dict(found) if isinstance(found, dict) and found.get("schema") == SCHEMA else {}


def _key(*facts: Any) -> str:
    """A hash of everything that decides a row: what is declared, the environment, and gradgate's own code."""
    top = Path(gradgate.suites.settings.__file__).resolve().parents[1]
    code = hashlib.sha256()
    for room in ROOMS:
        for path in sorted((top / room).rglob("*.py")):
            code.update(path.read_bytes())
    return hashlib.sha256(json.dumps([*facts, code.hexdigest()]).encode()).hexdigest()


def read(report: Path) -> list[Row]:
    """The rows below a folder of reports.

    Raises:
        UsageError: a file is no row of this version.
    """
    rows = []
    for path in sorted(report.glob("*/*.json")):
        if not (row := _known(path)):
            raise UsageError(f"{path} is no row of version {SCHEMA}; gate the commit again")
        rows += [row] if all(side in row for side in SIDES) else []  # a run was stopped after one direction
    return rows


def counts(rows: Sequence[Row]) -> dict[str, int]:
    """How many directions have each outcome, for each kind of commit: ``fixed backwards caught`` -> 20."""
    found: dict[str, int] = {}
    for row in rows:
        for side in [side for side in SIDES if side in row]:
            name = f"{row['gives']}, {side}: {row[side]['outcome']}"
            found[name] = found.get(name, 0) + 1
    return dict(sorted(found.items()))
