"""Which line of source an operation belongs to: the innermost one of the author of the program."""

from __future__ import annotations

import functools
import linecache
from pathlib import Path

_SUITES = Path(__file__).parents[1]
_REFERENCES = _SUITES.parent / "references"
_AUTHORS = frozenset({"bugs", "calibration", "gallery", "guide", "tests"})
"""Rooms of gradgate that hold programs to be judged, and not what judges them."""


@functools.lru_cache(maxsize=4096)
def judges(file: str) -> bool:
    """Whether a file is a part of what judges: an author cannot mend a line of it.

    >>> judges(__file__), judges("/home/me/ops.py")
    (True, False)
    """
    path = Path(file)
    if _SUITES in path.parents:
        return path.relative_to(_SUITES).parts[0] not in _AUTHORS
    return path.parent == _REFERENCES


_FILES: dict[str, tuple[str, int]] = {}
"""Line as it is written -> the file's whole path, and the number."""


def line_at(file: str, number: int) -> str:
    """A line of source as ``file.py:12``."""
    line = f"{file.replace(chr(92), '/').rpartition('/')[2]}:{number}"
    _FILES[line] = file, number
    return line


def path_of(line: str) -> str:
    """A line that `line_at` has written with its file's path, relative to the working directory if it is below it.

    Returns:
        ``src/ops/file.py:12``; "" if the line is not known.
    """
    if line not in _FILES:
        return ""
    file, number = _FILES[line]
    path, here = Path(file), Path.cwd()
    return f"{(path.relative_to(here) if here in path.parents else path).as_posix()}:{number}"


def text_of(line: str) -> str:
    """The text of a line that `line_at` has written; "" if it cannot be read."""
    return linecache.getline(*_FILES[line]).strip() if line in _FILES else ""
