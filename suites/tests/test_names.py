"""Names that say nothing: no module, function, class, field or attribute has one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("suites", "references", "hw_profiles", "asv_bench")
BANNED = {
    "told": "what it is: message, remark, outcome, or what a function does: report, name",
    "kept": "what it is: cached, saved, retained, residual_bytes",
    "found": "what it is: verdicts, rows, matches",
    "own": "whose it is: user_model, of_method",
    "said": "what it is: sentence, message, statement",
}
"""Name -> what to write in its place."""
LEFT = {
    "asv_bench/peers/checkpointed.py": {"kept", "own"},
    "asv_bench/peers/meta_gradients.py": {"found"},
    "asv_bench/peers/sequences.py": {"kept"},
    "suites/engine/sides.py": {"found"},
    "suites/exact/on_jax/control.py": {"kept"},
    "suites/exact/on_jax/indexing.py": {"kept"},
    "suites/schemas/documents.py": {"found"},  # a key of the published documents
    "suites/site/browser.py": {"found"},
    "suites/site/drawing.py": {"said"},
}
"""Files that still have one, and which. The list only becomes shorter: a name that is gone is taken from it."""
SCRIPTS = "suites/gallery/findings"
"""Scripts that show a finding to its library's authors, with variables at the level of the module."""


def names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, name) of every definition, of every attribute that is set, and of every variable of a module or class.

    A variable of a function is none: it is read where it is written.
    """
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.lineno, node.name
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        if isinstance(node, (ast.Module, ast.ClassDef)):
            yield from _variables(node.body)


def _variables(body: list[ast.stmt]) -> Iterator[tuple[int, str]]:
    for node in body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from ((node.lineno, target.id) for target in targets if isinstance(target, ast.Name))


def banned(text: str, path: str) -> list[str]:
    """Every banned name of a file, with its line and what to write in its place."""
    listed = [(1, Path(path).stem), *names(ast.parse(text))]
    return [f"{path}:{line}: {name}; write {BANNED[name]}" for line, name in listed if name in BANNED]


@pytest.mark.skipif(not (ROOT / "asv_bench").exists(), reason="not a checkout")
def test_no_definition_module_or_attribute_has_a_banned_name() -> None:
    wrong: list[str] = []
    ended: list[str] = []
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    for path in (path.relative_to(ROOT).as_posix() for path in paths if ".asv" not in path.parts):
        here = [] if path.startswith(SCRIPTS) else banned((ROOT / path).read_text("utf-8"), path)
        allowed = LEFT.get(path, set())
        wrong += [line for line in here if line.split(": ")[1].partition(";")[0] not in allowed]
        ended += [f"{path}: {name}" for name in allowed if not any(f": {name};" in line for line in here)]
    assert not wrong, "\n".join(wrong)
    assert not ended, f"take them from the list: {ended}"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("def told(): ...", [1]),
        ("class C:\n    kept: int = 0", [2]),
        ("class C:\n    def f(self):\n        self.found = 1", [3]),
        ("own = 1", [1]),
        ("def f():\n    def said(): ...", [2]),
        ("def f():\n    found = 1\n    return found", []),
        ("def f(told): return told.name", []),
    ],
)
def test_a_planted_name_is_found_and_a_variable_of_a_function_is_none(text: str, lines: list[int]) -> None:
    assert [int(line.split(":")[1]) for line in banned(text, "file.py")] == lines


def test_a_module_of_that_name_is_found() -> None:
    assert len(banned("", "suites/said.py")) == 1
    assert banned("", "suites/sentences.py") == []
