"""What papers printed, and the files in which ``gradgate paper`` keeps what it measured of it."""

from __future__ import annotations

import importlib
import importlib.resources
import json
from pathlib import Path
from typing import Any

from gradgate.references import registry
from gradgate.references.errors import UsageError
from gradgate.references.published import Published

SCHEMA = 1
RESULTS = "paper.json"


def published(family: str | None) -> tuple[Published, ...]:
    """What a family's paper printed.

    Raises:
        UsageError: no such family, or it lists nothing.
    """
    if not family:
        raise UsageError(f"say which paper: --family {' | '.join(registry.families())}")
    package = registry.package(registry.family(family).name)
    found = _listed(f"{package}.paper.rows") if package else ()
    if not found:
        raise UsageError(f"{family} lists no figures of its paper to measure")
    return found


def _listed(place: str) -> tuple[Published, ...]:
    try:
        return tuple(getattr(importlib.import_module(place), "PUBLISHED", ()))
    except ModuleNotFoundError as error:
        if not f"{place}.".startswith(f"{error.name}."):
            raise  # the module is there, and imports one that is not
        return ()


def results_path(family: str) -> Path:
    """The file in which a family's results are kept: in its folder.

    Raises:
        UsageError: the family is in one file, or not known here.
    """
    package = registry.package(family)
    if not package:
        raise UsageError(f"{family} has no folder of its own here, in which results of its paper could be kept")
    return Path(str(importlib.resources.files(package))) / RESULTS


def read(path: Path) -> dict[str, Any]:
    """The results in a file; none if there is no file.

    Raises:
        UsageError: it is not such a file.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["schema"] != SCHEMA or not isinstance(found["results"], list):
            raise ValueError(f"schema {found['schema']!r}, not {SCHEMA}")
    except FileNotFoundError:
        return {"schema": SCHEMA, "results": []}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} holds no results of gradgate paper: {error!r}") from None
    return dict(found)
