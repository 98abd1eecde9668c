"""Bugs of the public entry points: pairs whose function runs with a change in the source of its module.

An entry point is judged as a pair, which is declared in ``entry_pairs/<class>.py``. The bugs are in
``entries_*.py``, one module for each class.
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
    """A pair of an entry point into which one bug was planted.

    Attributes:
        name: unique.
        story: the mechanism in a sentence.
        pair: ``class:name`` of the pair, in ``entry_pairs``.
        kill: the claim that must refute it.
        module: the module of the entry point, within ``gradgate.references``.
        edits: (old, new): text that occurs once in the module, and the text that replaces it.
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
        """The pair without the bug."""
        family, _, name = self.pair.partition(":")
        found: Pair = getattr(importlib.import_module(f"gradgate.suites.bugs.entry_pairs.{family}"), name)
        return found

    def broken(self) -> Pair:
        """The pair with the bug; its reference is unchanged.

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
    """One bug, in each framework for which edits are given.

    Args:
        entry: ``class:module`` of the entry point, in ``in_jax`` and ``in_torch``.
        pair: the name of the pair without the framework, as in ``linear_attention`` for ``linear_attention_jax``.
        name, story, kill: as for `EntryMutant`.
        torch, jax: the edits as old, new, old, new, …
    """
    family, _, module = entry.partition(":")
    return tuple(
        EntryMutant(
            f"{family}.{framework}.{module}.{name}",
            story,
            f"{family}:{pair}_{framework}",
            kill,
            f"{family}.in_{framework}.{module}",
            tuple(zip(edits[::2], edits[1::2], strict=True)),
        )
        for framework, edits in (("jax", jax), ("torch", torch))
        if edits
    )
