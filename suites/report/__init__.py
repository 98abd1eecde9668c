"""The report of a run: a page for people, JUnit for machines, and the verdicts from which both are made.

To follow a refuted claim from its declaration to the page, read eight files:

1. ``references/<class>/claims.py``, or ``__init__.py`` next to it, declares the claim: search for its name.
2. ``suites/checks/__init__.py`` names the function that judges it.
3. That function, such as ``suites/checks/counts.py:counts``, raises ``Refuted`` with a sentence.
4. ``suites/judging/engine.py`` makes a verdict of it, with the smallest problem that fails.
5. ``suites/judging/verdict.py`` holds the verdict and the command that reproduces it.
6. ``suites/judging/outcomes.py`` says whether that is a finding or a failure.
7. ``suites/judging/explain.py`` puts it into words.
8. ``suites/report/refuted.html`` shows the words on the page.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gradgate.suites.console.files import write_atomically
from gradgate.suites.report import junit, model, page

__all__ = ["write"]


def write(document: dict[str, Any], folder: Path) -> Path:
    """Write ``index.html``, ``junit.xml`` and ``verdicts.json`` into `folder` and return the path of the page.

    A large run of several classes has a page for each class, next to ``index.html``. The same document gives the same
    bytes. Each file is replaced in one step. The folder is made if it does not exist.

    Args:
        document: what ``gradgate verify --json`` writes, complete or cut off in the middle.

    Raises:
        UsageError: the folder cannot be written to.
    """
    report = model.Report.of(document)
    index = folder / "index.html"
    write_atomically(folder / "verdicts.json", json.dumps(document, indent=1) + "\n")
    write_atomically(folder / "junit.xml", junit.render(report))
    for name, text in page.pages(report).items():
        write_atomically(folder / name, text)
    return index
