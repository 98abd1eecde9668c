"""The measurement cache: one small JSON file per key, content-addressed, safe under parallel and killed writers."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import platformdirs

VARIABLE = "GRADGATE_CACHE"


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
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return None

    def put(self, entry: str, value: Mapping[str, Any]) -> None:
        """Store a value of plain JSON types. If the folder cannot be written, nothing is stored or raised."""
        path = self._path(entry)
        content = json.dumps({"digest": _digest(entry, value), "value": value})
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
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
        """Remove every file of the cache; returns the number of entries removed. Parallel writers are not disturbed."""
        removed = 0
        for path in self._files():
            with contextlib.suppress(OSError):
                path.unlink()
                removed += path.suffix == ".json"
        return removed

    def _path(self, entry: str) -> Path:
        return self.folder / entry[:2] / f"{entry}.json"

    def _files(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if path.is_file()]


def _digest(entry: str, value: Mapping[str, Any]) -> str:
    return hashlib.sha256((entry + json.dumps(value, sort_keys=True)).encode()).hexdigest()
