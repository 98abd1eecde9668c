"""Writing results: a file holds the old text or the new one, never half of it, and is never somebody else's file."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import stat
from pathlib import Path

from gradgate.references.contract import UsageError

MARK = '<meta name="generator" content="gradgate">'
"""What every page of gradgate has in its head, by which it is recognised when it is written again."""
HEAD = 2000
"""Characters from the start of a file in which its mark is looked for."""
MARKS = {
    ".html": (MARK, "<title>gradgate"),
    ".xml": ('<testsuites name="gradgate"',),
    ".sarif": ('"name": "gradgate"',),
    ".js": ("plotly.js v", "/* gradgate */"),
    ".css": ("/* gradgate */",),
    ".md": ("<!-- gradgate gate -->",),
}
"""Suffix of a file -> texts of which a file of gradgate has one near its start."""
KEYS = frozenset(("verdicts", "cells", "mutants", "families", "judged", "results", "findings", "rules"))
"""Keys of which a document of gradgate has one: what it lists."""


def write_atomically(path: Path, text: str) -> None:
    """Replace a file in one step. Its folder is made if it does not exist.

    A link stays a link: the file that it names is replaced. What is no regular file (a pipe, ``/dev/null``) is written
    to. A file that exists keeps its permissions. A character that UTF-8 cannot hold is written as its number.

    Raises:
        UsageError: the file cannot be written; says why.
    """
    content = text.encode("utf-8", errors="backslashreplace")
    try:
        if is_stream(path):
            with path.open("wb") as stream:
                stream.write(content)
            return
        target = Path(os.path.realpath(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".gradgate-{secrets.token_hex(8)}")
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
                file.write(content)
            with contextlib.suppress(FileNotFoundError):
                draft.chmod(stat.S_IMODE(target.stat().st_mode))
            os.replace(draft, target)
        except BaseException:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise
    except BrokenPipeError:  # whoever read the pipe has seen enough
        pass
    except (OSError, ValueError) as error:  # ValueError: a name with a null character
        raise UsageError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from None


def is_stream(path: Path) -> bool:
    """Whether something is there that is neither a regular file nor a folder, such as a pipe or a device.

    It takes a document once, when it is complete; a file takes every stage of it.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def need_own(path: Path, lists: str = "") -> None:
    """Check that writing a file loses nothing: it does not exist, is empty or a stream, or an earlier output.

    Args:
        path: the file.
        lists: what the document lists that will be written, such as ``verdicts``; "" for a page.

    Raises:
        UsageError: somebody else's file is there, or what another command has measured; or no file can be there.
    """
    try:
        above = next((parent for parent in path.parents if parent.exists()), None)
        if above and not above.is_dir():
            raise UsageError(f"cannot write {path}: {above} is no folder")
        if path.is_dir():
            raise UsageError(f"cannot write {path}: it is a folder")
        if not path.is_file() or not path.stat().st_size:
            return
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    if not lists:
        own = _has_mark(path)
    else:
        listed = _listed(path)
        if listed and lists not in listed:
            raise UsageError(f"{path} holds {', '.join(sorted(listed))}, which would be lost; give another name")
        own = bool(listed)
    if not own:
        raise UsageError(f"{path} is there and gradgate did not write it; give another name, or move it away")


def _has_mark(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            head = file.read(HEAD)
    except OSError:
        return False
    return any(mark in head for mark in MARKS.get(path.suffix, MARKS[".md"]))


def _listed(path: Path) -> frozenset[str]:
    """What a document lists; nothing if it is none of gradgate's."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return frozenset()
    return KEYS & document.keys() if isinstance(document, dict) else frozenset()
