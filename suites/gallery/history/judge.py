"""One commit of a repository, gated forwards and backwards, as one row."""

from __future__ import annotations

import datetime
import hashlib
import json
import resource
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradgate.suites.settings
from gradgate.references.errors import UsageError
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
        say: prints a line of progress.
    """

    report: Path
    jobs: int = 2
    timeout: float = 60.0
    fresh: bool = False
    say: Callable[[str], None] = print


def row_of(
    repository: Repository, commit: Commit, scratch: Scratch, environment: Environment, settings: Settings
) -> tuple[Row, bool]:
    """Gate a commit in both directions, and write its row; returns it, and whether it was kept from an earlier run.

    Raises:
        UsageError: the clone lacks the commit, or it cannot be prepared.
    """
    after = scratch.commit(commit.commit)
    before = scratch.commit(commit.base or f"{after}^")
    pairs = repository.library.path.read_text(encoding="utf-8")
    table = _table(repository, commit)
    place = settings.report / repository.name / f"{after[:12]}.json"
    key = _key(pairs, table, before, after, environment.key, commit.gives)
    known = _known(place)
    if known.get("key") == key and not settings.fresh:
        return _with_declared(known, commit), True
    date, title = scratch.title(after)
    row: Row = {
        "schema": SCHEMA,
        "key": key,
        "repository": repository.name,
        "home": repository.library.home,
        "framework": repository.library.framework,
        "commit": after,
        "date": date,
        "title": title,
        "gives": commit.gives,
        "pairs": len(commit.pairs or repository.pairs()),
        "gated": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    old = {rev: scratch.with_ours(rev, pairs, table) for rev in (before, after)}
    for side, wanted, base, head in zip(SIDES, WANTED[commit.gives], (before, after), (after, before), strict=True):
        change = scratch.with_ours(head, pairs, table, parents=[old[base]])
        document, status, words, spent = _gated(repository, scratch, old[base], change, environment, settings)
        kept = settings.report / repository.name / "gates" / f"{after[:12]}_{side}.json"
        write_atomically(kept, json.dumps(document, indent=1) + "\n")
        row[side] = judged(document, status, wanted) | spent
        row[side]["said"] = row[side]["said"] or words
    write_atomically(place, json.dumps(row, indent=1) + "\n")
    return _with_declared(row, commit), False


def judged(document: Mapping[str, Any], status: int | None, wanted: str) -> Row:
    """What the gate made of a change: its outcome, and the finding that says it.

    Args:
        document: the gate's JSON document; {} if there is none.
        status: its exit status; None if it was stopped.
        wanted: the kind of finding that it must have, or "" if it must only pass.
    """
    findings = list(document.get("findings", []))
    kinds = GRADIENT if wanted == "refuted" else (wanted,)
    saying = [one for one in findings if one["kind"] in kinds]
    against = [one for one in findings if one["kind"] in FAILURES]
    if status not in (0, 1):
        return {"outcome": UNMEASURED, "said": _sentence(one for one in findings if one["kind"] == "unmeasured")}
    if wanted in FAILING:
        return {"outcome": CAUGHT if saying and status == 1 else MISSED, "said": _sentence([*saying, *against])}
    if status == 1:
        return {"outcome": ALARM, "said": _sentence(against)}
    return {"outcome": PASSED if saying or not wanted else MISSED, "said": _sentence(saying)}


def _sentence(findings: Any) -> str:
    """The first of some findings in one line; "" if there is none."""
    for one in findings:
        figures = (
            f"{one['quantity']} {one['base']:,.0f} → {one['head']:,.0f}" if one["quantity"] and one["base"] else ""
        )
        said = [words for words in (figures, " ".join(str(one["sentence"]).split())) if words]
        return f"{one['kind']} {one['name']}: {'; '.join(said)}"[:300]
    return ""


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


def _with_declared(row: Row, commit: Commit) -> Row:
    """A row with the outcomes that are declared, which may change without another gate."""
    return row | {"declared": list(commit.declared()), "because": commit.because}


def faults(row: Row) -> list[str]:
    """What is not as declared, a sentence each."""
    found = []
    for side, declared in zip(SIDES, row["declared"], strict=True):
        if row[side]["outcome"] != declared:
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
        rows.append(row)
    return rows


def counts(rows: Sequence[Row]) -> dict[str, int]:
    """How many directions have each outcome, for each kind of commit: ``fixed backwards caught`` -> 20."""
    found: dict[str, int] = {}
    for row in rows:
        for side in SIDES:
            name = f"{row['gives']}, {side}: {row[side]['outcome']}"
            found[name] = found.get(name, 0) + 1
    return dict(sorted(found.items()))
