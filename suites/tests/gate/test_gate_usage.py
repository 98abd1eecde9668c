"""Repositories and configurations in which nothing can be compared give one sentence and exit status 3."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradgate.references import registry
from gradgate.references.contract import UsageError
from gradgate.suites.gate import allow
from gradgate.suites.gate.git import Repository
from gradgate.suites.gate.manifest import Gated
from gradgate.suites.gate.overlay import is_gradgate
from gradgate.suites.gate.side import Side
from gradgate.suites.settings import Settings, Target
from gradgate.suites.tests.scratch import Scratch


@pytest.fixture
def scratch(tmp_path: Path) -> Any:
    made = Scratch(tmp_path / "repository")
    made.commit({"pyproject.toml": "", "mine.py": "x = 1\n"})
    return made


def test_no_repository(gate: Any, tmp_path: Path, gradgate: Callable[..., Any], monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    ran = gradgate("gate")
    assert ran.status == 3
    assert "is not inside a git repository" in ran.err


@pytest.mark.parametrize("revision", ["nonsense", "--all", "HEAD~99", ""])
def test_an_unknown_revision(scratch: Any, gate: Any, revision: str) -> None:
    ran = gate(scratch, base=revision) if not revision.startswith("-") else gate(scratch, f"--base={revision}")
    assert ran.status == 3
    assert "unknown revision" in ran.err
    assert ran.err.count("\n") == 1


def test_changes_that_are_not_committed(scratch: Any, gate: Any) -> None:
    (scratch.root / "mine.py").write_text("x = 2\n")
    ran = gate(scratch)
    assert ran.status == 3
    assert "differs from HEAD (mine.py)" in ran.err


def test_an_untracked_module_counts_as_a_change_and_an_untracked_note_does_not(scratch: Any) -> None:
    repository = Repository.around(scratch.root)
    scratch.write({"notes.md": "note", "notes/more.md": "note"})
    repository.need_clean()
    scratch.write({"new/module.py": "x = 1"})
    with pytest.raises(UsageError, match="new/"):
        repository.need_clean()


def test_a_shallow_clone(scratch: Any, gate: Any, tmp_path: Path) -> None:
    scratch.commit({"mine.py": "x = 3\n"})
    scratch.git("clone", "--quiet", "--depth", "1", f"file://{scratch.root}", str(tmp_path / "shallow"))
    scratch.root = tmp_path / "shallow"
    ran = gate(scratch)
    assert ran.status == 3
    assert "shallow" in ran.err
    assert "--unshallow" in ran.err


def test_no_common_ancestor(scratch: Any, gate: Any) -> None:
    scratch.git("checkout", "--quiet", "--orphan", "other")
    scratch.commit({"mine.py": "x = 4\n"})
    ran = gate(scratch)
    assert ran.status == 3
    assert "no common ancestor" in ran.err


def test_a_project_that_names_nothing_to_gate(scratch: Any, gate: Any) -> None:
    ran = gate(scratch)
    assert ran.status == 3
    assert "[[tool.gradgate.methods]]" in ran.err


WRONG = """import torch
import gradgate
def square(x): return x * x
def one(): return 1.0
pair = gradgate.Pair(one, square, {"x": gradgate.normal("N")}, {"N": (3,)}, name="mine")
"""


def test_a_pair_that_cannot_be_called_is_wrong_usage_on_the_head_and_not_on_the_base(
    scratch: Any, gate: Any, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch.commit({"pyproject.toml": '[tool.gradgate]\npairs = ["pairs.py"]\n', "pairs.py": WRONG})
    ran = gate(scratch)
    assert ran.status == 3
    assert ran.err.count("\n") == 1
    assert "the head" in ran.err
    assert "mine: the function one() cannot be called as one(x), as declared" in ran.err
    monkeypatch.chdir(scratch.root)
    request = {"own": False, "tree": str(scratch.root)}
    assert Side(request | {"base": True}).describe()["methods"] == ["mine:mine:torch"]
    with pytest.raises(UsageError, match="cannot be called"):
        Side(request | {"base": False}).describe()


def test_the_project_is_the_nearest_folder_with_a_pyproject(scratch: Any) -> None:
    scratch.commit({"packages/one/pyproject.toml": "", "packages/one/src/a.py": ""})
    repository = Repository.around(scratch.root / "packages/one/src")
    assert str(repository.project) == "packages/one"
    assert repository.root == scratch.root.resolve()


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("profile = ['cpu']", "did you mean 'profiles'"),
        ("profiles = 'cpu'", "profiles must be a list"),
        ("profiles = []", "profiles must be a list that is not empty"),
        ("profiles = [1]", "profiles[0] must be a string"),
        ("examples = 0", "examples must be a whole number from 1 to"),
        ("examples = true", "examples must be a whole number"),
        ("[[tool.gradgate.methods]]\ntarget = 'a:b'", "'methods[0].family' is missing"),
        ("[[tool.gradgate.methods]]\ntarget = 'a:b'\nfamilly = 'x'", "did you mean 'family'"),
        ("profiles = [", "not TOML"),
        ("framework = 'numpy'", "unknown key 'framework'"),
        ("[[tool.gradgate.methods]]\ntarget = 'a:b'\nfamily = 'x'\nframework = 'numpy'", "jax or torch, not 'numpy'"),
        ("[[tool.gradgate.methods]]\ntarget = 'a:b'\nfamily = 'x'\nspec = {T = [1]}", "methods[0].spec.T must be"),
        ("methods = 3", "methods must be a list"),
        ("pairs = [['a.py']]", "pairs[0] must be a string"),
        ("pairs = ['']", "not empty"),
        ("examples = 1" + 500 * "0", "examples must be a whole number from 1 to 1000000, not 1000"),
        ("examples = 1" + 5000 * "0", "not TOML"),
        ("examples = 1.5", "examples must be a whole number"),
        ("seed = -1", "seed must be a whole number from 0"),
        ("seed = 1" + 20 * "0", "seed must be a whole number from 0"),
        ("allow = 3", "allow must be a string"),
        ("allow = '../allow.toml'", "allow must be a path below the project"),
        ("path = 'src'", "path must be a list"),
        ("path = ['src']", "no such folder"),
        ("path = ['/usr']", "path must be a path below the project"),
        ("path = ['..']", "path must be a path below the project"),
        (r"path = ['C:\src']", "path must be a path below the project"),
        ("depends = 'data.json'", "depends must be a list"),
        ("depends = ['/etc/host*']", "depends must be a path below the project"),
        ("depends = ['../*.json']", "depends must be a path below the project"),
        ("depends = ['data/*.json']", "matches no file"),
        ("depends = ['a**']", "no glob|matches no file"),
        ("x = " + 3000 * "[", "not TOML"),
    ],
)
def test_settings_say_what_is_wrong(tmp_path: Path, table: str, said: str) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.gradgate]\n{table}\n")
    with pytest.raises(UsageError, match=said.replace("[", r"\[")) as raised:
        Settings.read(tmp_path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"tool = 3", "tool must be a table, not 3"),
        (b"[tool]\ngradgate = []", "must be a table of names and values"),
        (b"[tool]\ngradgate = 'cpu'", "must be a table of names and values"),
        (b"# \xff", "not UTF-8: invalid start byte at byte 2"),
        (b"\xef\xbb\xbf[tool.gradgate]", "not TOML"),
        (b"\xff\xfe[\0", "not UTF-8"),
    ],
)
def test_a_file_of_another_form_is_wrong_usage(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "pyproject.toml").write_bytes(content)
    with pytest.raises(UsageError, match=said):
        Settings.read(tmp_path)


@pytest.mark.parametrize("content", [b"project = 3", b"[project]\nname = ['gradgate']", b"x = " + 3000 * b"[", b"\xff"])
def test_a_project_of_another_form_is_not_gradgate_itself(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "references").mkdir()
    (tmp_path / "references" / "registry.py").touch()
    (tmp_path / "pyproject.toml").write_bytes(content)
    assert not is_gradgate(tmp_path)
    (tmp_path / "pyproject.toml").write_bytes(b"[project]\nname = 'gradgate'")
    assert is_gradgate(tmp_path)


def test_settings_are_read_with_every_key(tmp_path: Path) -> None:
    assert Settings.read(tmp_path) == Settings()
    (tmp_path / "src").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "table.json").write_text("{}")
    (tmp_path / "pyproject.toml").write_text(
        "[tool.gradgate]\nprofiles = ['cpu']\npairs = ['a.py']\npath = ['src']\nallow = 'allow.toml'\nexamples = 3\n"
        "seed = 4\ndepends = ['data/*.json']\n[[tool.gradgate.methods]]\ntarget = 'a.py:f'\nfamily = 'chain'\n"
        "framework = 'torch'\nspec = {layers = 3}\noptions = {chunk = 2}\n[tool.other]\nx = 1\n"
    )
    method = Target("a.py:f", "chain", "torch", {"layers": 3}, {"chunk": 2})
    assert Settings.read(tmp_path) == Settings(
        profiles=("cpu",),
        methods=(method,),
        pairs=("a.py",),
        path=("src",),
        allow="allow.toml",
        examples=3,
        seed=4,
        depends=("data/*.json",),
    )


@pytest.mark.parametrize("command", ["verify --family chain", "gate", "memory --family chain", "list"])
def test_every_command_reads_the_settings(
    tmp_path: Path, gradgate: Callable[..., Any], monkeypatch: Any, command: str
) -> None:
    made = Scratch(tmp_path / "project")
    made.commit({"pyproject.toml": "[tool.gradgate]\nseeds = 1\n"})
    monkeypatch.chdir(made.root)
    ran = gradgate(*command.split(), *(["--base", "HEAD"] if command == "gate" else []))
    assert ran.status == 3
    assert ran.err.endswith(
        "gradgate: pyproject.toml: [tool.gradgate]: unknown key 'seeds'; did you mean 'seed'? legal: profiles, "
        "methods, pairs, path, allow, examples, seed, fail_under, depends, by_design\n"
    )


ENTRY = 'cell = "f:m:jax@cpu"\nceiling = 5\nreason = "why"\nexpires = 2030-01-01\n'


def entries(tmp_path: Path, content: str) -> tuple[allow.Entry, ...]:
    (tmp_path / "allow.toml").write_text(content)
    return allow.read(tmp_path / "allow.toml", "allow.toml")


def test_an_entry_holds_until_its_day_and_for_its_figure_alone(tmp_path: Path) -> None:
    [entry] = entries(tmp_path, "[[allow]]\n" + ENTRY)
    assert entry.covers("f:m:jax@cpu", "temp_bytes", datetime.date(2030, 1, 1))
    assert not entry.covers("f:m:jax@cpu", "temp_bytes", datetime.date(2030, 1, 2))
    assert not entry.covers("f:m:jax@cpu", "flops", datetime.date(2029, 1, 1))
    assert allow.read(tmp_path / "none.toml", "none.toml") == ()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[[alow]]\n" + ENTRY, "did you mean 'allow'"),
        ("[[allow]]\n" + ENTRY.replace("ceiling", "celing"), "did you mean 'ceiling'"),
        ("[[allow]]\n" + ENTRY.replace("= 5", "= 5.5"), "ceiling must be a whole number"),
        ("[[allow]]\n" + ENTRY.replace("= 5", "= -5"), "ceiling must be a whole number of at least 1"),
        ("[[allow]]\n" + ENTRY.replace("why", " "), "reason must be a reason in words"),
        ("[[allow]]\n" + ENTRY.replace("2030-01-01", '"2030"'), "expires must be a date"),
        ("[[allow]]\n" + ENTRY.replace("expires", "# expires"), r"'allow\[0\].expires' is missing"),
        ("[[allow]]\n" + ENTRY.replace("ceiling", "# ceiling"), "'ceiling' is missing"),
        ("[[allow]]\n" + ENTRY + 'quantity = "bytes"\n', "quantity must be .* or temp_bytes, not 'bytes'"),
        ("[[allow]]\n" + ENTRY + "removed = true\n", "no ceiling"),
        ("[[allow]]\n" + ENTRY + "[[allow]]\n" + ENTRY, "has an entry already"),
        ("[[allow]\n", "not TOML"),
    ],
)
def test_allow_says_what_is_wrong(tmp_path: Path, content: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        entries(tmp_path, content)


def test_an_entry_for_nothing_is_an_error_that_names_the_nearest(tmp_path: Path) -> None:
    found = entries(tmp_path, "[[allow]]\n" + ENTRY)
    with pytest.raises(UsageError, match="did you mean f:m:jax@cpv"):
        allow.check_names(found, ["f:m:jax@cpv", "other"], "allow.toml")


def test_an_interpreter_that_is_not_there(scratch: Any, gate: Any) -> None:
    ran = gate(scratch, "--base-python", "/nowhere/python")
    assert ran.status == 3
    assert "cannot run /nowhere/python" in ran.err


def test_two_methods_of_one_name_are_refused(tmp_path: Path, monkeypatch: Any) -> None:
    pytest.importorskip("torch")
    from gradgate.suites.gate.manifest import gated

    (tmp_path / "one.py").write_text("import torch\ndef mine(problem): ...\n")
    (tmp_path / "two.py").write_text("import torch\ndef mine(problem): ...\n")
    rows = "".join(
        f'[[tool.gradgate.methods]]\ntarget = "{tmp_path}/{name}.py:mine"\nfamily = "state_space"\n'
        for name in ("one", "two")
    )
    (tmp_path / "pyproject.toml").write_text(rows)
    with pytest.raises(UsageError, match="two methods are called state_space:mine:torch"):
        gated(Settings.read(tmp_path), own=False)


def test_a_method_whose_work_grows_faster_is_gated_at_a_smaller_problem() -> None:
    specs = {
        name: next(Gated(registry.methods("bilevel", name, "torch")[0]).cells(("cpu",))).spec
        for name in ("forward_mode", "mixflow")
    }
    assert specs["forward_mode"].width < specs["mixflow"].width
    assert specs["forward_mode"].batch == specs["mixflow"].batch, "what a method does not name is its family's"
