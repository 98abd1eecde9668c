"""``gradgate report``: write a page from earlier verdicts, and unite the results of several shares in one document."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from gradgate.references.errors import UsageError
from gradgate.suites.commands import arguments
from gradgate.suites.console import terminal
from gradgate.suites.console.files import write_atomically
from gradgate.suites.keeping import union
from gradgate.suites.schemas import documents


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gradgate report``."""
    files = "what verify, memory, selftest, calibrate, repeat or paper wrote; several shares of one run are united"
    parser.add_argument("documents", type=Path, nargs="*", metavar="FILE", help=files)
    arguments.add(parser, "--json", help="write the united document here")
    arguments.add(parser, "--report", help="write the page here (default: next to the first verdicts)")


def main(chosen: argparse.Namespace) -> int:
    """Unite the documents, write the page of verdicts, cells or mutants, and say what is missing.

    Returns:
        0 all shares are there · 2 a share is missing.

    Raises:
        UsageError: a document cannot be read, the documents do not belong together, or a package of the extra
            `report` is missing.
    """
    paths = chosen.documents or [Path("report/verdicts.json")]
    united, missing = union.unite({str(path): _read(path) for path in paths})
    what = union.kind(united)
    if what not in PAGES and not chosen.json:
        raise UsageError(f"there is no page of {what}; say where to write the united document: --json FILE")
    if what in PAGES and (chosen.report or not chosen.json):
        arguments.need_report()
        print(PAGES[what](united, chosen.report or paths[0].parent))
    if chosen.json:
        write_atomically(chosen.json, json.dumps(united, indent=1, ensure_ascii=False) + "\n")
        terminal.note(f"{len(paths)} documents united in {chosen.json}")
    if missing:
        terminal.note(missing)
    return 2 if missing else 0


def _read(path: Path) -> dict[str, Any]:
    """A document of a run.

    Raises:
        UsageError: it cannot be read, or is not a document of gradgate; says what is wrong.
    """
    try:
        return documents.read(path, *documents.LISTS.values())
    except FileNotFoundError:
        raise UsageError(
            f"cannot read {path}: No such file or directory; gradgate verify --report DIR writes it"
        ) from None


def _verdicts(document: dict[str, Any], folder: Path) -> Path:
    from gradgate.suites.report import write

    return write(document, folder)


def _cells(document: dict[str, Any], folder: Path) -> Path:
    from gradgate.suites.report import memory_plot

    write_atomically(folder / "memory.html", memory_plot.page(document))
    return folder / "memory.html"


def _mutants(document: dict[str, Any], folder: Path) -> Path:
    from gradgate.suites.report import selftest_page

    write_atomically(folder / "selftest.html", selftest_page.render(document, len(document["mutants"])))
    return folder / "selftest.html"


PAGES = {"verdicts": _verdicts, "cells": _cells, "mutants": _mutants}
"""What a document lists -> the function that writes its page into a folder and returns the page's path."""
