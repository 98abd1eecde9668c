"""Unite the documents of several shares of one piece of work, from any command with ``--shard``."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradgate.references.errors import UsageError

Document = dict[str, Any]
SAME = ("schema", "fingerprint", "sources", "examples", "seed", "problems", "asked", "code")
"""Fields that are equal in documents that belong together."""


def kind(document: Mapping[str, Any]) -> str:
    """What a document lists: a key of `LISTS`.

    Raises:
        KeyError: it has none of these keys.
    """
    found = [name for name in LISTS if name in document]
    if not found:
        raise KeyError("verdicts")
    return found[0]


def unite(documents: Mapping[str, Document]) -> tuple[Document, str]:
    """One document made of many, and a sentence about the shares that are missing ("" if none is missing).

    Args:
        documents: name of a file -> its content.

    Raises:
        UsageError: the documents do not belong together, or two of them hold the same row; says which.
    """
    (first, head), *others = documents.items()
    for name, other in others:
        differ = [key for key in SAME if head.get(key) != other.get(key)]
        if kind(other) != kind(head) or differ:
            what = f"their {differ[0]} differs" if differ else f"one lists {kind(head)}, the other {kind(other)}"
            raise UsageError(f"{first} and {name} do not belong together: {what}")
    missing = _missing(documents)
    united = {key: value for key, value in head.items() if key != "shard"}
    united[kind(head)] = LISTS[kind(head)](documents)
    for key in ("laws", "flakes"):
        if key in head:
            united[key] = list(itertools.chain.from_iterable(other[key] for other in documents.values()))
    if "silent" in head:
        united["silent"] = _seeds("silent", documents)
    if "readings" in head:
        united["readings"] = {
            name: one for other in documents.values() for name, one in other.get("readings", {}).items()
        }
    if "claims" in head:
        shards = [other["shard"]["total"] for other in documents.values() if "shard" in other]
        united["claims"] = shards[0] if shards else sum(other["claims"] for other in documents.values())
    if "formulas" in head:
        from gradgate.suites.selftest import summary  # only a checkout has it

        united = summary.document(united["mutants"], {key: united[key] for key in united if key != "mutants"})
    return united, missing


def _missing(documents: Mapping[str, Document]) -> str:
    """The sentence about missing shares.

    Raises:
        UsageError: a share belongs to another partition or is there twice, or a document is not a share.
    """
    seen: dict[int, str] = {}
    of = {name: document["shard"]["of"] for name, document in documents.items() if "shard" in document}
    if not of:
        return ""
    if len(of) < len(documents) or len({(of[name], documents[name]["shard"]["total"]) for name in of}) > 1:
        said = ", ".join(f"{name} of {of.get(name, 'none')}" for name in documents)
        raise UsageError(f"these are not shares of one piece of work: {said}")
    for name, document in documents.items():
        index = document["shard"]["index"]
        if index in seen:
            raise UsageError(f"{seen[index]} and {name} are both share {index}/{of[name]}; give one of them")
        seen[index] = name
    count = next(iter(of.values()))
    left = [f"{index}/{count}" for index in range(1, count + 1) if index not in seen]
    return f"missing: share {', '.join(left)}" if left else ""


def _listed(name: str, key: Callable[[Mapping[str, Any]], Any]) -> Callable[[Mapping[str, Document]], list[Any]]:
    """A function that unites lists of rows. No row may be in two documents."""

    def united(documents: Mapping[str, Document]) -> list[Any]:
        rows: dict[Any, tuple[str, Any]] = {}
        for file, document in documents.items():
            for row in document[name]:
                if key(row) in rows:
                    if rows[key(row)][0] == file:
                        raise UsageError(f"{file} holds {key(row)} twice; keep one of them")
                    raise UsageError(f"{rows[key(row)][0]} and {file} both hold {key(row)}; give one of them")
                rows[key(row)] = (file, row)
        return [row for _, row in rows.values()]

    return united


def _families(documents: Mapping[str, Document]) -> dict[str, Any]:
    """Family -> piece of work -> what was measured."""
    found: dict[str, Any] = {}
    for document in documents.values():
        for family, pieces in document["families"].items():
            found.setdefault(family, {}).update(pieces)
    return found


def _seeds(key: str, documents: Mapping[str, Document]) -> dict[str, list[int]]:
    """Task -> the seeds that the documents list for it under a key, such as those under which it was judged."""
    found: dict[str, list[int]] = {}
    for document in documents.values():
        for task, seeds in document.get(key, {}).items():
            found[task] = sorted({*found.get(task, []), *seeds})
    return found


def _results(documents: Mapping[str, Document]) -> list[Any]:
    """The figures of a paper. If two files hold one, that of the share it belongs to is taken, else the later one."""
    best: dict[str, tuple[tuple[bool, str], Any]] = {}
    for document in documents.values():
        own = set(document.get("shard", {}).get("keys", ()))
        for row in document["results"]:
            rank = (row["key"] in own, row["date"])
            if row["key"] not in best or rank > best[row["key"]][0]:
                best[row["key"]] = (rank, row)
    return [row for _, row in best.values()]


def _names(fields: Sequence[str]) -> Callable[[Mapping[str, Any]], str]:
    return lambda row: ":".join(str(row.get(field, "")) for field in fields)


LISTS: dict[str, Callable[[Mapping[str, Document]], Any]] = {
    "verdicts": _listed("verdicts", _names(("family", "method", "framework", "claim", "target", "profile"))),
    "cells": _listed("cells", _names(("family", "method", "framework", "profile", "spec", "options"))),
    "mutants": _listed("mutants", _names(("name",))),
    "families": _families,
    "judged": functools.partial(_seeds, "judged"),
    "results": _results,
}
"""What a document lists -> the function that unites the lists of several documents."""
