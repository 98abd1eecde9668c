"""The order of imports: which part may import which, that no imports are circular, and that no module is unused.

`ROOMS` declares the parts, here called rooms, in their order. A module may import from earlier rooms and from its own.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

import gradgate.references
from gradgate.references import registry

ROOMS = (
    ("hw_profiles", "compiles and counts any program; it uses no problem and no method"),
    ("references", "problems, methods and claims; it does not use what judges them"),
    ("suites.schemas", "types of the documents and settings that are read and written, and what a wrong one says"),
    ("suites.settings", "a project's table [tool.gradgate]; every command reads it"),
    ("suites.exact", "runs a reference's program in sixty digits"),
    ("suites.measuring", "measures the bytes and the work of a reference's program with hw_profiles"),
    ("suites.judging", "the parts of a judgement: a subject, problems to draw, tolerances, verdicts"),
    ("suites.pairs", "pairs of two programs for one function, run as subjects"),
    ("suites.checks", "each judges one kind of claim: with the parts in judging, on programs from exact and measuring"),
    ("suites.judging.engine", "judges one claim: it draws problems and runs the check that the claim names on them"),
    ("suites.pairs.quick", "judges a pair at given arguments with the engine"),
    ("suites.pairs.pytest_tests", "pytest tests that judge pairs with the engine"),
    ("suites.api", "the module gradgate itself: names from the modules of pairs"),
    ("suites.keeping.sources", "finds the files that hold a method's program, by their imports"),
    ("suites.workers", "runs the engine in processes that may die"),
    ("suites.keeping", "keeps the verdicts of workers, under a hash of everything that they depend on"),
    ("suites.bugs", "references with a bug in them; some bugs break what a check inspects"),
    ("suites.calibration", "runs checks and the engine over many problems and counts outcomes"),
    ("suites.bugs.of_pairs.alarms", "right pairs judged on random problems, counted by calibration"),
    ("suites.bugs.of_pairs.__main__", "the command of the pairs and their bugs"),
    ("suites.console", "shows verdicts and measurements; nothing that judges or measures prints"),
    ("suites.selftest", "judges the bugs with the workers, and shows on the console which bugs were found"),
    ("suites.keeping.union", "unites the documents of a run's shards, also of the selftest"),
    ("suites.gate", "judges and measures two revisions, and compares them"),
    ("suites.report", "pages with the results of all of them, in the console's words"),
    ("suites.guide", "a drawing for the guide that shows what the suite does"),
    ("suites.commands", "each is one command, which may use everything above"),
    ("suites.cli", "finds the command"),
    ("suites.gallery", "judges public libraries with the commands; a library file uses only the module gradgate"),
    ("suites.releases", "measures the references under releases of their frameworks, as the gate measures a side"),
    ("suites.site", "pages of the guide, the registry, the ledgers and the commands' help; nothing imports it"),
    ("suites.plugin", "an entry point: pytest imports it, nothing else does"),
    ("suites.test_methods", "the claims as pytest collects them"),
)  # fmt: skip
"""Name of a room -> what it does, which is the reason for its place. A module is in the room of the longest match."""

ROOT = Path(str(gradgate.references.__path__[0])).parent
PACKAGES = ("hw_profiles", "references", "suites")
ENTRANCES = ("pyproject.toml", "noxfile.py", "*.md", "suites/**/*.md")
"""Files outside the packages in which a module that nothing imports may be named."""


CALLED_FROM_OUTSIDE = {
    "suites.releases.__main__": "python -m gradgate.suites.releases, which nox -s releases runs",
    "suites.releases.regressions.gated": "a file of pairs, which the gate reads in a repository of its own",
    "suites.releases.regressions.probe": "a script, run under releases that gradgate does not support",
    "suites.releases.regressions.programs": "imported by the script under its bare name",
    "suites.calibration.check_calls": "python -m gradgate.suites.calibration.check_calls, which draws calls of check",
    "suites.test_methods": "pytest collects it by its name: pytest --pyargs gradgate.suites",
    "suites.api": "setup.py installs it as the module gradgate itself",
    "suites.api.in_jax": "the module gradgate.in_jax",
    "suites.api.in_torch": "the module gradgate.in_torch",
    "suites.api._lazy": "the module gradgate._lazy, which these three import",
    "suites.guide.examples.attention": "an example of the guide's page on pairs; readers verify the file",
    "suites.guide.examples.cross_entropy": "likewise",
    "suites.guide.examples.rms_norm": "likewise",
    "suites.guide.examples.triton_conv": "likewise, of the page on kernels",
    "suites.site.conf": "Sphinx reads a copy of it next to the pages",
    "references.invertible.refusal": "users check their chain with it before they train it",
}
"""Modules that nothing imports and no file names -> who uses them."""


@dataclasses.dataclass(frozen=True)
class Module:
    """One module.

    Attributes:
        top: the modules that it imports at module level.
        inside: the modules that its functions import, and those that it imports for the type checker only.
        strings: its strings as regular expressions; in an f-string, each value that is not known is a group.
        names: its variables at module level.
    """

    name: str
    top: frozenset[str]
    inside: frozenset[str]
    strings: frozenset[str]
    names: frozenset[str]


def read(root: Path, packages: tuple[str, ...], prefix: str) -> dict[str, Module]:
    """Every module below these folders: name without the prefix -> module; tests are left out."""
    paths = {}
    for path in itertools.chain.from_iterable((root / package).rglob("*.py") for package in packages):
        parts = path.relative_to(root).with_suffix("").parts
        if "tests" not in parts:
            paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return {name: _module(name, ast.parse(path.read_text("utf-8")), prefix, paths) for name, path in paths.items()}


def _module(name: str, tree: ast.Module, prefix: str, known: Mapping[str, Path]) -> Module:
    top, inside = set(), set()
    for node, deep in _imports(tree, False):
        (inside if deep else top).update(_targets(node, prefix, known))
    names = {
        n.id for node in tree.body if isinstance(node, ast.Assign) for n in node.targets if isinstance(n, ast.Name)
    }
    own = {name}
    return Module(name, frozenset(top - own), frozenset(inside - own), frozenset(_strings(tree)), frozenset(names))


def _imports(tree: ast.AST, deep: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """The imports of a module; the flag is true for an import in a function or for the type checker only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, deep
        checked = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        yield from _imports(node, deep or checked or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _targets(node: ast.Import | ast.ImportFrom, prefix: str, known: Mapping[str, Path]) -> Iterator[str]:
    """The modules that a statement imports; for ``from package import name`` the module `name`, if there is one."""
    if isinstance(node, ast.Import):
        asked = [(alias.name, alias.name) for alias in node.names]
    else:
        asked = [(f"{node.module}.{alias.name}", f"{node.module}") for alias in node.names]
    for names in asked:
        found = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
        yield from [name for name in found if name in known][:1]


def _strings(tree: ast.Module) -> Iterator[str]:
    constants = {
        target.id: node.value.value
        for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets if isinstance(target, ast.Name) and isinstance(node.value.value, str)
    }  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.escape(node.value)
        if isinstance(node, ast.JoinedStr):
            yield "".join(_piece(part, constants) for part in node.values)


def _piece(part: ast.expr, constants: Mapping[str, str]) -> str:
    if isinstance(part, ast.FormattedValue):
        known = isinstance(part.value, ast.Name) and part.value.id in constants
        return re.escape(constants[part.value.id]) if known else r"(\w+)"  # type: ignore[attr-defined]
    return re.escape(str(part.value)) if isinstance(part, ast.Constant) else r"(\w+)"


def cycles(modules: Mapping[str, Module]) -> list[str]:
    """Circular imports at module level, each as ``a -> b -> a``."""
    found: list[str] = []
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            found.append(" -> ".join((*path[path.index(name) :], name)))
        elif name not in done:
            for target in sorted(modules[name].top & modules.keys()):
                visit(target, (*path, name))
            done.add(name)

    for name in sorted(modules):
        visit(name, ())
    return found


def room(name: str, rooms: tuple[tuple[str, str], ...] = ROOMS) -> int | None:
    """The position of a module's room in the order; None if the module is in no room."""
    fits = [(len(known), place) for place, (known, _) in enumerate(rooms) if f"{name}.".startswith(f"{known}.")]
    return max(fits)[1] if fits else None


def upward(modules: Mapping[str, Module], rooms: tuple[tuple[str, str], ...] = ROOMS) -> list[str]:
    """Imports of a module in a later room, including imports in functions."""
    found = []
    for module in modules.values():
        for target in sorted(module.top | module.inside):
            own, other = room(module.name, rooms), room(target, rooms)
            if own is not None and other is not None and other > own:
                found.append(f"{module.name} imports {target}")
    return found


def left_over(modules: Mapping[str, Module], prefix: str, entrances: str = "") -> list[str]:
    """Modules that no module imports, no string names (such as ``package.module:function``) and no entrance names.

    An f-string such as ``f"package.{name}"`` names a module if the part in place of the value is itself a string
    somewhere, as in a table.
    """
    imported = {target for module in modules.values() for target in module.top | module.inside}
    strings = set().union(*(module.strings for module in modules.values()))
    places = {re.compile(pattern.partition(":")[0]) for pattern in strings if pattern.startswith(re.escape(prefix))}

    def named(name: str) -> bool:
        fits = filter(None, (place.fullmatch(prefix + name) for place in places))
        return any(set(fit.groups()) <= strings for fit in fits) or bool(re.search(rf"{prefix}{name}\b", entrances))

    packages = {name.rpartition(".")[0] for name in modules}
    return sorted(name for name in modules.keys() - imported - packages if not named(name))


@functools.cache
def house() -> dict[str, Module]:
    """The modules of gradgate."""
    return read(ROOT, PACKAGES, "gradgate.")


def declared() -> str:
    """The text of the registry's declarations, which name the place of every Spec, method, count and figure."""
    return "\n".join(str(dataclasses.asdict(family)) for family in registry.families().values())


def entrances() -> str:
    """The text of the files outside the packages that may name modules: ENTRANCES."""
    return "\n".join(path.read_text("utf-8") for name in ENTRANCES for path in sorted(ROOT.glob(name)))


def test_no_imports_go_in_circles() -> None:
    assert cycles(house()) == []


def test_no_import_goes_up() -> None:
    modules = house()
    assert [name for name in modules if room(name) is None and name not in ("suites", "suites.tests")] == []
    assert upward(modules) == []


def test_every_room_that_is_declared_is_there() -> None:
    names = house()
    assert [name for name, _ in ROOMS if name not in names] == []


def _is_table(name: str, module: Module) -> bool:
    """Whether gradgate finds a module because the file exists: a module with mutants, or with pairs to break."""
    mutants = name.startswith("suites.bugs.") and "MUTANTS" in module.names
    beside = re.fullmatch(r"suites\.bugs\.of_pairs\.(torch|jax|bugs)_\w+", name)
    return mutants or bool(beside) or _is_of_the_gallery(name)


def _is_of_the_gallery(name: str) -> bool:
    """Whether a module is a library file of the gallery, or a script that shows a finding."""
    script = name.startswith("suites.gallery.findings.")
    path = ROOT / f"{name.replace('.', '/')}.py"
    return script or (
        name.startswith("suites.gallery.") and path.is_file() and path.read_text("utf-8").startswith("# ///")
    )


def test_no_module_is_left_over() -> None:
    tables = {name for name, module in house().items() if _is_table(name, module)}
    found = left_over(house(), "gradgate.", entrances() + declared())
    assert [name for name in found if name not in tables and name not in CALLED_FROM_OUTSIDE] == []


@pytest.fixture
def planted(tmp_path: Path) -> Callable[..., dict[str, Module]]:
    """A function that reads a package of modules with these texts; a double underscore in a name separates folders."""

    def plant(**texts: str) -> dict[str, Module]:
        for name, text in texts.items():
            path = tmp_path / "package" / f"{name.replace('__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return read(tmp_path, ("package",), "")

    return plant


ONE_IMPORTS_TWO = "from package.two import function"


def test_a_planted_circle_is_found(planted: Callable[..., dict[str, Module]]) -> None:
    modules = planted(one=ONE_IMPORTS_TWO, two="from package import three", three="import package.one")
    assert cycles(modules) == ["package.one -> package.two -> package.three -> package.one"]


@pytest.mark.parametrize(
    "text",
    [
        "def function():\n    from package import one",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from package import one",
    ],
)
def test_an_import_inside_of_a_function_or_for_types_makes_no_circle(
    planted: Callable[..., dict[str, Module]], text: str
) -> None:
    modules = planted(one=ONE_IMPORTS_TWO, two=text)
    assert cycles(modules) == []
    assert modules["package.two"].inside == {"package.one"}


@pytest.mark.parametrize("text", [ONE_IMPORTS_TWO, f"def function():\n    {ONE_IMPORTS_TWO}"])
def test_a_planted_import_that_goes_up_is_found_in_a_function_too(
    planted: Callable[..., dict[str, Module]], text: str
) -> None:
    modules = planted(one=text, two="")
    assert upward(modules, (("package.one", ""), ("package.two", ""))) == ["package.one imports package.two"]
    assert upward(modules, (("package.two", ""), ("package.one", ""))) == []


def test_a_module_may_be_in_a_later_room_than_its_folder() -> None:
    rooms = (("package", ""), ("other", ""), ("package.late", ""))
    assert [room(name, rooms) for name in ("package.early", "other", "package.late", "elsewhere")] == [0, 1, 2, None]


def test_a_planted_module_that_nothing_uses_is_found(planted: Callable[..., dict[str, Module]]) -> None:
    modules = planted(one=ONE_IMPORTS_TWO, two="", three="", four="")
    assert left_over(modules, "") == ["package.four", "package.one", "package.three"]
    assert left_over(modules, "", 'command = "package.one:main"') == ["package.four", "package.three"]


def test_a_name_in_a_string_uses_a_module_and_in_an_f_string_one_of_a_table(
    planted: Callable[..., dict[str, Module]],
) -> None:
    modules = planted(
        one="HERE = 'package'\nTABLE = ('three', 'five')\nNAMED = 'package.two:function', f'{HERE}.four:function'\n"
        "def load(name):\n    return f'package.{name}'\n",
        two="", three="", four="", five="", six="",
    )  # fmt: skip
    assert left_over(modules, "") == ["package.one", "package.six"]
