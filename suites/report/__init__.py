"""The report of a run: a page for people, JUnit for machines, and the verdicts that both were made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gradgate.suites.console.files import write_atomically
from gradgate.suites.report import junit, model, page

__all__ = ["write"]


def write(document: dict[str, Any], folder: Path) -> Path:
    """Write ``index.html``, ``junit.xml`` and ``verdicts.json`` into `folder` and return the path of the page.

    The same document gives the same bytes. Each file is replaced in one step; the folder is made if there is none.

    Args:
        document: what ``gradgate verify --json`` writes, complete or cut off in the middle.

    Raises:
        UsageError: the folder cannot be written to.
    """
    report = model.Report.of(document)
    index = folder / "index.html"
    write_atomically(folder / "verdicts.json", json.dumps(document, indent=1) + "\n")
    write_atomically(folder / "junit.xml", junit.render(report))
    write_atomically(index, page.render(report))
    return index
