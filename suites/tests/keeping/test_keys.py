"""The hash of a verdict: what changes it, and what does not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

import gradgate
from gradgate.references import registry
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.verdict import Task
from gradgate.suites.keeping.keys import JUDGING, Keys
from gradgate.suites.keeping.sources import Imports, Parsed, strings_of
from gradgate.suites.keeping.verdicts import Kept

TASK = Task("state_space", "good", "torch", "tree", "mine.py:good")


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Keys]:
    """A function that makes new keys for a folder with a method, a module that it imports, and an unrelated module."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("import helper\n")
    (tmp_path / "helper.py").write_text("x = 1\n")
    (tmp_path / "bystander.py").write_text("x = 1\n")
    return lambda: Keys.here()


def test_a_key_changes_with_one_character_of_the_method_or_of_what_it_imports(keys: Callable[[], Keys]) -> None:
    before = keys().verdict(["mine.py"], TASK, Run())
    assert keys().verdict(["mine.py"], TASK, Run()) == before
    Path("bystander.py").write_text("x = 2\n")
    assert keys().verdict(["mine.py"], TASK, Run()) == before
    Path("helper.py").write_text("x = 2\n")
    assert keys().verdict(["mine.py"], TASK, Run()) != before
    Path("helper.py").write_text("x = 1\n")
    Path("mine.py").write_text("import helper \n")
    assert keys().verdict(["mine.py"], TASK, Run()) != before


def test_a_key_changes_with_what_the_claim_is_asked_for_and_with_the_flags_of_the_compiler(
    keys: Callable[[], Keys], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [Run(), Run(examples=5), Run(seed=1), Run(limit=1.0)]
    found = {keys().verdict(["mine.py"], TASK, run) for run in asked}
    monkeypatch.setenv("XLA_FLAGS", "--xla_other")
    found.add(keys().verdict(["mine.py"], TASK, Run()))
    assert len(found) == 5


def test_a_key_changes_with_the_environment_in_which_a_library_is_judged(
    keys: Callable[[], Keys], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {keys().verdict(["mine.py"], TASK, Run())}
    for name in ("one", "other"):
        monkeypatch.setenv("GRADGATE_ENVIRONMENT", name)
        found.add(keys().verdict(["mine.py"], TASK, Run()))
    assert len(found) == 3


def test_a_package_that_a_pth_file_adds_is_identified_by_its_version(
    tmp_path: Path, keys: Callable[[], Keys], monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("site-packages", "elsewhere"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"added_{folder[:4]}.py").write_text("x = 1\n")
        monkeypatch.syspath_prepend(str(tmp_path / folder))
    monkeypatch.setattr("gradgate.suites.keeping.keys.has_distribution", lambda name: name.startswith("added_"))
    Path("mine.py").write_text("import added_site\nimport added_else\n")
    read = keys().imports.closure(["mine.py"])
    assert "added_else" in read.files, "no version identifies its text"
    assert "added_site" in read.foreign


def test_a_file_that_the_settings_name_is_part_of_the_key(tmp_path: Path, keys: Callable[[], Keys]) -> None:
    before = Keys.here(["*.bin"]).verdict(["mine.py"], TASK, Run())
    (tmp_path / "table.bin").write_bytes(b"1")
    assert Keys.here(["*.bin"]).verdict(["mine.py"], TASK, Run()) != before


def test_the_judge_is_every_check_and_all_that_pairs_are_made_of(keys: Callable[[], Keys]) -> None:
    read = keys().imports.closure(JUDGING).files
    assert {f"gradgate.suites.{name}" for name in ("checks.form", "exact.balls", "judging.engine")} <= set(read)
    tests_alone = {"gradgate.suites.pairs.pytest_tests"}
    assert set(gradgate._PLACES.values()) - tests_alone <= set(read)
    assert not [name for name in read if name.startswith(("gradgate.suites.bugs", "gradgate.suites.tests"))]


def test_methods_of_one_family_do_not_depend_on_those_of_another(keys: Callable[[], Keys]) -> None:
    kept = Kept(Run(), keys())
    [method] = registry.methods("chain", "sqrt_n", "torch")
    kept.key(Task.of(method, method.claims[0]))
    read = kept.keys.imports.closure([*JUDGING, *(kept._of(Task.of(method, method.claims[0])) or [])]).files
    assert method.implementation.partition(":")[0] in read
    assert not [name for name in read if "state_space" in name or "bilevel" in name]
    assert not [name for name in read if name.startswith("gradgate.references.chain.in_jax")]


def test_a_method_depends_on_the_others_that_its_claims_name() -> None:
    [method] = registry.methods("chain", "sqrt_n", "torch")
    there = strings_of(method)
    elsewhere = dataclasses.replace(method, name="other", implementation="elsewhere.other:other")
    family = registry.family("chain")
    methods = (*family.methods, elsewhere)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(registry, "family", lambda _: dataclasses.replace(family, methods=methods))
        assert strings_of(method) == there
        claim = dataclasses.replace(method.claims[0], settings={"than": ["other"]})
        assert "elsewhere.other" in strings_of(dataclasses.replace(method, claims=(claim,)))


def test_imports_are_parsed_once_and_a_damaged_file_of_them_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import numpy\n")
    place = tmp_path / "kept" / "imports.json"
    first = Parsed(place)
    assert Imports([tmp_path], tmp_path, parsed=first).closure(["a"]).foreign == {"numpy"}
    first.keep()
    assert Parsed(place)._known == first._known != {}
    place.write_text(place.read_text().replace("numpy", "other"))
    assert Imports([tmp_path], tmp_path, parsed=Parsed(place)).closure(["a"]).foreign == {"numpy"}


def test_what_stands_under_type_checking_is_no_import_and_what_stands_after_else_is(tmp_path: Path) -> None:
    text = "import typing\nif typing.TYPE_CHECKING:\n    import numpy\nelse:\n    import flint\n"
    (tmp_path / "a.py").write_text(text)
    assert Imports([tmp_path], tmp_path).closure(["a"]).foreign == {"flint"}


def test_a_package_of_a_folder_and_an_unknown_module(tmp_path: Path, keys: Callable[[], Keys]) -> None:
    folder = tmp_path / "deep" / "my_class"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("from my_class import part\n")
    (folder / "part.py").write_text("")
    made = keys()
    assert made.place(f"{folder}:FAMILY") == "my_class"
    assert set(made.imports.closure(["my_class"]).files) == {"my_class", "my_class.part"}
    assert made.place("numpy.linalg:f") == "numpy.linalg"
    assert made.place("no_such_module:f") is None
    assert made.place("nowhere.py:f") is None
