"""Every registered method's docstring has one shape, names every option, and promises only errors that exist.

The other public functions of the modules that define methods use the same sections, but only those that they need.
"""

from __future__ import annotations

import builtins
import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import gradgate.references
from gradgate.references import registry
from gradgate.references.contract import FRAMEWORKS, Method, installed

SECTIONS = ("Args", "Returns", "Raises", "Source", "Stores", "Computes", "Not for")
"""Headings in their order, each alone on its line. Raises may be missing, because a method may raise no errors."""
OTHERS = ("Args", "Attributes", "Yields", *SECTIONS[1:])
"""The sections that the docstring of a helper or a class may have, in order."""
HEADING = re.compile(r"^([A-Z][A-Za-z ]*):$")
ENTRY = re.compile(r"^    (\w+): \S")
ROOM = "gradgate.references"
KEYS = [method.key for method in registry.methods()]
MODULES = sorted(
    f"{ROOM}.{path.parent.parent.name}.{path.parent.name}.{path.stem}"
    for path in Path(gradgate.references.__file__).parent.glob("*/*/*.py")
    if path.parent.name in ("in_jax", "in_torch") or path.stem.startswith("as_printed")
)


def sections(docstring: str) -> list[tuple[str, str]]:
    """The (heading, text) pairs of a docstring, in order. The text before the first heading has the heading ``""``."""
    found: list[tuple[str, list[str]]] = [("", [])]
    for line in inspect.cleandoc(docstring).splitlines():
        heading = HEADING.match(line)
        if heading:
            found.append((heading[1], []))
        else:
            found[-1][1].append(line)
    return [(heading, "\n".join(lines).strip("\n")) for heading, lines in found]


def entries(text: str) -> list[str]:
    """The names that a section explains. Each name is at the start of a line, and a colon follows it."""
    return [match[1] for match in map(ENTRY.match, text.splitlines()) if match]


def errors_of(module: ModuleType) -> set[str]:
    """Names of the exceptions that a module knows: built-in ones, its own, and those of the modules that it uses."""
    seen: set[str] = set()
    waiting = [module.__name__]
    names = {name for name, value in vars(builtins).items() if _is_error(value)}
    while waiting:
        name = waiting.pop()
        if name in seen or not name.startswith(ROOM):
            continue
        seen.add(name)
        for bound, value in vars(importlib.import_module(name)).items():
            names |= {bound} if _is_error(value) else set()
            waiting.append(value.__name__ if isinstance(value, ModuleType) else str(getattr(value, "__module__", "")))
    return names


