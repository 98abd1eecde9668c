"""``gradgate report``: write a page from earlier verdicts, and unite the results of several shares in one document."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gradgate.hw_profiles.measurement import ANSWERS
from gradgate.references.errors import UsageError
from gradgate.suites.commands import arguments, union
from gradgate.suites.console import terminal
from gradgate.suites.console.files import need_own, write_atomically
from gradgate.suites.console.plain import plain
from gradgate.suites.judging.outcomes import exit_status
from gradgate.suites.judging.verdict import Verdict
from gradgate.suites.schemas import documents


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gradgate report``."""
    files = "what verify, memory, selftest, calibrate, repeat or paper wrote; several shares of one run are united"
    parser.add_argument("documents", type=Path, nargs="*", metavar="FILE", help=files)
    arguments.add(parser, "--json", help="write the united document here")
    figure = "what gradgate domain --json wrote: a figure on the page of verdicts; may be repeated"
    parser.add_argument("--domain", type=Path, action="append", default=[], metavar="FILE", help=figure)
    beside = "write the page here (default: next to verdicts.json, else into a new folder with the first file's name)"
    arguments.add(parser, "--report", help=beside)


def main(chosen: argparse.Namespace) -> int:
    """Unite the documents, write the page of verdicts, cells or mutants, and say what is missing.

    Returns:
        0 as claimed · 1 a claim is refuted, or a mutant survives · 2 something was not measured, or a share is missing.
        It is 1 if both hold.

    Raises:
        UsageError: a document cannot be read, the documents do not belong together, a figure has no place on the page,
            somebody else's file would be overwritten, or a package of the extra `report` is missing.
    """
    paths = chosen.documents or [Path(RUN) / VERDICTS]
    read = {str(path): _read(path) for path in paths}
    domains = [documents.read(path, "domain") for path in chosen.domain]
    united, missing = union.unite(read)
    what = union.kind(united)
    if domains and what != "verdicts":
        raise UsageError(f"--domain: a page of {what} has no such figure; a page of verdicts has")
    status = STATUS[what](united) if what in STATUS else 0
    if what not in PAGES and not chosen.json:
        raise UsageError(f"there is no page of {what}; say where to write the united document: --json FILE")
    if what in PAGES and (chosen.report or not chosen.json):
        arguments.need_report()
        folder = chosen.report or _folder(paths[0])
        files, page = _verdicts(united, domains) if what == "verdicts" else PAGES[what](united)
        for name in files:
            need_own(folder / name, what if name == VERDICTS else "")
        for name, text in files.items():
            if len(paths) > 1 or (folder / name).resolve() != paths[0].resolve():  # the document itself is there
                write_atomically(folder / name, text)
        print(plain(str(folder / page)))
    if chosen.json:
        need_own(chosen.json, what)
        write_atomically(chosen.json, json.dumps(united, indent=1, ensure_ascii=False) + "\n")
        terminal.note(f"{len(paths)} documents united in {chosen.json}")
    if missing:
        terminal.note(missing)
    return status or (2 if missing else 0)


def _folder(path: Path) -> Path:
    """Where the page of a document goes by default: nothing of another run is there."""
    return path.parent if path.name == VERDICTS else path.parent / path.stem


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


def _verdicts(document: dict[str, Any], domains: Sequence[dict[str, Any]] = ()) -> tuple[dict[str, str], str]:
    from gradgate.suites import report

    return report.files(document, domains), "index.html"


def _cells(document: dict[str, Any]) -> tuple[dict[str, str], str]:
    from gradgate.suites.report import frame, memory_page

    return frame.with_library(memory_page.pages(document)), "memory.html"


def _mutants(document: dict[str, Any]) -> tuple[dict[str, str], str]:
    from gradgate.suites.report import frame, selftest_page

    pages = {"selftest.html": selftest_page.render(document, len(document["mutants"]))}
    return frame.with_library(pages), "selftest.html"


def _status_of_verdicts(document: dict[str, Any]) -> int:
    rows = [Verdict.from_dict(row) for row in document["verdicts"]]
    return exit_status(rows, max(0, document.get("claims", 0) - len(rows)))


def _status_of_cells(document: dict[str, Any]) -> int:
    return 0 if all(row["status"] in (*ANSWERS, "inapplicable") for row in document["cells"]) else 2


def _status_of_alarms(document: dict[str, Any]) -> int:
    return int(any(piece.get("alarms") for of in document["families"].values() for piece in of.values()))


def _status_of_flakes(document: dict[str, Any]) -> int:
    return exit_status(Verdict.from_dict(row) for row in document["flakes"])


def _status_of_mutants(document: dict[str, Any]) -> int:
    from gradgate.suites.selftest import summary

    return summary.status(document["mutants"], len(document["mutants"]))


RUN, VERDICTS = "report", "verdicts.json"
"""Where ``nox -s verify`` writes, and the document there."""
PAGES = {"verdicts": _verdicts, "cells": _cells, "mutants": _mutants}
"""What a document lists -> the function that returns the files of its page, name -> text, and the first of them."""
STATUS: dict[str, Callable[[dict[str, Any]], int]] = {
    "verdicts": _status_of_verdicts,
    "cells": _status_of_cells,
    "mutants": _status_of_mutants,
    "families": _status_of_alarms,
    "judged": _status_of_flakes,
}
"""What a document lists -> the exit status of the command that wrote it. What a paper's figures are worth depends on
their declarations, which ``gradgate paper --kept`` reads."""
