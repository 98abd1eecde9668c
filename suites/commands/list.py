"""``gradgate list``: the methods, their options and what they claim; or what their papers say."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradgate.references import ledger, registry
from gradgate.references.contract import Method
from gradgate.references.errors import UsageError
from gradgate.suites.commands import arguments
from gradgate.suites.console import paper_table, terminal
from gradgate.suites.measuring import paper_results
from gradgate.suites.settings import Settings

SCHEMA = 1
FIGURE = (
    "place",
    "series",
    "x",
    "unit",
    "printed",
    "ours",
    "kind",
    "unlike",
    "expected",
    "agreement",
    "outcome",
    "reason",
)
"""The fields that are listed for a figure of a paper; see `paper_results.with_verdict`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gradgate list``."""
    arguments.add(parser, "--family", "--method", "--framework")
    parser.add_argument("--paper", action="store_true", help="every statement of the papers, and what became of it")
    arguments.add_json_flag(parser)


def main(chosen: argparse.Namespace) -> int:
    """Print the methods, or the papers' statements, as text or as JSON; returns 0.

    Raises:
        UsageError: a wrong name; lists what is legal. Or wrong settings, or a faulty ledger; says what is wrong.
    """
    Settings.read(Path.cwd())  # the list needs no setting; a wrong one is reported by every command alike
    if chosen.paper:
        return _papers(chosen)
    found = registry.methods(chosen.family, chosen.method, chosen.framework)
    if chosen.json:
        print(json.dumps({"schema": SCHEMA, "methods": [_row(method) for method in found]}, indent=1))
    else:
        terminal.methods(found)
    return 0


def _row(method: Method) -> dict[str, Any]:
    return {
        "family": method.family,
        "method": method.name,
        "framework": method.framework,
        "claims": [
            {"name": claim.name, "statement": claim.statement, "source": claim.source, "expected": claim.expected}
            for claim in method.claims
        ],
        "options": [{"name": option.name, "legal": option.legal} for option in method.options],
    }


def _papers(chosen: argparse.Namespace) -> int:
    if chosen.method or chosen.framework:
        raise UsageError("--paper lists the statements of whole papers: leave out --method and --framework")
    names = [registry.family(chosen.family).name] if chosen.family else list(registry.families())
    found = [one for one in map(ledger.of_family, names) if one.entries or chosen.family]
    kept = {one.family: paper_results.stored(one.family) for one in found}
    if chosen.json:
        papers = [_paper(one, {row["key"]: row for row in kept[one.family]}) for one in found]
        print(json.dumps({"schema": SCHEMA, "papers": papers}, indent=1, ensure_ascii=False))
    else:
        paper_table.statements(found, {family: paper_results.judged(rows) for family, rows in kept.items()})
    return 0


def _paper(one: ledger.Ledger, kept: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "family": one.family,
        "paper": one.paper,
        "counts": one.counts,
        "statements": [_statement(entry, kept) for entry in one.entries],
    }


def _statement(entry: ledger.Entry, kept: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    said = entry.statement
    return {
        "place": said.place,
        "words": said.words,
        "kind": said.kind,
        "claims": [
            {"method": method.name, "framework": method.framework, "name": claim.name, "expected": claim.expected}
            for method, claim in entry.claims
        ],
        "figures": [{name: kept[row.key][name] for name in FIGURE} for row in entry.rows if row.key in kept],
        "reason": said.reason,
    }
