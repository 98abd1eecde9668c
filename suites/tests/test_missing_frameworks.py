"""With only JAX, only PyTorch, or neither: what can run does run, and everything else says what to install."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradgate.references.contract import installed

# Python runs sitecustomize at start, in the worker processes too. This path finder does not find the blocked modules,
# so both `import` and `find_spec` behave as if they were not installed.
BLOCK = """
import importlib.machinery, os
gone = set(os.environ["GRADGATE_TEST_WITHOUT"].split(","))
find = importlib.machinery.PathFinder.find_spec

def find_spec(cls, name, path=None, target=None):
    return None if name.partition(".")[0] in gone else find(name, path, target)

importlib.machinery.PathFinder.find_spec = classmethod(find_spec)
"""
PARTS = {"jax": ["jax", "jaxlib"], "torch": ["torch"]}


@pytest.fixture
def without(tmp_path: Path, process: Callable[..., Any]) -> Callable[..., Any]:
    """A function that runs ``python …`` as if some frameworks were not installed."""
    folder = tmp_path / "blocked"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(BLOCK)

    def run(missing: list[str], *arguments: object) -> Any:
        path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
        names = ",".join(name for framework in missing for name in PARTS[framework])
        return process(*arguments, cwd=tmp_path, env={"PYTHONPATH": path, "GRADGATE_TEST_WITHOUT": names})

    return run


MISSING = pytest.mark.parametrize("missing", [["jax"], ["torch"], ["jax", "torch"]], ids="-".join)


@MISSING
def test_the_frameworks_are_indeed_missing(missing: list[str], without: Callable[..., Any]) -> None:
    code = (
        "import importlib.util as u\n"
        "from gradgate.references.contract import installed\n"
        "print([name for name in ('jax', 'torch') if u.find_spec(name) is None and not installed(name)])"
    )
    ran = without(missing, "-c", code)
    assert (ran.status, ran.err) == (0, "")
    for name in missing:
        assert name in ran.out


@MISSING
def test_every_declaration_imports_and_lists(missing: list[str], without: Callable[..., Any]) -> None:
    code = (
        "import gradgate.references.registry as r, gradgate.suites.cli, gradgate.suites.checks\n"
        "import gradgate.references.oracle, gradgate.references.taylor\n"
        "import gradgate.suites.commands.calibrate, gradgate.suites.plugin\n"
        "import sys; assert not {'jax', 'torch'} & sys.modules.keys(), 'imported without need'\n"
        "print(len(r.methods()))"
    )
    ran = without(missing, "-W", "error", "-c", code)
    assert ran.status == 0, ran.err
    assert int(ran.out) >= 12
    listed = without(missing, "-m", "gradgate.suites.cli", "list", "--json")
    assert listed.status == 0, listed.err
    assert {row["framework"] for row in json.loads(listed.out)["methods"]} == {"jax", "torch"}
    assert without(missing, "-m", "gradgate.suites.cli", "profiles", "--json").status == 0


@MISSING
def test_verify_judges_what_it_can_and_says_what_to_install(
    missing: list[str], without: Callable[..., Any], tmp_path: Path
) -> None:
    present = [name for name in PARTS if name not in missing]
    if not all(map(installed, present)):
        pytest.skip(f"{', '.join(present)} is not installed here at all")
    file = tmp_path / "v.json"
    ran = without(
        missing,
        "-m",
        "gradgate.suites.cli",
        "verify",
        "--family",
        "state_space",
        "--method",
        "backprop",
        "--examples",
        12,
        "--json",
        file,
    )
    assert ran.status == (0 if present else 2), ran.out + ran.err
    assert ("nothing was judged" in ran.err) == (not present)
    assert "Traceback" not in ran.out + ran.err
    rows = json.loads(file.read_text())["verdicts"]
    for name in missing:
        mine = [row for row in rows if row["framework"] == name]
        assert mine
        for row in mine:
            assert (row["verdict"], row["examples"]) == ("inapplicable", 0), row
            assert row["reason"] == f"{name} is not installed: pip install 'gradgate[{name}]'"
        assert f"pip install 'gradgate[{name}]'" in ran.out
    for name in present:
        claims = {row["claim"]: row for row in rows if row["framework"] == name}
        # With one framework, there is no second oracle to compare with.
        other = claims.pop("oracles_agree")
        assert (other["verdict"], other["reason"]) == (
            "inapplicable",
            f"{missing[0]} is not installed: pip install 'gradgate[{missing[0]}]'",
        )
        assert {row["verdict"] for row in claims.values()} == {"upheld"}, claims


def test_a_plug_in_whose_framework_is_missing_is_told(without: Callable[..., Any], plugin: Callable[..., str]) -> None:
    path = plugin()
    ran = without(["torch"], "-m", "gradgate.suites.cli", "verify", f"{path}:good", "--family", "state_space")
    assert ran.status == 3, ran.out + ran.err
    assert "No module named 'torch': pip install 'gradgate[torch]'" in ran.err
    assert "Traceback" not in ran.err


def test_memory_of_a_pair_whose_framework_is_missing_is_one_line(without: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "pairs.py").write_text("import torch\nimport gradgate\np = gradgate.Pair(torch.relu)\n")
    ran = without(["torch"], "-m", "gradgate.suites.cli", "memory", "pairs.py:p")
    assert (ran.status, len(ran.err.splitlines())) == (3, 1), ran.out + ran.err
    assert "No module named 'torch': pip install 'gradgate[torch]'" in ran.err


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("command", ["verify", "memory"])
def test_a_missing_framework_that_is_asked_for_is_one_line(
    command: str, name: str, without: Callable[..., Any]
) -> None:
    ran = without([name], "-m", "gradgate.suites.cli", command, "--family", "chain", "--framework", name)
    told = f"gradgate: {name} is not installed: pip install 'gradgate[{name}]'\n"
    assert (ran.status, ran.out, ran.err) == (3, "", told)


def test_inside_pytest_what_is_missing_is_skipped_with_its_reason(without: Callable[..., Any]) -> None:
    ran = without(
        ["jax", "torch"],
        "-m",
        "pytest",
        "--pyargs",
        "gradgate.suites.test_methods",
        "--family",
        "state_space",
        "--framework",
        "torch",
        "--examples",
        1,
        "-q",
        "-rs",
        "-p",
        "no:cacheprovider",
        "-k",
        "backprop",
    )
    assert ran.status == 0, ran.out + ran.err
    assert "torch is not installed: pip install 'gradgate[torch]'" in ran.out
    assert "passed" not in ran.out


def test_calibrate_without_a_framework_is_wrong_usage(without: Callable[..., Any]) -> None:
    ran = without(["jax", "torch"], "-m", "gradgate.suites.cli", "calibrate", "--problems", 1, "--jobs", 1)
    assert ran.status == 3, ran.out + ran.err
    assert "no framework is installed: pip install 'gradgate[jax]' or 'gradgate[torch]'" in ran.err
    assert "Traceback" not in ran.err


@MISSING
def test_the_public_module_imports_and_judges_with_what_is_there(
    missing: list[str], without: Callable[..., Any]
) -> None:
    code = (
        "import sys, gradgate\n"
        "[getattr(gradgate, name) for name in gradgate.__all__]\n"
        "assert not {'jax', 'torch'} & sys.modules.keys(), 'imported without need'\n"
        "pair = gradgate.Pair('mine:f', 'mine:g', {'x': gradgate.normal('T')}, {'T': (1, 2)},\n"
        "                     claims=[gradgate.grows('residual_bytes', T=1)])\n"
        "gradgate.parametrize()\n"
        "print(pair.called)"
    )
    ran = without(missing, "-W", "error", "-c", code)
    assert (ran.status, ran.out.strip()) == (0, "f"), ran.err
    for name in [name for name in PARTS if name not in missing and installed(name)]:
        ones = "torch.ones(3)" if name == "torch" else "jax.numpy.ones(3)"
        code = f"import gradgate, {name}\n{'import jax.numpy' if name == 'jax' else ''}\n"
        code += f"gradgate.check(lambda x: (x * x).sum(), lambda x: (x ** 2).sum(), ({ones},))"
        ran = without(missing, "-c", code)
        assert ran.status == 0, ran.err
