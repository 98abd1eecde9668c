"""Commands that get no target take what pyproject.toml names, from its folders, and say so."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradgate.suites.commands import arguments
from gradgate.suites.settings import Settings
from gradgate.suites.tests.scratch import SQUARE

SETTINGS = """
[tool.gradgate]
pairs = ["tests/gradients.py"]
path = ["src"]

[[tool.gradgate.methods]]
target = "mylib.own:good"
family = "state_space"
spec = {{ length = 4 }}
{more}
"""
PAIR = """
import gradgate
from mylib.ops import Square
{name} = gradgate.Pair(Square.apply, lambda x: x * x, {{"x": gradgate.normal("T")}}, {{"T": (3, 1)}}, framework="torch")
"""
SAID = "no target is given, so it is what pyproject.toml names: mylib.own:good, tests/gradients.py\n"


@pytest.fixture
def project(tmp_path: Path, torch: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project in a ``src`` layout that is not installed, with a pair and a method of the class state_space."""
    from gradgate.suites.tests.conftest import GOOD

    library = tmp_path / "src" / "mylib"
    library.mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    (library / "__init__.py").touch()
    (library / "ops.py").write_text(SQUARE)
    (library / "own.py").write_text(GOOD["torch"])
    (tmp_path / "tests" / "gradients.py").write_text(PAIR.format(name="square"))
    (tmp_path / "pyproject.toml").write_text(SETTINGS.format(more=""))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def judged(path: Path) -> set[str]:
    """The methods that have a verdict."""
    return {row["method"] for row in json.loads(path.read_text())["verdicts"]}


def test_verify_judges_what_the_project_names(project: Path, gradgate: Callable[..., Any]) -> None:
    more = ("--claim", "gradient_exact", "--examples", 2, "--jobs", 1, "--json", "v.json")
    ran = gradgate("verify", *more)
    assert (ran.status, ran.err.startswith(SAID)) == (0, True), ran.out + ran.err
    assert judged(project / "v.json") == {"square", "good"}
    ops = project / "src" / "mylib" / "ops.py"
    ops.write_text(SQUARE.replace("2 * upstream", "3 * upstream"))
    wrong = gradgate("verify", *more)
    assert (wrong.status, "wrong gradient of x (50%)" in wrong.out) == (1, True), wrong.out + wrong.err


def test_a_class_that_is_asked_for_is_judged_and_not_the_project(project: Path, gradgate: Callable[..., Any]) -> None:
    asked = ("--family", "state_space", "--method", "backprop", "--framework", "torch", "--claim", "tree")
    ran = gradgate("verify", *asked, "--examples", 1, "--jobs", 1, "--json", "v.json")
    assert (ran.status, SAID in ran.err) == (0, False), ran.out + ran.err
    assert judged(project / "v.json") == {"backprop"}


def test_a_project_that_names_nothing_gets_our_own_methods(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.gradgate]\nfail_under = 3\n")
    chosen = argparse.Namespace(target=None, family=None, method=None, framework=None)
    assert arguments.targets(chosen, Settings.read(tmp_path)) == ()


def test_a_wrong_use_without_a_target_is_one_line(project: Path, gradgate: Callable[..., Any]) -> None:
    for asked in (("verify", "--claim", "gradient"), ("memory", "--sweep", "K=1:4"), ("verify", "--framework", "jax")):
        ran = gradgate(*asked)
        assert (ran.status, ran.err.count("\n")) == (3, 1), ran.err


def test_what_is_named_twice_is_judged_once(project: Path, gradgate: Callable[..., Any]) -> None:
    settings = '[tool.gradgate]\npath = ["src"]\npairs = ["tests/gradients.py", "tests/gradients.py:square"]\n'
    (project / "pyproject.toml").write_text(settings)
    ran = gradgate("verify", "--claim", "tree", "--examples", 1, "--jobs", 1)
    assert "1 of 1 claims as declared" in ran.out, ran.out + ran.err


def test_memory_measures_what_the_project_names(project: Path, gradgate: Callable[..., Any]) -> None:
    ran = gradgate("memory", "--jobs", 1, "--json", "m.json")
    assert (ran.status, ran.err.startswith(SAID)) == (0, True), ran.out + ran.err
    cells = json.loads((project / "m.json").read_text())["cells"]
    assert {cell["method"] for cell in cells} == {"square", "good"}
    assert [cell["spec"]["length"] for cell in cells if cell["method"] == "good"] == [4], "as the settings say"


def test_domain_takes_the_only_pair(project: Path, gradgate: Callable[..., Any]) -> None:
    ran = gradgate("domain", "--json", "d.json")
    assert (ran.status, ran.err.startswith(SAID)) == (0, True), ran.out + ran.err
    assert json.loads((project / "d.json").read_text())["target"] == "tests/gradients.py:square"
    (project / "two.py").write_text(PAIR.format(name="one") + PAIR.format(name="other"))
    (project / "pyproject.toml").write_text('[tool.gradgate]\npath = ["src"]\npairs = ["two.py"]\n')
    two = gradgate("domain")
    assert (two.status, two.err) == (3, "gradgate: two.py declares 2 pairs; name one, such as two.py:one\n")
    (project / "pyproject.toml").unlink()
    none = gradgate("domain")
    assert (none.status, none.err) == (3, "gradgate: say which pair: file.py:pair, or a file with one\n")


def test_the_scope_of_the_users_code_leaves_nothing_behind(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "1")
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    before = dict(os.environ), list(sys.path)
    with arguments.users_code(Settings.read(project)):
        assert os.environ["PYTHONPATH"] == f"{project / 'src'}{os.pathsep}elsewhere"
        assert sys.path[0] == str(project / "src")
        assert (os.environ["JAX_PLATFORMS"], os.environ["TF_CPP_MIN_LOG_LEVEL"]) == ("cpu", "1"), "the user's own stays"
    assert (dict(os.environ), sys.path) == before


@pytest.mark.parametrize("command", ["memory", "domain"])
def test_a_wrong_use_of_a_pair_in_jax_is_one_line(jax: Any, command: str, process: Any, tmp_path: Path) -> None:
    """Where JAX has its plug-in for CUDA and there is no GPU, importing JAX writes ten lines."""
    (tmp_path / "gradients.py").write_text("import jax\nfrom gradgate import Pair\n")
    ran = process("-m", "gradgate.suites.cli", command, "gradients.py:pair", cwd=tmp_path)
    assert (ran.status, ran.err.count("\n")) == (3, 1), ran.err
    assert "unknown function in gradients.py 'pair'" in ran.err
