"""Bugs of the public entry points: a pair whose function runs with its module's text changed in one place.

An entry point is judged as a pair that stands in ``references/<class>/own_pairs.py``. Its bugs stand in
``entries_*.py``, by class.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import sys
from dataclasses import dataclass
from typing import Any
from unittest import mock

from gradgate.suites.bugs.of_pairs.mutant import edited_module
from gradgate.suites.pairs.pair import Pair

ROOM = "gradgate.references"


@dataclass(frozen=True)
class EntryMutant:
    """A pair of an entry point, with one bug put into the entry point.

    Attributes:
        name: unique.
        story: the mechanism in a sentence.
        pair: ``class:name`` of the pair, in that class's ``own_pairs``.
        kill: the claim that must refute it.
        module: where the entry point is, within ``gradgate.references``.
        edits: (old, new): text that occurs once in the module, and what takes its place.
    """

    name: str
    story: str
    pair: str
    kill: str
    module: str
    edits: tuple[tuple[str, str], ...]

    @property
    def framework(self) -> str:
        """``jax`` or ``torch``."""
        return "jax" if ".in_jax." in self.module else "torch"

    def unbroken(self) -> Pair:
        """The pair as it is."""
        family, _, name = self.pair.partition(":")
        found: Pair = getattr(importlib.import_module(f"{ROOM}.{family}.own_pairs"), name)
        return found

    def broken(self) -> Pair:
        """The pair with the bug; its reference is as it was.

        Raises:
            LookupError: an edit's text does not occur exactly once.
        """
        place, pair = f"{ROOM}.{self.module}", self.unbroken()
        made = edited_module(place, self.edits, self.name)
        function: Any = pair.function

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            with mock.patch.dict(sys.modules, {place: made}):  # the pair's function imports it when it is called
                return function(*args, **options)

        return dataclasses.replace(pair, function=call, name=self.name.replace(".", "_"))


def entry_bugs(
    entry: str, pair: str, name: str, story: str, kill: str, *, torch: tuple[str, ...] = (), jax: tuple[str, ...] = ()
) -> tuple[EntryMutant, ...]:
    """One mechanism in each framework for which an edit is given.

    Args:
        entry: ``class:module`` of the entry point, in ``in_jax`` and ``in_torch``.
        pair: the name of the pair without the framework, as in ``linear_attention`` for ``linear_attention_jax``.
        name, story, kill: as of `EntryMutant`.
        torch, jax: old, new, old, new, …
    """
    family, _, module = entry.partition(":")
    return tuple(
        EntryMutant(
            f"{family}.{framework}.{module}.{name}", story, f"{family}:{pair}_{framework}", kill,
            f"{family}.in_{framework}.{module}", tuple(zip(edits[::2], edits[1::2], strict=True)),
        )
        for framework, edits in (("jax", jax), ("torch", torch)) if edits
    )  # fmt: skip
