"""The measurement cache: one small JSON file per key, content-addressed, safe under parallel and killed writers."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import platformdirs

VARIABLE = "GRADGATE_CACHE"
DRAFT = ".writing-"
"""The start of the names of files that are being written."""
START = b'{"digest": "'
"""The first bytes of every entry."""
_FOLDER, _ENTRY = re.compile("[0-9a-f]{2}"), re.compile(r"[0-9a-f]{64}\.json")


def key(program: str, facts: Mapping[str, str]) -> str:
    """Key of a compiled program: sha256 over its lowered text and everything else that can change its bytes."""
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    digest.update(b"\0")
    digest.update(program.encode())
    return digest.hexdigest()


class Cache:
    """A folder of entries: ``folder``, or else ``$GRADGATE_CACHE``, or else the user's cache folder.

    Any number of processes may read and write at once. An entry is written to a temporary file, which is then renamed,
    so a reader sees all of it or nothing. The digest in the entry detects a file that is incomplete on the disk.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        chosen = folder or os.environ.get(VARIABLE) or platformdirs.user_cache_dir("gradgate", appauthor=False)
        self.folder = Path(chosen) / "measurements"

    def get(self, entry: str) -> dict[str, Any] | None:
        """Return the stored value, or None: absent, unreadable, half-written and corrupt entries are all misses."""
        try:
            stored = json.loads(self._path(entry).read_bytes())
            value = stored["value"]
            if isinstance(value, dict) and stored["digest"] == _digest(entry, value):
                return value
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            pass
        return None

    def put(self, entry: str, value: Mapping[str, Any]) -> None:
        """Store a value of plain JSON types. If the folder cannot be written, nothing is stored or raised."""
        path = self._path(entry)
        content = json.dumps({"digest": _digest(entry, value), "value": value})
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=DRAFT)
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(content)
                os.replace(name, path)
            except BaseException:
                os.unlink(name)
                raise

    def size(self) -> tuple[int, int]:
        """Return the number of entries and the bytes of all files, including files that killed writers left behind."""
        entries = total = 0
        for path in self._files():
            with contextlib.suppress(OSError):
                total += path.stat().st_size
                entries += path.suffix == ".json"
        return entries, total

    def clear(self) -> int:
        """Remove every file of the cache; returns the number of entries removed. Parallel writers are not disturbed.

        A file belongs to the cache if its place, its name and the start of its text are those of an entry. All others
        stay, whoever put them there.
        """
        removed = 0
        for path in self._files():
            with contextlib.suppress(OSError):
                path.unlink()
                removed += path.suffix == ".json"
        return removed

    def _path(self, entry: str) -> Path:
        return self.folder / entry[:2] / f"{entry}.json"

    def _files(self) -> list[Path]:
        """The entries, and what killed writers left behind. No link is followed."""
        found = []
        for folder in _listed(self.folder):
            if _FOLDER.fullmatch(folder.name) and folder.is_dir(follow_symlinks=False):
                found += [Path(file.path) for file in _listed(folder.path) if _is_own(file, folder.name)]
        return found


def _listed(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError:
        return []


def _is_own(file: os.DirEntry[str], folder: str) -> bool:
    """Whether this class wrote a file. A writer that was killed early leaves an empty one."""
    named = file.name.startswith(DRAFT) or (_ENTRY.fullmatch(file.name) and file.name.startswith(folder))
    try:
        if not named or not file.is_file(follow_symlinks=False):
            return False
        with open(file.path, "rb") as opened:
            return START.startswith(opened.read(len(START)))
    except OSError:
        return False


def _digest(entry: str, value: Mapping[str, Any]) -> str:
    return hashlib.sha256((entry + json.dumps(value, sort_keys=True)).encode()).hexdigest()
