"""Figures and verdicts kept by content, so that what no commit has changed is not measured or judged again."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any

from gradgate.hw_profiles.cache import Cache


class CannotKeep(Exception):
    """The cache cannot be written. Cause: a full or read-only disk. Remedy: make room, or set GRADGATE_CACHE."""


class Store:
    """The measurement cache. It raises an error if it cannot keep a value, so a gate that cannot resume says so."""

    def __init__(self, cache: Cache | None = None) -> None:
        self._cache = cache or Cache()

    def beside(self, name: str) -> Store:
        """Another store, in a folder of this name beside this one."""
        return Store(Cache(self._cache.folder.parent / name))

    def get(self, key: str) -> dict[str, Any] | None:
        """The stored value; None if there is none or it is damaged."""
        return self._cache.get(key)

    def put(self, key: str, value: Mapping[str, Any]) -> None:
        """Keep a value.

        Raises:
            CannotKeep: the value cannot be read back.
        """
        self._cache.put(key, value)
        if self._cache.get(key) is None:
            folder = self._cache.folder
            near = next((place for place in (folder, *folder.parents) if place.exists()), folder)
            try:
                free = f"{shutil.disk_usage(near).free / 1e6:.1f} MB free"
            except OSError as error:
                free = str(error.strerror)
            raise CannotKeep(f"the cache {folder} cannot be written ({free}); make room, or set GRADGATE_CACHE")
