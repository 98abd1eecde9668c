"""Structural bugs: the source of a method with a piece of text replaced, run as separate modules.

Such a mutant is broken at exactly one place, for example in the recurrence, the schedule or the layer; the rest is the
code of the reference. If the text of an edit no longer occurs exactly once, the edit raises. So the bug has to be
adapted to the new implementation, and cannot disappear unnoticed.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from gradgate.references.contract import Problem
from gradgate.suites.bugs.mutant import Answer, Function
from gradgate.suites.bugs.replacing import replaced


@dataclass(frozen=True)
class Edit:
    """One replacement of text in a module of the method's family.

    Attributes:
        module: name within the family's package, such as ``in_torch.methods``.
        old: text that occurs there exactly once.
        new: the text that replaces it.
    """

    module: str
    old: str
    new: str


def edited(implementation: str, edits: Sequence[Edit], adopt: bool = True) -> Function:
    """The function ``module:function`` with edited modules of its family; the modules in use are not changed.

    With `adopt`, the function takes a Problem of the modules in use; without it, the function is returned unchanged.

    Raises:
        LookupError: an edit's text does not occur exactly once.
    """
    place, _, name = implementation.rpartition(":")
    package = _family_package(place)
    importlib.import_module(place)
    texts = {f"{package}.{edit.module}": "" for edit in edits}
    for module in texts:
        text = inspect.getsource(importlib.import_module(module))
        for edit in edits:
            if f"{package}.{edit.module}" == module:
                try:
                    text = replaced(text, edit.old, edit.new)
                except LookupError as error:
                    raise LookupError(f"{module}: {error}: carry the bug over") from None
        texts[module] = text
    with _in_place_of(_remade(package, place, texts), texts) as made:
        function: Function = getattr(made[place], name)
        problems = made.get(f"{package}.problem")
    return function if problems is None or not adopt else _adopting(function, problems)


def _remade(package: str, place: str, texts: Mapping[str, str]) -> list[str]:
    """The edited modules, and those of the package that import them and that `place` needs, in order of import."""
    order: list[str] = []

    def visit(module: str) -> bool:
        """Whether this module has to be run again."""
        if module in order:
            return True
        touched = [visit(name) for name in _imported(package, _source(module)) if name != module]
        if module in texts or any(touched):
            order.append(module)
            return True
        return False

    visit(place)
    return order


def _family_package(place: str) -> str:
    """The nearest package above a module that has a module ``problem``."""
    package = place.rpartition(".")[0]
    while importlib.util.find_spec(f"{package}.problem") is None:
        package = package.rpartition(".")[0]
    return package


@functools.lru_cache(maxsize=1_000)
def _imported(package: str, text: str) -> tuple[str, ...]:
    """The modules of a package, at any depth, that a text imports; kept, because hundreds of mutants ask again."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    within = [name for name in dict.fromkeys(found) if name.startswith(f"{package}.")]
    return tuple(name for name in within if _is_module(name))


def _is_module(name: str) -> bool:
    """Whether this is the name of a module of one file, and not of a package or of something in a module."""
    try:
        found = importlib.util.find_spec(name)  # this imports the packages above it
    except ModuleNotFoundError:  # a parent is not a package
        return False
    return found is not None and found.submodule_search_locations is None


def _source(module: str) -> str:
    return inspect.getsource(importlib.import_module(module))


@contextlib.contextmanager
def _in_place_of(order: Sequence[str], texts: Mapping[str, str]) -> Iterator[dict[str, ModuleType]]:
    """Run the modules again, edited or not; meanwhile they replace the modules in use."""
    kept = {name: sys.modules[name] for name in order}
    made: dict[str, ModuleType] = {}

    def put(name: str, module: ModuleType) -> None:
        sys.modules[name] = module
        package, _, short = name.rpartition(".")
        setattr(sys.modules[package], short, module)  # ``from package import module`` reads this attribute

    try:
        for name in order:
            made[name] = ModuleType(name)
            made[name].__file__, made[name].__package__ = kept[name].__file__, kept[name].__package__
            put(name, made[name])
            text = texts.get(name) or inspect.getsource(kept[name])
            exec(compile(text, f"<{name}, edited>", "exec"), made[name].__dict__)
        yield made
    finally:
        for name, module in kept.items():
            put(name, module)


def _adopting(function: Function, problems: ModuleType) -> Function:
    """The function, called with a Problem of the edited module's class, so that the problem's methods are edited."""

    def run(problem: Problem, **options: Any) -> Answer:
        cls, spec = (getattr(problems, type(item).__name__) for item in (problem, problem.spec))
        same = spec(**dataclasses.asdict(problem.spec))
        given = cls(same, problem.backend, problem.params, problem.data)
        return function(given.counted(problem.on_call) if problem.on_call else given, **options)

    return run
