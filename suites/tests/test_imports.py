"""The order of imports: which room may import which, that no imports are circular, and that no module is unused.

The contracts about imports are in ``pyproject.toml``, and import-linter checks them; here they are put on trial. Two
things import-linter does not see: modules that are named in strings, and modules that nothing uses.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from gradgate.references import registry
from gradgate.suites.tests.import_rules import FOLDERS, ROOT, check, link

grimp = pytest.importorskip("grimp", reason="not installed: import-linter; pip install --group lint")

ENTRANCES = ("pyproject.toml", "noxfile.py", "*.md", "suites/**/*.md")
"""Files outside the packages in which a module that nothing imports may be named."""
PREFIXES = {"gradgate.hw_profiles.recording": "gradgate.references"}
"""Module -> the name of a room above it, with which it compares names of modules, and imports nothing."""
CALLED_FROM_OUTSIDE = {
    "suites.releases.__main__": "python -m gradgate.suites.releases, which nox -s releases runs",
    "suites.releases.regressions.gated": "a file of pairs, which the gate reads in a repository of its own",
    "suites.releases.regressions.probe": "a script, run under releases that gradgate does not support",
    "suites.releases.regressions.programs": "imported by the script under its bare name",
    "suites.trial.__main__": "python -m gradgate.suites.trial, which nox -s trial runs",
    "suites.calibration.pairs.__main__": "python -m gradgate.suites.calibration.pairs, which counts over all pairs",
    "suites.bugs.strangers.__main__": "python -m gradgate.suites.bugs.strangers, which judges every exploit",
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


CIRCLES = {
    "gradgate": "hw_profiles.recording compares names of modules, and imports none of them",
    "gradgate.references": "the registry names the folders of the classes, which declare themselves with it",
    "gradgate.references.bilevel.paper": "a figure is stored under the path of the table that measures it",
    "gradgate.references.chain": "claims name the paper's functions that judge them",
    "gradgate.references.chain.paper": "a figure is stored under the path of the table that measures it",
    "gradgate.references.invertible.paper": "a figure is stored under the path of the table that measures it",
    "gradgate.references.performer.paper": "a figure is stored under the path of the table that measures it",
    "gradgate.suites.bugs": "the corpus names the modules of mutants, and a mutant is found through the corpus",
    "gradgate.suites.bugs.of_pairs": "likewise",
    "gradgate.suites.pairs": "a pair names the module of its framework, which runs it",
    "gradgate.suites.watching": "the recorder names the module of a framework, which records with it",
}
"""Package -> why its modules or folders are circular if a module that a string names counts as imported."""


@dataclasses.dataclass(frozen=True)
class Module:
    """One module.

    Attributes:
        imports: the modules that it imports, also in functions and for the type checker.
        strings: its strings as regular expressions; in an f-string, each value that is not known is a group.
        names: its variables at module level.
    """

    imports: frozenset[str]
    strings: frozenset[str]
    names: frozenset[str]


def read(folder: Path, package: str) -> dict[str, Module]:
    """Every module of a package in this folder, by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.delitem(sys.modules, package, raising=False)  # else grimp takes the folder of the module that is loaded
        graph = grimp.build_graph(package, cache_dir=None, exclude_type_checking_imports=False)
    modules = {}
    for name in graph.modules:
        place = folder.joinpath(*name.split("."))
        file = place / "__init__.py"
        file = file if file.exists() else place.with_suffix(".py")
        tree = ast.parse(file.read_text("utf-8"))
        imports = graph.find_modules_directly_imported_by(name)
        modules[name] = Module(frozenset(imports), frozenset(_strings(tree)), frozenset(_variables(tree)))
    return modules


def _variables(tree: ast.Module) -> Iterator[str]:
    assigned = (node.targets for node in tree.body if isinstance(node, ast.Assign))
    return (target.id for targets in assigned for target in targets if isinstance(target, ast.Name))


def _strings(tree: ast.Module) -> Iterator[str]:
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value.value, str)
    }
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


def named(modules: Mapping[str, Module], package: str) -> dict[str, set[str]]:
    """The modules that are named in strings, as ``package.module:function`` or alone: name -> who names it.

    An f-string such as ``f"package.{name}"`` names a module if the part in place of the value is itself a string
    somewhere, as in a table.
    """
    strings = set().union(*(module.strings for module in modules.values()))
    naming: dict[str, set[str]] = {}
    for name, module in modules.items():
        for pattern in module.strings:
            if not pattern.startswith(f"{package}{re.escape('.')}"):
                continue
            place = re.compile(pattern.partition(":")[0])
            for other in modules:
                fit = place.fullmatch(other)
                if fit and set(fit.groups()) <= strings:
                    naming.setdefault(other, set()).add(name)
    return naming


