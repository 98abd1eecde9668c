"""The cells that are measured under every release, as one line of JSON: ``python -m gradgate.suites.releases.cells``.

They are listed once, in an environment with both frameworks, so that every release is measured at the same problems and
options. The problem of a method is the one at which the gate measures it.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from gradgate.references import registry
from gradgate.suites.gate import manifest

PROFILES = {"jax": ("nvidia-h100", "tpu-v5p", "nvidia-a100-40", "tpu-v5e"), "torch": ("cpu",)}
"""Framework -> the profiles on which a release is measured. Eager PyTorch makes the same tensors on every device."""


def listed(framework: str, profiles: Sequence[str]) -> list[dict[str, Any]]:
    """The cells of every reference method of a framework, the profiles of one method next to each other."""
    own = [m for m in registry.methods(framework=framework) if m.family not in registry.of_entry_points()]
    return [cell.to_dict() for method in own for cell in manifest.Gated(method).cells(tuple(profiles))]


def name(row: Mapping[str, Any]) -> str:
    """The name of a cell's line: the method, and a digest of its problem and options.

    If one of them changes, the name changes too: the line ends and another one begins.
    """
    text = json.dumps([row["spec"], row["options"]], sort_keys=True)
    return f"{manifest.owner(row)}~{hashlib.sha256(text.encode()).hexdigest()[:4]}"


if __name__ == "__main__":
    print(json.dumps(listed(sys.argv[1], sys.argv[2].split(","))))
