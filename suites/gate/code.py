"""The identity of the user's code, by which shares of one piece of work are known to be of the same code."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from gradgate.references.errors import UsageError
from gradgate.suites.gate.git import CODE, Repository


def identity(folder: Path) -> str:
    """A hash of the files of a folder: of a git repository the tracked ones and new code, else all code.

    Args:
        folder: the working directory, from which the user's files are named.
    """
    found = hashlib.sha256()
    for path in sorted(_files(folder)):
        found.update(f"{path.relative_to(folder).as_posix()}\0".encode())
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    try:
        named = Repository.around(folder).files(folder)
    except UsageError:  # no git repository
        named = [path for path in folder.rglob("*") if path.suffix in CODE]
    yield from (path for path in named if path.is_file())
