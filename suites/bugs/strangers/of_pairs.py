"""The pairs of `gradgate.suites.bugs.of_pairs` as tasks: functions are right candidates, mutants wrong ones.

A candidate's text is that of the pair's module without its declarations, so it needs nothing of gradgate.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass

from gradgate.suites.bugs.of_pairs.corpus import MUTANTS, pairs
from gradgate.suites.bugs.of_pairs.mutant import PACKAGE
from gradgate.suites.bugs.replacing import replaced
from gradgate.suites.pairs.pair import Pair

SEEN = (
    "tree",
    "outputs",
    "gradient_exact",
    "gradient_float64",
    "gradient_float32",
    "gradient_bfloat16",
    "stability",
    "cotangents",
    "options",
    "layouts",
    "each_leaf_alone",
    "not_finite",
    "deterministic",
)
"""Claims whose mutants a court has to refute. It does not compare formulas, only numbers."""


@dataclass(frozen=True)
class Heard:
    """One candidate for a task of the corpus.

    Attributes:
        task: the target of the task.
        name: ``handwritten`` or ``plain`` for right candidates, the mutant's name for wrong ones.
        function: the candidate's function.
        right: whether it must be upheld.
    """

    task: str
    name: str
    text: str
    function: str
    right: bool


def tasks(framework: str) -> Iterator[tuple[str, Pair]]:
    """(target, pair) of every pair."""
    for place in pairs():
        module, _, name = place.partition(":")
        if module.partition("_")[0] == framework:
            found: Pair = getattr(importlib.import_module(f"{PACKAGE}.{module}"), name)
            yield f"{PACKAGE}.{place}", found


def heard(target: str, pair: Pair) -> Iterator[Heard]:
    """The candidates for one task: two right ones and its mutants."""
    module = target.partition(":")[0]
    text = inspect.getsource(importlib.import_module(module))
    roles = [("function", "handwritten")] + [("reference", "plain")] * (set(pair.options) == set(pair.shared))
    functions = {role: getattr(pair, role).__name__ for role in ("function", "reference")}
    for role, name in roles:
        yield Heard(target, name, bare(text), functions[role], True)
    for mutant in MUTANTS:
        if f"{PACKAGE}.{mutant.pair}" == target and mutant.kill in SEEN:
            changed = text
            for old, new in mutant.edits:
                changed = replaced(changed, old, new)
            yield Heard(target, mutant.name, bare(changed), functions["function"], False)


def bare(text: str) -> str:
    """A module of pairs without what it takes from gradgate, and without its pairs."""
    body = []
    for node in ast.parse(text).body:
        of_gradgate = isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gradgate")
        called = node.value.func if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) else None
        if not of_gradgate and not (isinstance(called, ast.Name) and called.id == "Pair"):
            body.append(node)
    return ast.unparse(ast.Module(body, []))
