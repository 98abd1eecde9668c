"""``gradgate list``: the methods, their options and what they claim."""

from __future__ import annotations

import argparse
import json
from typing import Any

from gradgate.references import registry
from gradgate.references.contract import Method
from gradgate.suites.commands import arguments
from gradgate.suites.console import terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gradgate list``."""
    arguments.add(parser, "--family", "--method", "--framework")
    arguments.add_json_flag(parser)


def main(chosen: argparse.Namespace) -> int:
    """Print the methods as text or as JSON; 0.

    Raises:
        UsageError: a wrong name; lists what is legal.
    """
    found = registry.methods(chosen.family, chosen.method, chosen.framework)
    if chosen.json:
        print(json.dumps({"methods": [_row(method) for method in found]}, indent=1))
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
