"""What the benchmarks share: the profile, and the cells that the newest code declares in the registry.

An old commit is measured at the current problems and options. A problem that changes gets another name: its line on the
dashboard ends and a new line starts. So all points of a line have the same meaning.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from gradgate.references import registry
from gradgate.references.contract import Method, installed

PROFILE = os.environ.get("GRADGATE_PROFILE", "cpu")
HOST = "cpu"
"""Where programs run; on every other profile they are only compiled."""


def derive(profile: str) -> list[dict[str, Any]]:
    """Every method, with its name and the cell that is measured for it on a profile, or None if there is no cell.

    The name ends in a digest of the problem and the options.
    """
    from gradgate.suites.gate import manifest

    entries = []
    for method in registry.methods():
        known = manifest.Gated(method)
        shown = method.key
        for cell in known.cells((HOST,)):
            row = cell.to_dict()
            text = json.dumps([row["spec"], row["options"]], sort_keys=True)
            shown += "~" + hashlib.sha256(text.encode()).hexdigest()[:4]
        # Eager bytes are the same on every profile, so PyTorch methods have a cell only on the host.
        cells = known.cells((profile,)) if method.framework == "jax" or profile == HOST else iter(())
        entries.append({"method": method.key, "name": shown, "cell": next((cell.to_dict() for cell in cells), None)})
    return sorted(entries, key=lambda entry: str(entry["name"]))


def _entries() -> list[dict[str, Any]]:
    kept = os.environ.get("GRADGATE_MANIFEST")
    return json.loads(Path(kept).read_text()) if kept else derive(PROFILE)


ENTRIES = _entries()
METHODS = [entry["method"] for entry in ENTRIES]


def declared(key: str) -> Method:
    """The method with a key, as this commit declares it.

    Raises:
        NotImplementedError: this commit has no such method, or its framework is not installed; asv then skips the
            benchmark.
    """
    found = next((method for method in registry.methods() if method.key == key), None)
    if found is None:
        raise NotImplementedError(f"this commit has no {key}")
    if not installed(found.framework):
        raise NotImplementedError(f"{found.framework} is not installed")
    return found


def on_host() -> None:
    """Raise NotImplementedError on a profile on which nothing can be run."""
    if PROFILE != HOST:
        raise NotImplementedError(f"programs run on {HOST} only, not on {PROFILE}")


def track(unit: str, version: str = "1") -> Any:
    """Give a benchmark its unit and its version; a new version means that old points are no longer comparable."""

    def mark(function: Any) -> Any:
        function.unit, function.version = unit, version
        return function

    return mark
