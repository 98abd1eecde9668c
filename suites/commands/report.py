"""``gradgate report``: earlier verdicts as a page."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from gradgate.references.errors import UsageError
from gradgate.suites.commands import arguments
from gradgate.suites.judging.verdict import SCHEMA, Verdict


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gradgate report``."""
    parser.add_argument("verdicts", type=Path, nargs="?", default=Path("report/verdicts.json"))
    arguments.add(parser, "--report", help="where to (default: beside the verdicts)")


def main(chosen: argparse.Namespace) -> int:
    """Write the page and print its path; 0.

    Raises:
        UsageError: the verdicts cannot be read, or a package of the extra `report` is missing.
    """
    arguments.need_report()
    from gradgate.suites.report import write

    try:
        document = json.loads(chosen.verdicts.read_text(encoding="utf-8"))
        [Verdict.from_dict(row) for row in document["verdicts"]]
    except OSError as error:
        raise UsageError(
            f"cannot read {chosen.verdicts}: {error.strerror}; gradgate verify --report DIR writes it"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{chosen.verdicts} is no verdicts.json of schema {SCHEMA}: {error!r}") from None
    print(write(document, chosen.report or chosen.verdicts.parent))
    return 0
