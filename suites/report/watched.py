"""The report of ``gradgate watch``: a page of the rules, and the same for machines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gradgate.suites.console.files import write_atomically
from gradgate.suites.console.watch_table import last_line
from gradgate.suites.report import columns, frame, sarif
from gradgate.suites.report.model import clean
from gradgate.suites.watching import junit
from gradgate.suites.watching.results import STATES, Judged, exit_status

FILES = {"index.html": "", "rules.json": "rules", "junit.xml": "", "failures.sarif": ""}
"""The files of a report -> what a document lists, as `need_own` asks."""
TONES = {
    "refuted": "failure",
    "elsewhere": "finding",
    "acknowledged": "finding",
    "not judged": "inapplicable",
}
"""State of a rule -> the class of its colours; any other state is upheld."""
LEVELS = {"refuted": "error", "elsewhere": "warning"}
"""State of a rule -> its level in SARIF; others are no results."""


def write(judged: Sequence[Judged], document: Mapping[str, Any], here: Path, folder: Path) -> Path:
    """Write the files of a report into a folder, and return the path of the page.

    Args:
        judged: the rules.
        document: what ``gradgate watch --json`` writes of them.
        here: the folder to which paths are relative.
        folder: where the files are written; it is made if it does not exist.

    Raises:
        UsageError: the folder cannot be written to.
    """
    made = {
        "index.html": page(document, last_line(judged), exit_status(judged)),
        "rules.json": json.dumps(document, indent=1) + "\n",
        "junit.xml": junit.render(judged, here),
        "failures.sarif": log(document),
    }
    for name in FILES:
        write_atomically(folder / name, made[name])
    return folder / "index.html"


def page(document: Mapping[str, Any], summary: str, status: int) -> str:
    """The page of a document."""
    found = clean(dict(document))
    return frame.page(
        "watched.html",
        document=found,
        summary=summary,
        status=status,
        told=[rule for rule in found["rules"] if rule["state"] != "upheld" or rule["warnings"]],
        states=STATES,
        tones={state: TONES.get(state, "upheld") for state in STATES},
        meanings=columns.WATCHED,
        decisions=_decisions,
        command=_command,
    )


def _decisions(rule: Mapping[str, Any]) -> str:
    """How many decisions went both ways, of all in the rule's code; a call that takes both sides is enough."""
    lines: dict[str, tuple[int, int]] = {}
    for call in rule["seen"]:
        for verdict in call["verdicts"]:
            for place, (both, every) in verdict.get("decisions", {}).get("lines", {}).items():
                before = lines.get(place, (0, 0))
                lines[place] = max(both, before[0]), max(every, before[1])
    both, every = (sum(column) for column in zip(*lines.values(), strict=True)) if lines else (0, 0)
    return f"{both} of {every}" if every else ""


def _refuted(rule: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first refuted verdict of a rule that is wrong; empty if there is none."""
    rows = [one for call in rule["seen"] if call["state"] == rule["state"] for one in call["verdicts"]]
    return next((one for one in rows if rule["state"] in LEVELS and one["verdict"] == "refuted"), {})


def _command(rule: Mapping[str, Any]) -> str:
    return str(_refuted(rule).get("reproduce", ""))


def log(document: Mapping[str, Any]) -> str:
    """What is refuted, as SARIF, each at the line of its rule."""
    wrong = [rule for rule in document["rules"] if rule["state"] in LEVELS]
    claims = [str(_refuted(rule).get("claim", "gradient")) for rule in wrong]
    names = sorted(set(claims))
    results = [
        {
            "ruleId": claim,
            "ruleIndex": names.index(claim),
            "level": LEVELS[rule["state"]],
            "message": {
                "text": "\n".join(filter(None, (f"{rule['name']}: {rule['reason']}", rule["likeness"], rule["test"])))
            },
            "partialFingerprints": {"gradgate/v1": rule["name"]},
            "locations": [sarif.location(rule["file"], rule["line"])],
        }
        for rule, claim in zip(wrong, claims, strict=True)
    ]
    return sarif.log(dict.fromkeys(names, ""), results)
