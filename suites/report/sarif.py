"""The failures as SARIF 2.1.0, which code scanning of GitHub and editors show at the lines of the source."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from gradgate.suites.console.github import place
from gradgate.suites.report.model import Report, Row

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def render(report: Report) -> str:
    """One run with a result for each cause; a result is at the line that is to blame, or in the file of the pair.

    A method that is neither in a file nor has a line to blame has a result without a place.
    """
    groups = report.failures
    names = sorted({rows[0].verdict.task.claim for rows in groups})
    statements = {rows[0].verdict.task.claim: rows[0].verdict.task.statement for rows in groups}
    return log({name: statements[name] for name in names}, [_result(rows, names) for rows in groups])


def log(statements: Mapping[str, str], results: Sequence[Mapping[str, Any]]) -> str:
    """The text of a log.

    Args:
        statements: name of a claim -> its statement.
        results: each names a claim of these.
    """
    driver = {
        "name": "gradgate",
        "version": _version(),
        "rules": [{"id": name, "shortDescription": {"text": said or name}} for name, said in statements.items()],
    }
    run = {"tool": {"driver": driver}, "results": list(results)}
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def location(file: str, line: int = 0) -> dict[str, Any]:
    """A place in a file; line 0: the file itself."""
    physical: dict[str, Any] = {"artifactLocation": {"uri": file}}
    physical |= {"region": {"startLine": line}} if line else {}
    return {"physicalLocation": physical}


def _result(rows: list[Row], names: list[str]) -> dict[str, Any]:
    verdict = rows[0].verdict
    others = ", ".join(row.verdict.task.claim for row in rows[1:])
    said = [*rows[0].explanation.clauses, *([f"the same cause: {others}"] if others else [])]
    result: dict[str, Any] = {
        "ruleId": verdict.task.claim,
        "ruleIndex": names.index(verdict.task.claim),
        "level": "error",
        "message": {"text": f"{verdict.task.method}: " + "\n".join((*said, f"reproduce: {verdict.reproduce}"))},
        "partialFingerprints": {"gradgate/v1": verdict.task.name},
    }
    file, line = place(verdict)
    if file:
        result["locations"] = [location(file, line)]
    return result


def _version() -> str:
    try:
        return version("gradgate")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "0"
