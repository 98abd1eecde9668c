"""One package of the census: its script watched in its environment, and what became of each rule."""

from __future__ import annotations

import datetime
import fnmatch
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradgate.suites.gallery.census import source
from gradgate.suites.gallery.environment import CannotInstall, Environment, last_words, made, run
from gradgate.suites.gallery.judge import QUIET
from gradgate.suites.gallery.metadata import Library

HERE = Path(__file__).parent
FOLDER = HERE / "packages"
"""Where the scripts of the packages are."""
SCHEMA = 1
MOST_LINES = 25
"""Lines that a package's script may have after its metadata and docstring."""
SCRIPT = 180.0
"""Seconds after which the script of a finding is stopped."""
BY_DESIGN = "by design"
"""The state of a rule that differs from the derivative of its forward pass, as its package says."""
AGAINST = ("refuted", "elsewhere")
"""The states of a rule that need an explanation."""
CRASHED = (*AGAINST, "not judged")
"""The states that a finding explains: a backward pass that raises is not judged."""
FLOATS = ("in floats", "by differences")
Row = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """How a package is judged.

    Attributes:
        report: where rows and logs are written.
        environments: where environments are made.
        jobs: worker processes.
        timeout: seconds after which a call of a rule counts as hung.
        fresh: make the environment again.
        judge: whether rules are judged; if not, those of the run before are compared with what is declared.
    """

    report: Path
    environments: Path
    jobs: int = 2
    timeout: float = 60.0
    fresh: bool = False
    judge: bool = True


def row_of(library: Library, settings: Settings) -> Row:
    """Watch the script of a package, and write what was found to ``report/NAME.json``.

    Cost: two to five seconds for each distinct call of a rule, and the installation the first time.
    """
    row: Row = {
        "schema": SCHEMA,
        "name": library.name,
        "library": library.judges,
        "version": "",
        "framework": library.framework,
        "home": library.home,
        "notes": library.notes,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "reason": "",
        "seconds": 0.0,
        "declared": 0,
        "rules": [],
        "findings": [],
    }
    try:
        environment = made(library, settings.environments, settings.fresh)
    except CannotInstall as error:
        row["reason"] = str(error)
    else:
        _judge(library, environment, settings, row)
    settings.report.mkdir(parents=True, exist_ok=True)
    (settings.report / f"{library.name}.json").write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")
    return row


def _judge(library: Library, environment: Environment, settings: Settings, row: Row) -> None:
    """Fill in the rules, and the findings with what their scripts print."""
    own = next(iter(environment.python.parent.parent.rglob("site-packages")))
    names, files = source.roots(library.judges, [own, environment.shared, *map(Path, sys.path)])
    row |= {"version": environment.version, "declared": len(source.rules(files))}
    logs = settings.report / "logs"
    document = logs / f"{library.name}.json"
    if settings.judge:
        logs.mkdir(parents=True, exist_ok=True)
        document.unlink(missing_ok=True)
        _watch(library, environment, settings, document, row)
    else:
        before = json.loads((settings.report / f"{library.name}.json").read_text(encoding="utf-8"))
        row |= {name: before[name] for name in ("version", "date", "seconds", "reason")}
    if not document.exists():
        return
    found = json.loads(document.read_text(encoding="utf-8"))["rules"]
    row["rules"] = [_rule(one, library) for one in found if one["name"].partition(".")[0].partition(":")[0] in names]
    row["findings"] = [_finding(name, library, environment) for name in library.findings]


def _watch(library: Library, environment: Environment, settings: Settings, document: Path, row: Row) -> None:
    """Run ``gradgate watch`` on the script in the package's environment, and write its document."""
    command: list[str | Path] = [environment.python, "-m", "gradgate.suites.cli", "watch", "--json", document]
    command += ["--jobs", str(settings.jobs), "--timeout", str(settings.timeout), library.path.resolve()]
    # a script has the name of its package, which its own folder must not hide
    variables = QUIET | {"GRADGATE_ENVIRONMENT": environment.key, "PYTHONSAFEPATH": "1"}
    with tempfile.TemporaryDirectory() as folder:
        ran = run(command, float(library.limit), cwd=Path(folder), env=variables)
    document.with_suffix(".log").write_text(ran.output, encoding="utf-8")
    row["seconds"] = round(ran.seconds, 1)
    if not document.exists():
        row["reason"] = last_words(ran.output) if ran.status is not None else f"stopped after {library.limit} s"
    elif "the command itself ended with exit status" in ran.output:
        row["reason"] = "the script did not end well"


def _rule(found: Mapping[str, Any], library: Library) -> Row:
    """What the census keeps of a rule."""
    verdicts = [verdict for call in found["seen"] for verdict in call["verdicts"]]
    exact = any(one["claim"] == "gradient_exact" and one["verdict"] in ("upheld", "refuted") for one in verdicts)
    pattern = next((one for one in library.by_design if fnmatch.fnmatch(found["name"], one)), "")
    state = BY_DESIGN if pattern and found["state"] in AGAINST else found["state"]
    kept = ("name", "kind", "file", "line", "calls", "likeness", "reason", "warnings")
    return {name: found[name] for name in kept} | {"state": state, "exact": exact, "pattern": pattern}


def _finding(name: str, library: Library, environment: Environment) -> Row:
    """A declared finding, with what its script says when it runs in the package's environment."""
    declared = library.findings[name]
    script = HERE / declared["script"]
    ran = run([environment.python, script], SCRIPT, env=QUIET)
    return {"rule": name, **declared, "shown": ran.status == 0, "output": ran.output[-1000:]}


def faults(row: Row, library: Library) -> list[str]:
    """What is not as declared, a sentence each: [] if every refutation has an explanation that holds."""
    wrong = [f"{library.name}: {row['reason']}"] if row["reason"] else []
    wrong += [
        f"{one['name']} is refuted, and neither by design nor a finding: {one['reason']}"
        for one in row["rules"]
        if one["state"] in AGAINST and one["name"] not in library.findings
    ]
    states = {one["name"]: one["state"] for one in row["rules"]}
    wrong += [f"{name} is a finding, and not refuted" for name in library.findings if states.get(name) not in CRASHED]
    wrong += [f"{one['script']} does not show it" for one in row["findings"] if not one["shown"]]
    used = {one["pattern"] for one in row["rules"] if one["state"] == BY_DESIGN}
    wrong += [f"{one!r} differs by design, and no such rule does" for one in library.by_design if one not in used]
    return wrong


def is_judged(rule: Mapping[str, Any]) -> bool:
    """Whether a rule has a verdict."""
    return bool(rule["state"] != "not judged" and not (rule["state"] == BY_DESIGN and not rule["reason"]))


def counts(rows: Sequence[Row]) -> dict[str, int]:
    """How many rules of these packages are declared, called, judged, judged by sixty digits, and so on.

    A rule that two packages call is one rule, of the first of them.
    """
    rules = list({(one["kind"], one["name"], one["line"]): one for row in rows for one in row["rules"]}.values())
    judged = [one for one in rules if is_judged(one)]
    return {
        "declared": sum(row["declared"] for row in rows),
        "called": len(rules),
        "judged": len(judged),
        "exact": sum(one["exact"] for one in judged),
        "upheld": sum(one["state"] == "upheld" for one in judged),
        "floats": sum(one["state"] in FLOATS for one in judged),
        "by design": sum(one["state"] == BY_DESIGN for one in judged),
        "refuted": sum(one["state"] in AGAINST for one in judged),
    }
