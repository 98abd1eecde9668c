"""One library judged in its environment, as one row of the gallery. Whatever goes wrong costs this row only."""

from __future__ import annotations

import collections
import datetime
import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradgate.references.errors import UsageError
from gradgate.references.loading import shortest
from gradgate.suites.console.files import write_atomically
from gradgate.suites.gallery import declared
from gradgate.suites.gallery.declared import Finding
from gradgate.suites.gallery.environment import CannotInstall, Environment, last_words, made, run
from gradgate.suites.gallery.metadata import Library
from gradgate.suites.judging.outcomes import AGAINST, VERDICTS

SCHEMA = 1
SCRIPT = 180.0
"""Seconds after which a finding's script is stopped."""
KEPT = 300.0
"""Seconds after which counting the kept bytes is stopped."""
JUDGED, CUT, INSTALL, FAILED = "judged", "cut off", "not installed", "not judged"
"""The states of a row."""
QUIET = {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONDONTWRITEBYTECODE": "1"}
"""Variables of every process that runs a library."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """How a library is judged.

    Attributes:
        folder: where ``findings.toml`` and the scripts are.
        report: where rows and logs are written.
        environments: where environments are made.
        examples: problems per claim.
        seeds: how many seeds, from 0.
        refuted: judge only what was refuted under further seeds.
        jobs: worker processes.
        fresh: reuse nothing.
        scripts: run the scripts of findings again, also those whose result is known.
        judge: whether verdicts are given; if not, those of the run before are compared with what is declared.
        say: prints a line of progress.
        timeout: seconds after which a call counts as hung; on a busy machine, an interpreted kernel takes long.
    """

    folder: Path
    report: Path
    environments: Path
    examples: int = 12
    seeds: int = 1
    jobs: int = 2
    fresh: bool = False
    scripts: bool = False
    judge: bool = True
    refuted: bool = False
    say: Callable[[str], None] = print
    timeout: float = 60.0


def row_of(library: Library, findings: Sequence[Finding], settings: Settings) -> Row:
    """Judge a library and write its row to ``report/NAME.json``.

    Args:
        library: the library.
        findings: those that are declared of it.
        settings: how it is judged.

    Raises:
        UsageError: the row cannot be written.
    """
    before = _before(library, settings)
    row: Row = {
        "schema": SCHEMA,
        "name": library.name,
        "title": library.title,
        "library": library.judges,
        "framework": library.framework,
        "home": library.home,
        "notes": library.notes,
        "dependencies": list(library.dependencies),
        "version": "",
        "state": FAILED,
        "reason": "",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "examples": settings.examples,
        "seeds": settings.seeds,
        "seconds": 0.0,
        "judging_seconds": 0.0,
        "claims": 0,
        "verdicts": {},
        "problems": 0,
        "pairs": {},
        "findings": [finding.to_dict() for finding in findings],
    }
    row |= declared.compared({}, findings, whole=False) | {"scripts": []}
    try:
        environment = made(library, settings.environments, settings.fresh)
    except CannotInstall as error:
        row |= {"state": INSTALL, "reason": str(error)}
    except UsageError as error:
        row |= {"reason": str(error)}
    else:
        row |= {"version": environment.version, "installed": dict(environment.installed), "key": environment.key}
        if settings.judge:
            _judge(library, environment, findings, settings, row)
        else:
            row |= {name: before[name] for name in JUDGEMENT if name in before}
            row |= declared.compared(_kept(library, row, settings), findings, whole=row["state"] == JUDGED)
        row["scripts"] = scripts(library, environment, findings, settings, before.get("scripts", []))
    write_atomically(settings.report / f"{library.name}.json", json.dumps(row, indent=1) + "\n")
    return row


JUDGEMENT = (
    "state",
    "reason",
    "date",
    "examples",
    "seeds",
    "seconds",
    "judging_seconds",
    "claims",
    "verdicts",
    "problems",
    "pairs",
    "toolchain",
    "reused",
)
"""What a run that judges nothing takes from the row before."""


def _kept(library: Library, row: Row, settings: Settings) -> dict[int, list[Row]]:
    """Seed -> the verdicts of the run before."""
    folder = settings.report / "verdicts"
    documents = {seed: _document(folder / f"{library.name}_{seed}.json") for seed in range(row["seeds"])}
    return {seed: list(document["verdicts"]) for seed, document in documents.items() if document}


def _before(library: Library, settings: Settings) -> Row:
    """The row of the run before; {} if there is none."""
    try:
        found = json.loads((settings.report / f"{library.name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return dict(found) if isinstance(found, dict) and found.get("schema") == SCHEMA else {}


def _judge(
    library: Library, environment: Environment, findings: Sequence[Finding], settings: Settings, row: Row
) -> None:
    """Fill in the verdicts under every seed, the comparison with the findings, and the kept bytes."""
    by_seed: dict[int, list[Row]] = {}
    for seed in range(settings.seeds):
        claims = _against(by_seed[0]) if seed and settings.refuted else []
        if seed and settings.refuted and not claims:
            break
        by_seed[seed] = _verify(library, environment, settings, seed, row, claims).get("verdicts", [])
        if row["state"] != JUDGED:
            break
    rows = by_seed[0]
    row["verdicts"] = {name: count for name in VERDICTS if (count := sum(one["verdict"] == name for one in rows))}
    row["problems"] = sum(one["examples"] for found in by_seed.values() for one in found)
    row["judging_seconds"] = round(sum(one["seconds"] for found in by_seed.values() for one in found), 1)
    row["reused"] = all(one.get("reused") for found in by_seed.values() for one in found)
    row["pairs"] = _pairs(rows)
    row |= declared.compared(by_seed, findings, whole=row["state"] == JUDGED)
    if row["state"] == JUDGED:
        _add_kept(library, environment, row)


def _against(rows: Sequence[Row]) -> list[str]:
    """The names of the claims that are refuted, or end in an error."""
    return sorted({row["claim"] for row in rows if row["verdict"] in AGAINST})


def _verify(
    library: Library, environment: Environment, settings: Settings, seed: int, row: Row, claims: Sequence[str]
) -> dict[str, Any]:
    """Run ``gradgate verify`` in the library's environment, on some claims or on all if none is named.

    Returns:
        Its document. Its state is in the row then.
    """
    path = settings.report / "verdicts" / f"{library.name}_{seed}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    target = shortest(library.path.resolve())
    command: list[str | Path] = [
        environment.python,
        "-m",
        "gradgate.suites.cli",
        "verify",
        target,
        "--json",
        path,
        "--seed",
        str(seed),
        "--examples",
        str(settings.examples),
        "--jobs",
        str(settings.jobs),
        "--timeout",
        str(settings.timeout),
        *(["--fresh"] if settings.fresh else []),
        *(word for claim in claims for word in ("--claim", claim)),
    ]
    told = [0]

    def watch() -> None:
        done = _document(path)
        count = len(done.get("verdicts", []))
        if count >= told[0] + 25:
            settings.say(f"  {library.name}: {count} of {done['claims']} claims")
            told[0] = count

    ran = run(command, float(library.limit), env=_variables(environment), watch=watch)
    path.with_suffix(".log").write_text(ran.output, encoding="utf-8")
    document = _document(path)
    row["seconds"] = round(row["seconds"] + ran.seconds, 1)
    row["claims"] = max(row["claims"], document.get("claims", 0))
    row["toolchain"] = document.get("fingerprint", {})
    count = len(document.get("verdicts", []))
    if ran.status is None:
        row |= {
            "state": CUT,
            "reason": f"stopped after {library.limit} s: {count} of {row['claims']} claims were judged",
        }
    elif ran.status in (0, 1, 2) and count:
        row |= {"state": JUDGED, "reason": ""}
    elif ran.status < 0:
        row |= {"state": FAILED, "reason": f"its process was killed by signal {-ran.status}"}
    else:
        row |= {"state": FAILED, "reason": last_words(ran.output)}
    return document


def _variables(environment: Environment) -> dict[str, str]:
    return QUIET | {"GRADGATE_ENVIRONMENT": environment.key}


def _document(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _pairs(rows: Sequence[Mapping[str, Any]]) -> dict[str, Row]:
    """Variable of a pair -> its name, how many problems it was judged on, and how often each verdict was given."""
    found: dict[str, Row] = {}
    for one in rows:
        new = {"name": one["family"], "problems": 0, "verdicts": collections.Counter()}
        pair = found.setdefault(declared.pair_of(one), new)
        pair["problems"] += one["examples"]
        pair["verdicts"][one["verdict"]] += 1
    return {name: pair | {"verdicts": dict(pair["verdicts"])} for name, pair in found.items()}


def _add_kept(library: Library, environment: Environment, row: Row) -> None:
    """Add to each pair what it keeps between its passes, and what its reference keeps."""
    target = shortest(library.path.resolve())
    ran = run(
        [environment.python, "-m", "gradgate.suites.gallery.stored_bytes", target], KEPT, env=_variables(environment)
    )
    try:
        found = json.loads(ran.output.strip().splitlines()[-1])["pairs"] if ran.status == 0 else {}
    except (ValueError, IndexError, KeyError, TypeError):
        found = {}
    row["seconds"] = round(row["seconds"] + ran.seconds, 1)
    why = "" if found else f"not counted: {'it took too long' if ran.status is None else last_words(ran.output)}"
    for name, pair in row["pairs"].items():
        kept = found.get(name, {"reason": why or "not counted"})
        pair |= {field: kept[field] for field in ("spec", "kept", "plain", "reason") if field in kept}


def scripts(
    library: Library, environment: Environment, findings: Sequence[Finding], settings: Settings, before: Sequence[Row]
) -> list[Row]:
    """Run the scripts of a library's findings by themselves, each in a process of its own.

    A script whose text and environment are those of the row before is not run again.

    Returns:
        For each script ``script``, ``text``, ``shown`` (whether it ended with status 0), ``output``, and ``key``.
    """
    known = {one["key"]: one for one in before if not (settings.fresh or settings.scripts)}
    found = []
    for name in dict.fromkeys(finding.script for finding in findings):
        path = settings.folder / name
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        key = hashlib.sha256(f"{environment.key} {sys.version} {text}".encode()).hexdigest()[:16]
        if key in known:
            found.append(dict(known[key]))
            continue
        ran = run([environment.python, "-P", path.resolve()], SCRIPT, cwd=settings.report, env=QUIET)
        status = "stopped: it took too long" if ran.status is None else f"exit status {ran.status}"
        folders = (environment.python.parent.parent, environment.shared, settings.folder.resolve())
        output = _without(ran.output, folders)[-4000:]
        row = {"script": name, "text": text, "shown": ran.status == 0, "status": status, "output": output, "key": key}
        settings.say(f"  {name}: {'shows it' if row['shown'] else f'DOES NOT show it ({status})'}")
        found.append(row)
    return found


def _without(output: str, folders: Sequence[Path]) -> str:
    """A script's output without the folders of this machine, so that kept rows are the same everywhere."""
    for folder in folders:
        output = output.replace(f"{folder}/", "")
    return output


def faults(row: Mapping[str, Any]) -> list[str]:
    """Everything in a row that is not as declared, one sentence each; [] if nothing."""
    shown = [one for one in row["scripts"] if not one["shown"]]
    told = [f"{one['script']} does not show the finding ({one['status']})" for one in shown]
    said = {"unexplained": "unexplained", "gone": "declared, but not refuted", "unsteady": "depends on the seed"}
    for name, words in said.items():
        told += [f"{words}: {one['pair']} {one['claim']}: {one['reason']}" for one in row[name]]
    return told


def status(rows: Sequence[Mapping[str, Any]], scripts_only: bool = False) -> int:
    """The exit status: 0 as declared, 1 if something is not, 2 if a library could not be judged."""
    if any(faults(row) for row in rows):
        return 1
    return 2 if not scripts_only and any(row["state"] != JUDGED for row in rows) else 0