def _is_error(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def faults(
    function: Callable[..., Any], module: ModuleType, options: Sequence[str], refuses: Sequence[str]
) -> list[str]:
    """What is wrong with a method's docstring, one sentence for each fault.

    Args:
        function: the method.
        module: the module that defines it.
        options: names of its options.
        refuses: the errors that its declaration requires.
    """
    (_, opening), *rest = sections(function.__doc__ or "")
    return [
        *_in_summary(opening),
        *_in_headings(rest),
        *_in_arguments(function, dict(rest).get("Args", ""), options),
        *_in_errors(dict(rest).get("Raises", ""), module, refuses),
    ]


def _in_summary(opening: str) -> Iterator[str]:
    first, *more = opening.splitlines() or [""]
    if not first.endswith("."):
        yield f"its summary is no sentence of one line: {first!r}"
    if more and more[0]:
        yield "no blank line follows its summary"


def _in_headings(rest: Sequence[tuple[str, str]]) -> Iterator[str]:
    headings = [heading for heading, _ in rest]
    for heading in SECTIONS:
        if heading not in headings and heading != "Raises":
            yield f"the section {heading} is missing"
    yield from _in_order(rest, SECTIONS)


def _in_order(rest: Sequence[tuple[str, str]], legal: Sequence[str]) -> Iterator[str]:
    headings = [heading for heading, _ in rest]
    for heading in headings:
        if heading not in legal:
            yield f"{heading} is no section; legal: {', '.join(legal)}"
    known = [heading for heading in headings if heading in legal]
    if known != sorted(known, key=legal.index) or len(set(known)) < len(known):
        yield f"the sections are {', '.join(known)}; their order is {', '.join(legal)}"
    for heading, text in rest:
        if not text.strip():
            yield f"the section {heading} is empty"


def _in_arguments(function: Callable[..., Any], text: str, options: Sequence[str]) -> Iterator[str]:
    named = entries(text)
    parameters = list(inspect.signature(function).parameters)
    for name in dict.fromkeys([*parameters, *options]):
        if name not in named:
            yield f"Args does not name {name}"
    for name in named:
        if name not in parameters:
            yield f"Args names {name}, which is no parameter"


def _in_errors(text: str, module: ModuleType, refuses: Sequence[str]) -> Iterator[str]:
    named = entries(text)
    known = errors_of(module)
    for name in named:
        if name not in known:
            yield f"Raises names {name}, an error that {module.__name__} neither defines nor uses"
    for name in refuses:
        if name not in named:
            yield f"Raises does not name {name}"


def owed(method: Method) -> list[str]:
    """The errors that a method must raise, according to its declaration."""
    illegal = any(option.illegal for option in method.options)
    return ["IllegalOption"] * illegal + ["NotComposable"] * bool(method.disclaims)


def sections_of(method: Method) -> dict[str, str]:
    """The sections of a method's docstring."""
    return dict(sections(registry.load(method.implementation).__doc__))


def of_helper(docstring: str) -> list[str]:
    """What is wrong with the docstring of a public function that is not a method, one sentence for each fault."""
    (_, opening), *rest = sections(docstring)
    inline = re.findall(r"^(Source|Stores|Computes|Cost|Not for): ", docstring, re.M)
    return [*_in_order(rest, OTHERS), *(f"{heading} shares its line with its text" for heading in inline)] + (
        [] if opening else ["it says nothing"]
    )


@pytest.mark.parametrize("key", KEYS)
def test_the_docstring_of_a_method_has_the_shape_of_all(key: str) -> None:
    method = next(method for method in registry.methods() if method.key == key)
    if not installed(method.framework):
        pytest.skip(f"{method.framework} is not installed")
    function = registry.load(method.implementation)
    module = importlib.import_module(method.implementation.partition(":")[0])
    wrong = faults(function, module, [option.name for option in method.options], owed(method))
    assert not wrong, f"{method.implementation}: " + "; ".join(wrong)


@pytest.mark.parametrize("name", MODULES)
def test_a_public_function_beside_the_methods_keeps_the_order_of_sections(name: str) -> None:
    if not installed("torch" if "torch" in name else "jax"):
        pytest.skip("its framework is not installed")
    for bound, value in vars(importlib.import_module(name)).items():
        if inspect.isfunction(value) and value.__module__ == name and not bound.startswith("_"):
            wrong = of_helper(inspect.cleandoc(value.__doc__ or ""))
            assert not wrong, f"{name}:{bound}: " + "; ".join(wrong)


def test_a_method_has_one_summary_and_one_source_in_both_frameworks() -> None:
    if not all(map(installed, FRAMEWORKS)):
        pytest.skip("a framework is not installed")
    for method in registry.methods(framework="jax"):
        (other,) = registry.methods(method.family, method.name, "torch")
        one, two = sections_of(method), sections_of(other)
        assert one["Source"] == two["Source"], f"{method.key} and {other.key} name different sources"
        assert one[""].splitlines()[0] == two[""].splitlines()[0], f"{method.key} and {other.key} differ in summary"


GOOD = """Loss and gradient.

    Args:
        problem: any.
        chunk: an integer of at least 1.

    Returns:
        The loss and its gradient.

    Raises:
        ValueError: `chunk` is below 1.

    Source:
        Eq. 1.

    Stores:
        T numbers.

    Computes:
        T VJPs.

    Not for:
        Long sequences.
    """
"""A docstring without a fault. Each case below spoils it in one place."""


def documented(docstring: str | None) -> Callable[..., Any]:
    """A method with an option and this docstring."""

    def method(problem: Any, *, chunk: int) -> None: ...

    method.__doc__ = docstring
    return method


def found_in(docstring: str | None) -> str:
    """The faults of a method with this docstring."""
    return "; ".join(faults(documented(docstring), importlib.import_module(ROOM), ["chunk"], ["ValueError"]))


def test_a_docstring_of_the_right_shape_has_no_fault() -> None:
    assert found_in(GOOD) == ""


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("    Stores:\n        T numbers.\n\n", "", "the section Stores is missing"),
        ("        T numbers.\n", "", "the section Stores is empty"),
        (
            "    Source:\n        Eq. 1.\n\n    Stores:\n        T numbers.\n",
            "    Stores:\n        T numbers.\n\n    Source:\n        Eq. 1.\n",
            "their order is Args, Returns",
        ),
        ("Not for:\n", "Cost:\n", "Cost is no section"),
        ("Loss and gradient.", "Loss and gradient", "its summary is no sentence"),
        ("        chunk: an integer of at least 1.\n", "", "Args does not name chunk"),
        ("chunk: an", "chunks: an", "Args names chunks, which is no parameter"),
        ("ValueError:", "IllegalChunk:", "Raises names IllegalChunk, an error that gradgate.references neither"),
        ("    Raises:\n        ValueError: `chunk` is below 1.\n\n", "", "Raises does not name ValueError"),
    ],
)
def test_each_fault_of_a_docstring_is_found(old: str, new: str, fault: str) -> None:
    assert old in GOOD
    assert fault in found_in(GOOD.replace(old, new))


@pytest.mark.parametrize(
    ("docstring", "fault"),
    [
        ("It.\n\nReturns:\n    y.\n\nArgs:\n    x: any.", "their order is Args"),
        ("It.\n\nCost:\n    much.", "Cost is no section"),
        ("It.\n\nSource: Eq. 1.", "Source shares its line"),
        ("", "it says nothing"),
    ],
)
def test_each_fault_of_a_helper_is_found(docstring: str, fault: str) -> None:
    assert fault in "; ".join(of_helper(docstring))
    assert of_helper("It.\n\nArgs:\n    x: any.\n\nComputes:\n    T products.") == []


def test_a_method_without_a_docstring_lacks_every_section() -> None:
    assert found_in(None).count("is missing") == len(SECTIONS) - 1
