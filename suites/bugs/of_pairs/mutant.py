"""A mutant of a pair: the pair's module with a piece of text replaced, and the claim that must refute it.

It differs from `gradgate.suites.bugs.mutant.Mutant`, which belongs to a registered class of problems: a pair is its own
class.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import sys
from dataclasses import dataclass
from types import ModuleType
from unittest import mock

from gradgate.suites.bugs.replacing import replaced
from gradgate.suites.engine.search import judge
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.subject import Subject
from gradgate.suites.judging.verdict import Task, Verdict
from gradgate.suites.pairs.pair import Pair

PACKAGE = "gradgate.suites.bugs.of_pairs"
EXAMPLES = 24
"""Number of problems for each claim, the same as in `gradgate.parametrize`."""


@dataclass(frozen=True)
class PairMutant:
    """A pair into whose function one bug was planted.

    Attributes:
        name: ``framework.pair.bug``, unique.
        story: the mechanism in a sentence.
        pair: ``module:name`` of the pair, in this package.
        kill: the claim that must refute it.
        edits: (old, new): text that occurs once in the pair's module, and the text that replaces it.
    """

    name: str
    story: str
    pair: str
    kill: str
    edits: tuple[tuple[str, str], ...]

    @property
    def framework(self) -> str:
        """``jax`` or ``torch``."""
        return self.name.partition(".")[0]

    @property
    def target(self) -> str:
        """The name by which `gradgate verify` judges it."""
        return f"{PACKAGE}.corpus:{self.name}"

    def broken(self) -> Pair:
        """The pair with the bug; its reference is unchanged.

        Raises:
            LookupError: an edit's text does not occur exactly once.
        """
        place, _, name = self.pair.partition(":")
        found: Pair = getattr(edited_module(f"{PACKAGE}.{place}", self.edits, self.name), name)
        return _known(dataclasses.replace(found, name=self.name.replace(".", "_")), self.target)


def unbroken(pair: str) -> Pair:
    """The pair ``module:name`` of this package, without a bug."""
    place, _, name = pair.partition(":")
    found: Pair = getattr(importlib.import_module(f"{PACKAGE}.{place}"), name)
    return _known(dataclasses.replace(found, name=pair.replace(":", "_")), f"{PACKAGE}.{pair}")


@functools.lru_cache(maxsize=256)
def _subject(target: str, pair: Pair) -> Subject:
    return Subject(pair.lowered, pair)


def _known(pair: Pair, target: str) -> Pair:
    return pair.found_at(target)


def judged(pair: Pair, claim: str, examples: int = EXAMPLES, seed: int = 0) -> Verdict:
    """The verdict on one claim of a pair, in this process.

    Cost: 0.1 to 10 s; most of it compilation.
    """
    method = pair.lowered
    task = Task.of(method, method.claim(claim), pair.target)
    return judge(task, _subject(pair.target, pair), Run(examples, seed))


def edited_module(module: str, edits: tuple[tuple[str, str], ...], name: str) -> ModuleType:
    """Run a module again with edits (old, new) of its text; while it runs, it replaces itself in ``sys.modules``.

    Raises:
        LookupError: an edit's text does not occur exactly once.
    """
    text = inspect.getsource(importlib.import_module(module))
    for old, new in edits:
        try:
            text = replaced(text, old, new)
        except LookupError as error:
            raise LookupError(f"{module}: {error}: carry {name} over") from None
    made = ModuleType(module)
    with mock.patch.dict(sys.modules, {module: made}):
        exec(compile(text, f"<{module}, {name}>", "exec"), made.__dict__)
    return made