def upward(modules: Mapping[str, Module], rooms: list[set[str]], package: str) -> list[str]:
    """Strings that name a module of a room above, given the rooms from the top down."""

    def height(name: str) -> int | None:
        inside = (any(f"{name}.".startswith(f"{room}.") for room in line) for line in rooms)
        return next((-place for place, fits in enumerate(inside) if fits), None)

    return [
        f"{name} names {other}"
        for other, naming in sorted(named(modules, package).items())
        for name in sorted(naming)
        if (high := height(other)) is not None and (low := height(name)) is not None and high > low
    ]


def circles(modules: Mapping[str, Module], package: str) -> dict[str, list[list[str]]]:
    """Package -> circles among what is directly in it, imports in functions and modules that strings name included.

    A circle is the sorted list of modules and folders that reach each other.
    """
    reached = {name: set(module.imports) for name, module in modules.items()}
    for other, naming in named(modules, package).items():
        for name in naming:
            reached[name].add(other)
    inside: dict[str, dict[str, set[str]]] = {}
    for name, others in reached.items():
        for other in others & modules.keys():
            above, *pair = _parted(name, other)
            if len(pair) == 2 and pair[0] != pair[1]:
                inside.setdefault(above, {}).setdefault(pair[0], set()).add(pair[1])
    return {above: round_trips for above, graph in sorted(inside.items()) if (round_trips := _round_trips(graph))}


def _parted(name: str, other: str) -> list[str]:
    """The package that two modules have in common, and in it the module or folder of each; no two if one holds both."""
    parts = list(zip(name.split("."), other.split("."), strict=False))
    shared = next((place for place, (one, two) in enumerate(parts) if one != two), len(parts))
    above = ".".join(name.split(".")[:shared])
    if shared == len(parts):
        return [above]
    return [above, *(".".join(each.split(".")[: shared + 1]) for each in (name, other))]


