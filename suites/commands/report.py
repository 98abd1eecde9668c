"""``gradgate report``: write a page from earlier verdicts, and unite the results of several shares in one document."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gradgate.hw_profiles.measurement import ANSWERS
from gradgate.references.errors import UsageError
from gradgate.suites.commands import arguments
from gradgate.suites.console import terminal
from gradgate.suites.console.files import need_own, write_atomically
from gradgate.suites.console.plain import plain
from gradgate.suites.judging.outcomes import exit_status
from gradgate.suites.judging.verdict import SCHEMA, Verdict
from gradgate.suites.keeping import union


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gradgate report``."""
    files = "what verify, memory, selftest, calibrate, repeat or paper wrote; several shares of one run are united"
    parser.add_argument("documents", type=Path, nargs="*", metavar="FILE", help=files)
    arguments.add(parser, "--json", help="write the united document here")
    beside = "write the page here (default: next to verdicts.json, else into a new folder with the first file's name)"
    arguments.add(parser, "--report", help=beside)


def main(chosen: argparse.Namespace) -> int:
    """Unite the documents, write the page of verdicts, cells or mutants, and say what is missing.

    Returns:
        0 as claimed · 1 a claim is refuted, or a mutant survives · 2 something was not measured, or a share is missing.
        It is 1 if both hold.

    Raises:
        UsageError: a document cannot be read, the documents do not belong together, somebody else's file would be
            overwritten, or a package of the extra `report` is missing.
    """
    paths = chosen.documents or [Path(RUN) / VERDICTS]
    documents = {str(path): _read(path) for path in paths}
    with _reading(", ".join(documents)):
        united, missing = union.unite(documents)
        what = union.kind(united)
        status = STATUS[what](united) if what in STATUS else 0
    if what not in PAGES and not chosen.json:
        raise UsageError(f"there is no page of {what}; say where to write the united document: --json FILE")
    if what in PAGES and (chosen.report or not chosen.json):
        arguments.need_report()
        folder = chosen.report or _folder(paths[0])
        with _reading(", ".join(documents)):
            files, page = PAGES[what](united)
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
    """Read a document.

    Raises:
        UsageError: it cannot be read, or is not a document of gradgate.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(document, dict):
            raise TypeError(f"a document is an object, not {document!r:.80}")
        _check(document)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; gradgate verify --report DIR writes it") from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path} is no verdicts.json of schema {SCHEMA}: {error!r:.300}") from None
    return document


def _check(document: dict[str, Any]) -> None:
    """Check the fields that every document has, and the rows of verdicts.

    Raises:
        KeyError: it lists nothing that a command writes.
        TypeError, ValueError: a field has a value that no command writes; says which.
    """
    what = union.kind(document)
    if not isinstance(document[what], dict if what in ("families", "judged") else list):
        raise TypeError(f"{what} is {document[what]!r:.80}")
    share = document.get("shard", {"index": 1, "of": 1, "total": 0})
    numbers = [share.get(name) for name in ("index", "of", "total")] if isinstance(share, dict) else [None]
    if not all(type(number) is int and 0 <= number < MANY for number in numbers):
        raise TypeError(f"shard is {share!r:.80}; legal: an object with index, of and total")
    if not isinstance(document.get("fingerprint", {}), dict):
        raise TypeError(f"fingerprint is {document['fingerprint']!r:.80}")
    if what != "verdicts":
        return
    if document.get("schema") != SCHEMA:
        raise ValueError(f"schema is {document.get('schema')!r:.80}")
    claims = document.get("claims", 0)
    if type(claims) is not int or not 0 <= claims < MANY:
        raise TypeError(f"claims is {claims!r:.80}; legal: how many there are")
    for row in document["verdicts"]:
        Verdict.from_dict(row)


@contextlib.contextmanager
def _reading(names: str) -> Iterator[None]:
    """A scope in which documents are read and nothing is written: an error in it is an error of the documents.

    Raises:
        UsageError: they hold what no command writes; says where it was noticed.
    """
    try:
        yield
    except UsageError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise UsageError(f"{names}: holds what gradgate does not write: {error!r:.300}") from None


def _verdicts(document: dict[str, Any]) -> tuple[dict[str, str], str]:
    from gradgate.suites import report

    return report.files(document), "index.html"


def _cells(document: dict[str, Any]) -> tuple[dict[str, str], str]:
    from gradgate.suites.report import memory_plot

    return {"memory.html": memory_plot.page(document)}, "memory.html"


def _mutants(document: dict[str, Any]) -> tuple[dict[str, str], str]:
    from gradgate.suites.report import selftest_page

    return {"selftest.html": selftest_page.render(document, len(document["mutants"]))}, "selftest.html"


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


MANY = 10**9
"""No run has as many claims or shares."""
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
