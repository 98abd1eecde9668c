"""The report of a run: a page for people, JUnit for machines, and the verdicts from which both are made.

To follow a refuted claim from its declaration to the page, read eight files:

1. ``references/<class>/claims.py``, or ``__init__.py`` next to it, declares the claim: search for its name.
2. ``suites/checks/__init__.py`` names the function that judges it.
3. That function, such as ``suites/checks/counts.py:counts``, raises ``Refuted`` with a sentence.
4. ``suites/engine/search.py`` makes a verdict of it, with the smallest problem that fails.
5. ``suites/judging/verdict.py`` holds the verdict and the command that reproduces it.
6. ``suites/judging/outcomes.py`` says whether that is a finding or a failure.
7. ``suites/judging/explain.py`` puts it into words.
8. ``suites/report/refuted.html`` shows the words on the page.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gradgate.suites.console.files import need_own, write_atomically
from gradgate.suites.report import junit, model, page, sarif

__all__ = ["files", "write"]


def files(document: dict[str, Any], domains: Sequence[dict[str, Any]] = ()) -> dict[str, str]:
    """The files of a report, name -> text: verdicts.json, junit.xml, failures.sarif, index.html and what it links to.

    A large run has a page for each class, next to ``index.html``, and a page with a plot has the plotting library
    there. The same document gives the same texts.

    Args:
        document: what ``gradgate verify --json`` writes, complete or cut off in the middle.
        domains: what ``gradgate domain --json`` writes; each is a figure of ``index.html``.
    """
    report = model.Report.of(document)
    made = {
        "verdicts.json": json.dumps(document, indent=1) + "\n",
        "junit.xml": junit.render(report),
        "failures.sarif": sarif.render(report),
    }
    return made | page.pages(report, domains)


def write(document: dict[str, Any], folder: Path) -> Path:
    """Write these files into a folder and return the path of the page. Each file is replaced in one step.

    The folder is made if it does not exist.

    Raises:
        UsageError: the folder cannot be written to, or somebody else's file has the name of one of these; then nothing
            is written.
    """
    made = files(document)
    for name in made:
        need_own(folder / name, "verdicts" if name == "verdicts.json" else "")
    for name, text in made.items():
        write_atomically(folder / name, text)
    return folder / "index.html"