def _round_trips(graph: Mapping[str, set[str]]) -> list[list[str]]:
    def reaches(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            new = graph.get(waiting.pop(), set()) - seen
            seen |= new
            waiting += new
        return seen

    reach = {name: reaches(name) for name in graph}
    found = {tuple(sorted(o for o in reach[name] if name in reach.get(o, ()))) for name in graph if name in reach[name]}
    return sorted(map(list, found))


def unused(modules: Mapping[str, Module], package: str, entrances: str = "") -> list[str]:
    """Modules that no module imports, no string names and no entrance names."""
    imported = {target for module in modules.values() for target in module.imports}
    packages = {name.rpartition(".")[0] for name in modules}
    left = modules.keys() - imported - packages - named(modules, package).keys()
    return sorted(name for name in left if not re.search(rf"{name}\b", entrances))


@functools.cache
def rooms() -> list[set[str]]:
    """The rooms from the top down, as the contracts declare them; the rooms of one line may not import each other."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    _, inner, _ = config["contracts"]
    lines = [{f"gradgate.suites.{name}" for name in line.split(" | ")} for line in inner["layers"]]
    return [*lines, {"gradgate.references"}, {"gradgate.hw_profiles"}]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Module]:
    """The modules of gradgate."""
    folder = tmp_path_factory.mktemp("links")
    link(folder)
    return read(folder, "gradgate")


def declared() -> str:
    """The text of the registry's declarations, which name the place of every Spec, method, count and figure."""
    return "\n".join(str(dataclasses.asdict(family)) for family in registry.families().values())


def entrances() -> str:
    """The text of the files outside the packages that may name modules: ENTRANCES."""
    return "\n".join(path.read_text("utf-8") for name in ENTRANCES for path in sorted(ROOT.glob(name)))


def _is_table(name: str, module: Module) -> bool:
    """Whether gradgate finds a module because the file exists: mutants, pairs to break, a library of the gallery."""
    mutants = name.startswith("gradgate.suites.bugs.") and "MUTANTS" in module.names
    beside = re.fullmatch(r"gradgate\.suites\.bugs\.of_pairs\.(torch|jax|bugs)_\w+", name)
    path = ROOT / f"{name.removeprefix('gradgate.').replace('.', '/')}.py"
    library = name.startswith("gradgate.suites.gallery.") and path.read_text("utf-8").startswith("# ///")
    return mutants or bool(beside) or library


def test_no_module_is_unused(house: dict[str, Module]) -> None:
    called = {f"gradgate.{name}" for name in CALLED_FROM_OUTSIDE}
    left = unused(house, "gradgate", entrances() + declared())
    assert [name for name in left if name not in called and not _is_table(name, house[name])] == []


def test_no_string_names_a_module_of_a_room_above(house: dict[str, Module]) -> None:
    compared = [f"{name} names {prefix}" for name, prefix in PREFIXES.items()]
    assert upward(house, rooms(), "gradgate") == compared


def test_the_page_of_rooms_has_every_room_in_this_order() -> None:
    page = (ROOT / "suites" / "design" / "rooms.md").read_text("utf-8")
    listed = [set(re.findall(r"`([\w/]+)", line.split("|")[1])) for line in page.splitlines() if line.startswith("| `")]
    places = [{name.removeprefix("gradgate.").replace(".", "/") for name in line} for line in rooms()]
    assert [{name.removesuffix("/") for name in line} for line in listed] == places


@pytest.fixture
def planted(tmp_path: Path) -> Callable[..., dict[str, Module]]:
    """A function that reads a package of modules with these texts."""

    def plant(**texts: str) -> dict[str, Module]:
        for name, text in {"__init__": "", **texts}.items():
            path = tmp_path / "planted" / f"{name}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return read(tmp_path, "planted")

    return plant


@pytest.mark.parametrize("text", ["from planted.two import function", "NAMED = 'planted.two:function'"])
def test_a_planted_module_that_nothing_uses_is_found(planted: Callable[..., dict[str, Module]], text: str) -> None:
    modules = planted(one=text, two="", three="", four="")
    assert unused(modules, "planted") == ["planted.four", "planted.one", "planted.three"]
    assert unused(modules, "planted", 'command = "planted.one:main"') == ["planted.four", "planted.three"]


def test_an_f_string_names_the_modules_of_a_table(planted: Callable[..., dict[str, Module]]) -> None:
    text = "HERE = 'planted'\nTABLE = ('three',)\nNAMED = f'{HERE}.two:function'\ndef load(n): return f'planted.{n}'"
    modules = planted(one=text, two="", three="", four="")
    assert unused(modules, "planted") == ["planted.four", "planted.one"]


def test_a_planted_string_that_goes_up_is_found(planted: Callable[..., dict[str, Module]]) -> None:
    modules = planted(one="NAMED = 'planted.two:function'", two="")
    assert upward(modules, [{"planted.two"}, {"planted.one"}], "planted") == ["planted.one names planted.two"]
    assert upward(modules, [{"planted.one"}, {"planted.two"}], "planted") == []


@pytest.mark.parametrize(
    ("one", "two", "circular"),
    [
        ("from planted import two", "NAMED = 'planted.one:function'", True),
        ("from planted import two", "def later():\n    from planted import one", True),
        ("NAMED = 'planted.two'", "import importlib\nimportlib.import_module('planted.one')", True),
        ("from planted import two", "NAMED = 'planted.three:function'", False),
    ],
    ids=["a string", "in a function", "import_module", "none"],
)
def test_a_planted_circle_is_found(
    planted: Callable[..., dict[str, Module]], one: str, two: str, circular: bool
) -> None:
    wanted = {"planted": [["planted.one", "planted.two"]]} if circular else {}
    assert circles(planted(one=one, two=two, three=""), "planted") == wanted


def test_no_rooms_are_circular_if_strings_count_and_no_further_package_is(house: dict[str, Module]) -> None:
    """Rooms are what `gradgate.suites` holds; CIRCLES has the packages within which circles are left."""
    code = {name: module for name, module in house.items() if not name.startswith("gradgate.suites.tests")}
    assert circles(code, "gradgate").keys() == CIRCLES.keys()


def _changed(folder: Path, place: str, text: str) -> str:
    """What import-linter prints of gradgate with this text at the end of a file; the empty text if nothing is wrong."""
    root = folder / "checkout"
    shutil.copytree(ROOT / "suites" / "api", root / "suites" / "api")
    for name in FOLDERS:
        ignored = shutil.ignore_patterns("tests", "*.json", "*.md", "__pycache__")
        shutil.copytree(ROOT / name, root / name, ignore=ignored, dirs_exist_ok=True)
    with (root / place).open("a") as file:
        file.write(f"\n{text}\n")
    (folder / "links").mkdir()
    link(folder / "links", root)
    ran = check(folder / "links")
    return ran.stdout + ran.stderr if ran.returncode else ""


def test_the_contracts_hold(tmp_path: Path) -> None:
    link(tmp_path)
    ran = check(tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("place", "text", "names"),
    [
        (
            "suites/exact/balls.py",
            "def circle():\n    from gradgate.suites.pairs import pair",
            "gradgate.suites.exact is not allowed to import gradgate.suites.pairs",
        ),
        (
            "references/claims.py",
            "import gradgate",
            "gradgate.references is not allowed to import gradgate.suites",
        ),
        (
            "hw_profiles/fit.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from gradgate.references import contract",
            "gradgate.hw_profiles is not allowed to import gradgate.references",
        ),
        (
            "suites/exact/balls.py",
            "from gradgate.suites.exact import agreement",
            "No cycles are allowed in gradgate.suites.exact.",
        ),
        ("suites/gate/allow.py", "from gradgate.suites.keeping import store", ""),
        ("suites/another_room.py", "", "gradgate.suites.another_room"),
    ],
    ids=["in a function", "by import gradgate", "for types", "within a room", "none", "an undeclared room"],
)
def test_a_planted_import_that_goes_up_or_in_a_circle_is_refused(
    tmp_path: Path, place: str, text: str, names: str
) -> None:
    printed = _changed(tmp_path, place, text)
    assert names in " ".join(printed.split()), printed
    assert bool(names) == bool(printed)
