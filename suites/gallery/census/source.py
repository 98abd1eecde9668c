"""The handwritten derivatives that the text of an installed package declares. Nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

BASES = ("Function", "InplaceFunction")
"""Last parts of the base classes of a rule in PyTorch."""
WRAPPERS = (
    "custom_vjp",
    "custom_jvp",
    "custom_gradient",
    "filter_custom_vjp",
    "filter_custom_jvp",
    "register_autograd",
)
"""Last parts of what makes a rule of a function."""
TESTS = ("test", "tests", "testing", "examples", "benchmarks", "build")
"""Folders of a package whose rules are not counted, also as the end of a file's name."""


def roots(distribution: str, folders: Sequence[Path]) -> tuple[set[str], list[Path]]:
    """The import names of an installed distribution, and its Python files.

    Raises:
        LookupError: it is not in these folders.
    """
    places = [str(folder) for folder in folders]
    found = next(iter(metadata.distributions(name=distribution, path=places)), None)
    if found is None:
        raise LookupError(f"{distribution} is not installed")
    files = [file for file in found.files or () if file.suffix == ".py"]
    kept = [file for file in files if not any(_is_test(part) for part in (*file.parts[:-1], file.stem))]
    names = {file.parts[0].removesuffix(".py") for file in kept if ".." not in file.parts}
    return names, [Path(str(found.locate_file(file))) for file in kept]


def _is_test(part: str) -> bool:
    return part in TESTS or part.startswith("test_") or part.endswith("_test")


def rules(files: Sequence[Path]) -> list[str]:
    """``file:line`` of every rule that these files declare."""
    return [f"{path}:{line}" for path in files if path.is_file() for line in _lines(path)]


def _lines(path: Path) -> Iterator[int]:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8", errors="replace"))
    except SyntaxError:  # of another version of Python
        return
    wrapped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and any(_last(base) in BASES for base in node.bases):
            if any(isinstance(one, ast.FunctionDef) and one.name in ("backward", "vjp", "jvp") for one in node.body):
                yield node.lineno
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            marks = [mark for mark in node.decorator_list if any(_last(one) in WRAPPERS for one in ast.walk(mark))]
            wrapped |= {id(one) for mark in marks for one in ast.walk(mark)}
            if marks:
                yield node.lineno
        elif isinstance(node, ast.Call) and id(node) not in wrapped and _last(node.func) in WRAPPERS:
            yield node.lineno


def _last(node: ast.AST) -> str:
    """The last part of a dotted name; "" for anything else."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
