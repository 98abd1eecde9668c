"""`gradgate init` writes what is not there, overwrites nothing, and its skeleton is upheld."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradgate.suites.settings import Settings

WORKFLOW = ".github/workflows/gradients.yml"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_the_skeleton_is_upheld_and_its_settings_can_be_read(
    framework: str, folder: Path, gradgate: Callable[..., Any], process: Callable[..., Any]
) -> None:
    pytest.importorskip(framework)
    ran = gradgate("init", "--framework", framework, "--pairs", "tests/gradients.py")
    assert ran.status == 0
    assert ran.out.splitlines() == [
        "wrote tests/gradients.py",
        "wrote pyproject.toml",
        f"wrote {WORKFLOW}",
        "next: gradgate verify tests/gradients.py",
    ]
    assert Settings.read(folder).pairs == ("tests/gradients.py",)
    judged = ("--examples", "2", "--claim", "gradient_exact", "--claim", "tree")
    ran = process("-m", "gradgate.suites.cli", "verify", "tests/gradients.py", *judged, cwd=folder)
    assert (ran.status, ran.out.splitlines()[-1]) == (0, "2 of 2 claims as declared: as claimed")


def test_a_skeleton_with_a_term_dropped_is_refuted(
    folder: Path, gradgate: Callable[..., Any], torch: Any, process: Callable[..., Any]
) -> None:
    gradgate("init", "--framework", "torch", "--no-workflow")
    text = (folder / "gradients.py").read_text()
    assert " * (1 + x * (1 - s))" in text
    (folder / "gradients.py").write_text(text.replace(" * (1 + x * (1 - s))", ""))
    judged = ("--examples", "2", "--claim", "gradient_exact")
    ran = process("-m", "gradgate.suites.cli", "verify", "gradients.py", *judged, cwd=folder)
    assert ran.status == 1
    assert "wrong gradient of x" in ran.out


def test_nothing_is_overwritten(folder: Path, gradgate: Callable[..., Any]) -> None:
    mine = {"gradients.py": "mine = 1\n", "pyproject.toml": "[tool.gradgate]\nseed = 3\n", WORKFLOW: "name: mine\n"}
    (folder / WORKFLOW).parent.mkdir(parents=True)
    for name, text in mine.items():
        (folder / name).write_text(text)
    ran = gradgate("init", "--framework", "torch")
    assert (ran.status, ran.out.count("left as it is")) == (0, 3)
    assert {name: (folder / name).read_text() for name in mine} == mine


def test_settings_are_added_to_a_project_and_its_own_lines_stay(folder: Path, gradgate: Callable[..., Any]) -> None:
    mine = '[project]\nname = "mine" # of mine\nversion = "1"\n\n[tool.other]\nkey = 1'
    (folder / "pyproject.toml").write_text(mine)
    assert gradgate("init", "--framework", "jax").status == 0
    text = (folder / "pyproject.toml").read_text()
    assert text.startswith(mine)
    assert Settings.read(folder).pairs == ("gradients.py",)
    assert "'gradgate[jax]' .\n" in (folder / WORKFLOW).read_text(), "the project itself is installed"


def test_the_workflow_takes_no_text_of_the_event_into_a_command(folder: Path, gradgate: Callable[..., Any]) -> None:
    yaml = pytest.importorskip("yaml")
    gradgate("init", "--framework", "torch")
    found = yaml.safe_load((folder / WORKFLOW).read_text())
    steps = found["jobs"]["gradients"]["steps"]
    assert found["permissions"] == {"contents": "read"}
    assert not any("${{" in step.get("run", "") for step in steps)
    assert all(len(step["uses"].partition("@")[2]) == 40 for step in steps if "uses" in step), "pinned by hash"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--framework", "tensorflow"), "unknown framework 'tensorflow'; legal: jax, torch"),
        (("--pairs", "../gradients.py"), "--pairs is a Python file inside this folder"),
        (("--pairs", "gradients.toml"), "--pairs is a Python file inside this folder"),
    ],
)
def test_wrong_use_writes_nothing(
    words: tuple[str, ...], said: str, folder: Path, gradgate: Callable[..., Any]
) -> None:
    ran = gradgate("init", *words)
    assert ran.status == 3
    assert said in ran.err
    assert not list(folder.iterdir())
