"""The cells that are measured under every release, as one line of JSON: ``python -m gradgate.suites.releases.cells``.

They are listed once, so that every release is measured at the same problems and options: those at which the gate
measures. In gradgate's own files they are the cells of the reference methods; listing these needs both frameworks. In
any other folder they are the cells of the pairs that its pyproject.toml names.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from gradgate.suites.gate import manifest
from gradgate.suites.settings import Settings

PROFILES = {"jax": ("nvidia-h100", "tpu-v5p", "nvidia-a100-40", "tpu-v5e"), "torch": ("cpu",)}
"""Framework -> the profiles on which a release is measured. Eager PyTorch makes the same tensors on every device."""


PREFIX = "of_"
"""Comes before the name of a library's file in its project, because ``flax.py`` would hide the package ``flax``."""


def listed(framework: str, profiles: Sequence[str]) -> list[dict[str, Any]]:
    """The cells of every method of a framework, the profiles of one method next to each other."""
    settings = Settings.read(Path.cwd())
    gated = manifest.gated(settings, own=not settings.pairs)
    return [
        cell.to_dict()
        for known in gated
        if known.declared.framework == framework
        for cell in known.cells(tuple(profiles))
    ]


def name(row: Mapping[str, Any]) -> str:
    """The name of a cell's line: a library's file, if it is of one, the method, and a digest of problem and options.

    If one of them changes, the name changes too: the line ends and another one begins.
    """
    text = json.dumps([row["spec"], row["options"]], sort_keys=True)
    file = PurePath(str(row["origin"]).partition(":")[0]).stem.removeprefix(PREFIX) if row.get("origin") else ""
    library = f"{file}/" if file else ""
    return f"{library}{manifest.owner(row)}~{hashlib.sha256(text.encode()).hexdigest()[:4]}"


if __name__ == "__main__":
    print(json.dumps(listed(sys.argv[1], sys.argv[2].split(","))))
