"""What papers printed, the files in which ``gradgate paper`` keeps its measurements, and the verdicts."""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gradgate.references import ledger, registry
from gradgate.references.derived import derive, is_derived
from gradgate.references.errors import UsageError
from gradgate.references.published import Judged, Published, judge
from gradgate.suites.schemas import documents

SCHEMA = 1
RESULTS = "paper.json"
NOT_YET = "not measured yet"
"""The ``problem`` field of a figure that was not measured yet."""


def listed(family: str) -> tuple[Published, ...]:
    """The figures of its paper that a family lists; none if it lists none, or if the family is a single file.

    Raises:
        UsageError: no such family; a declaration contradicts itself.
    """
    package = registry.package(registry.family(family).name)
    return ledger.rows(package) if package else ()


def published(family: str | None) -> tuple[Published, ...]:
    """What a family's paper printed.

    Raises:
        UsageError: there is no such family, or it lists nothing.
    """
    if not family:
        raise UsageError(f"say which paper: --family {' | '.join(registry.families())}")
    found = listed(family)
    if not found:
        raise UsageError(f"{family} lists no figures of its paper to measure")
    return found


def results_path(family: str) -> Path:
    """The file in which a family's results are kept: ``paper.json`` in its folder.

    Raises:
        UsageError: the family is a single file, or not known here.
    """
    package = registry.package(family)
    if not package:
        raise UsageError(f"{family} has no folder here in which results of its paper could be kept")
    return Path(str(importlib.resources.files(package))) / RESULTS


def read(path: Path) -> dict[str, Any]:
    """The results in a file; none if there is no file.

    Raises:
        UsageError: it is not such a file.
    """
    try:
        return documents.read(path, "paper")
    except FileNotFoundError:
        return {"schema": SCHEMA, "results": []}


def with_verdict(item: Published, result: Mapping[str, Any]) -> dict[str, Any]:
    """A result with the current declaration of its figure and the verdict. Nothing is measured.

    Args:
        item: the figure as it is listed.
        result: a dict with at least `ours` and `problem`.
    """
    ours, expects = result["ours"], item.expects
    known = isinstance(ours, (int, float)) and bool(item.printed)
    judged = judge(item, ours, result.get("problem", ""))
    return dict(result) | {
        "printed": item.printed,
        "ratio": ours / item.printed if known else None,
        "reason": item.reason,
        "kind": item.kind,
        "unlike": item.unlike,
        "expected": expects.verdict if expects else "",
        "agreement": expects.agreement.words() if expects else "",
        "because": expects.agreement.because if expects else "",
        "instead": expects.instead if expects else None,
        "outcome": judged.outcome if judged else "",
        "sentence": judged.sentence if judged else "",
    }


def stored(family: str) -> list[dict[str, Any]]:
    """Every listed figure of a family with its kept result and its verdict; `ours` is None if no result is kept.

    Raises:
        UsageError: what is listed or kept is wrong; says what.
    """
    found = listed(family)
    return complete(found, read(results_path(family))["results"]) if found else []


def complete(items: Sequence[Published], results: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every figure of a paper, in order, with its result and its verdict. Figures derived from others are computed."""
    measured = {row["key"]: row for row in results}
    return [
        with_verdict(
            item, _derived(item, items, measured) if is_derived(item) else measured.get(item.key) or blank(item)
        )
        for item in items
    ]


def _derived(item: Published, items: Sequence[Published], measured: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    try:
        ours, date = derive(item, items, measured)
    except LookupError as error:
        return blank(item) | {"problem": str(error)}
    return blank(item) | {"ours": ours, "date": date, "problem": ""}


def blank(item: Published) -> dict[str, Any]:
    """What is known of a figure before it is measured."""
    return {
        "key": item.key,
        "place": item.place,
        "series": item.series,
        "x": item.x,
        "unit": item.unit,
        "ours": None,
        "problem": NOT_YET,
        "seconds": 0.0,
        "date": "",
        "fingerprint": {},
    }


def judged(rows: Iterable[Mapping[str, Any]]) -> dict[str, Judged]:
    """The key of each printed figure -> its verdict, from rows that `told` returned."""
    return {row["key"]: Judged(row["outcome"], row["sentence"]) for row in rows if row["outcome"]}
