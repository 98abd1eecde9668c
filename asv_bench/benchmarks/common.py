"""What the benchmarks share: the methods of the registry, and the profile."""

from __future__ import annotations

import os
from typing import Any

from gradgate.references import registry
from gradgate.references.contract import Method, installed

PROFILE = os.environ.get("GRADGATE_PROFILE", "cpu")
HOST = "cpu"
"""Where programs run; on every other profile they are only compiled."""

METHODS = sorted(method.key for method in registry.methods())


def declared(key: str) -> Method:
    """The method of a key, as this commit declares it.

    Raises:
        NotImplementedError: it does not, or its framework is missing: asv's way to say "not here".
    """
    found = next((method for method in registry.methods() if method.key == key), None)
    if found is None:
        raise NotImplementedError(f"this commit has no {key}")
    if not installed(found.framework):
        raise NotImplementedError(f"{found.framework} is not installed")
    return found


def on_host() -> None:
    """Raise NotImplementedError on a profile where nothing can be run."""
    if PROFILE != HOST:
        raise NotImplementedError(f"programs run on {HOST} only, not on {PROFILE}")


def track(unit: str, version: str = "1") -> Any:
    """Give a benchmark its unit and its version, which says when old points stop being comparable."""

    def mark(function: Any) -> Any:
        function.unit, function.version = unit, version
        return function

    return mark
