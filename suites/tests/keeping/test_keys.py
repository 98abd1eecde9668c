"""The hash of a verdict: what changes it, and what does not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

import gradgate
from gradgate.references import registry
from gradgate.suites.imports import Imports, Parsed, strings_of
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.verdict import Task
from gradgate.suites.keeping.keys import JUDGING, Keys
from gradgate.suites.keeping.verdicts import Verdicts
from gradgate.suites.workers.supervisor import Supervisor

TASK = Task("state_space", "good", "torch", "tree", "mine.py:good")


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Keys]:
    """A function that makes new keys for an empty project."""
    monkeypatch.chdir(tmp_path)
    return lambda: Keys(tmp_path)


def test_a_key_changes_with_what_the_claim_is_asked_for_and_with_the_flags_of_the_compiler(
    keys: Callable[[], Keys], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [Run(), Run(examples=5), Run(seed=1), Run(limit=1.0)]
    found = {keys().verdict(["mine"], TASK, run) for run in asked}
    assert found == {keys().verdict(["other"], TASK, run) for run in asked}, "what a project imports is recorded"
    monkeypatch.setenv("XLA_FLAGS", "--xla_other")
    found.add(keys().verdict(["mine"], TASK, Run()))
    assert len(found) == 5


def test_a_key_changes_with_one_character_of_a_module_that_judges(
    keys: Callable[[], Keys], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "judge.py").write_text("x = 1\n")
    found = set()
    for text in ("x = 1\n", "x = 1 \n"):
        (tmp_path / "judge.py").write_text(text)
        made = keys()
        made.imports.mounts["gradgate.judge"] = tmp_path / "judge"
        assert "gradgate.judge" in made.closure(["gradgate.judge"], [])
        found.add(made.question(["gradgate.judge"], [], "asked"))
    assert len(found) == 2


def test_a_key_changes_with_the_environment_in_which_a_library_is_judged(
    keys: Callable[[], Keys], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {keys().verdict(["mine.py"], TASK, Run())}
    for name in ("one", "other"):
        monkeypatch.setenv("GRADGATE_ENVIRONMENT", name)
        found.add(keys().verdict(["mine.py"], TASK, Run()))
    assert len(found) == 3


def test_a_file_that_the_settings_name_is_part_of_the_key(tmp_path: Path, keys: Callable[[], Keys]) -> None:
    before = Keys(tmp_path, ["*.bin"]).verdict([], TASK, Run())
    (tmp_path / "table.bin").write_bytes(b"1")
    assert Keys(tmp_path, ["*.bin"]).verdict([], TASK, Run()) != before


def test_the_judge_is_every_check_and_all_that_pairs_are_made_of(keys: Callable[[], Keys]) -> None:
    read = keys().closure(JUDGING, [])
    assert {f"gradgate.suites.{name}" for name in ("checks.form", "exact.balls", "engine.search")} <= set(read)
    others = {f"gradgate.suites.{name}" for name in ("engine.pytest_tests", "watching.block", "court.court")}
    assert set(gradgate._PLACES.values()) - others <= set(read)
    assert not [name for name in read if name.startswith(("gradgate.suites.bugs", "gradgate.suites.tests"))]


def test_methods_of_one_family_do_not_depend_on_those_of_another(keys: Callable[[], Keys]) -> None:
    [method] = registry.methods("chain", "sqrt_n", "torch")
    read = keys().closure(JUDGING, strings_of(method))
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
    (tmp_path / "a.py").write_text("from pack import b\n")
    (tmp_path / "b.py").write_text("")
    place = tmp_path / "kept" / "imports.json"
    mounts = {"pack": tmp_path}
    first = Parsed(place)
    assert set(Imports(mounts, first).closure(["pack.a"])) == {"pack.a", "pack.b"}
    first.keep()
    assert Parsed(place)._known == first._known != {}
    place.write_text(place.read_text().replace("pack.b", "pack.c"))
    assert set(Imports(mounts, Parsed(place)).closure(["pack.a"])) == {"pack.a", "pack.b"}


def test_what_stands_under_type_checking_is_no_import_and_what_stands_after_else_is(tmp_path: Path) -> None:
    text = "import typing\nif typing.TYPE_CHECKING:\n    import pack.b\nelse:\n    import pack.c\n"
    for name, content in {"a": text, "b": "", "c": ""}.items():
        (tmp_path / f"{name}.py").write_text(content)
    assert set(Imports({"pack": tmp_path}).closure(["pack.a"])) == {"pack.a", "pack.c"}


@pytest.mark.parametrize(
    ("family", "method", "framework"), [("chain", "sqrt_n", "torch"), ("bilevel", "mixflow", "jax")]
)
def test_imports_lead_to_every_module_that_a_worker_loads(
    family: str, method: str, framework: str, keys: Callable[[], Keys]
) -> None:
    pytest.importorskip(framework)
    [declared] = registry.methods(family, method, framework)
    tasks = [Task.of(declared, claim) for claim in declared.claims if claim.name in ("gradient_exact", "tree")]
    with Supervisor(Run(examples=2), jobs=1) as supervisor:
        verdicts = list(supervisor.judge_all(tasks))
    assert any(f"gradgate.references.{family}.problem" in verdict.loaded for verdict in verdicts)
    kept = Verdicts(Run(examples=2), keys())
    beyond = {name for verdict in verdicts for name in kept._judges(verdict, strings_of(declared))}
    assert beyond <= {"gradgate.suites.workers.start"}
