"""The wheel, in an environment and a folder without the checkout: every file is in it, and everything works."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from gradgate.references import registry
from gradgate.suites import cli
from gradgate.suites.commands import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("hw_profiles", "references", "suites")
MOST_BYTES = 3_000_000
NEEDED = ("build", "setuptools", "pip")

missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}; pip install --group build"),
    pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="not a checkout"),
    pytest.mark.xdist_group("packaging"),
]

PLUGIN = """
import torch

def gradient(problem):
    grads, loss = torch.func.grad_and_value(problem.loss)(problem.params)
    return loss, grads
"""


def run(*arguments: object, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTEST_ADDOPTS")}
    return subprocess.run(
        [str(a) for a in arguments],
        cwd=cwd,
        env={**kept, **env},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def build(source: Path, folder: Path) -> Path:
    made = run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", folder, source, cwd=source)
    assert made.returncode == 0, made.stdout + made.stderr
    [wheel] = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of this checkout, so that the build writes nothing into the checkout."""
    copy = tmp_path_factory.mktemp("source") / "gradgate"
    copy.mkdir()
    for name in (*FOLDERS, "pyproject.toml", "setup.py", "README.md", "LICENSE"):
        place = ROOT / name
        if place.is_dir():
            shutil.copytree(place, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(place, copy / name)
    return build(copy, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of a fresh environment with the wheel; it uses this environment's heavy packages, not its gradgate."""
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    made = run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    assert made.returncode == 0, made.stderr
    found = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    install(wheel, found)
    [site] = folder.rglob("site-packages")
    # The name makes Python read this file last, so packages of the fresh environment come first. An editable install
    # of gradgate stays unused: Python does not read the .pth files of folders that are added like this.
    borrowed = [path for path in sys.path if path.endswith("site-packages")]
    (site / "zz_borrowed.pth").write_text("\n".join(borrowed) + "\n")
    return found


def install(wheel: Path, python: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "install", "-q"]
    made = run(*pip, "--no-deps", "--no-index", wheel, cwd=wheel.parent)
    assert made.returncode == 0, made.stderr


def gradgate(python: Path, *arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run(python.parent / "gradgate", *arguments, cwd=cwd)


def test_the_wheel_holds_every_package_folder_and_its_data_and_no_test(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    files = [
        path.relative_to(ROOT)
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".toml", ".json", ".html", ".css", ".md", ".svg") or path.name == "py.typed"
    ]
    elsewhere = (
        *(("suites", room) for room in cli.CHECKOUT),  # the trial of gradgate, and its site
        ("suites", "api"),
        ("suites", "design"),  # pages for contributors
    )
    expected = {f"gradgate/{p.as_posix()}" for p in files if not {p.parts[:2], p.parts[:3]} & set(elsewhere)}
    api = {path.name for path in (ROOT / "suites" / "api").iterdir() if path.suffix == ".py"}
    expected |= {f"gradgate/{name}" for name in api | {"py.typed"}}  # suites/api is installed as the module gradgate
    assert {name for name in names if name.startswith("gradgate/")} == expected
    assert {"gradgate/references/state_space/problem.py", "gradgate/hw_profiles/devices/cpu.toml"} <= names
    assert {f"gradgate/{folder}/py.typed" for folder in FOLDERS} <= names
    assert not [name for name in names if "/tests/" in name or name.endswith("conftest.py")]
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"gradgate"}, "no other top-level names"


def test_the_wheel_has_at_most_three_megabytes(wheel: Path) -> None:
    """The size of the file that is downloaded; unpacked, it is about three times as large."""
    assert wheel.stat().st_size <= MOST_BYTES


def test_a_room_that_the_wheel_leaves_out_is_one_that_no_user_needs() -> None:
    assert f"CHECKOUT = {cli.CHECKOUT!r}".replace("'", '"') in (ROOT / "setup.py").read_text("utf-8")


@pytest.mark.parametrize("arguments", [("selftest", "--family", "chain"), ("calibrate", "--help")])
def test_a_command_that_needs_a_checkout_says_so_in_one_line(
    python: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    ran = gradgate(python, *arguments, cwd=tmp_path)
    assert ran.returncode == 3, ran.stdout + ran.stderr
    [line] = ran.stderr.splitlines()
    assert line.endswith("which only a checkout of gradgate has: run it there"), line


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - {"selftest", "calibrate"}))
def test_every_other_command_is_in_the_wheel(python: Path, tmp_path: Path, name: str) -> None:
    ran = gradgate(python, name, "--help", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr


def test_the_command_of_the_wheel_runs_from_another_folder(python: Path, tmp_path: Path) -> None:
    where = run(python, "-c", "import gradgate.suites.cli as c; print(c.__file__)", cwd=tmp_path)
    assert str(python.parent.parent) in where.stdout, where.stderr
    listed = gradgate(python, "list", "--json", cwd=tmp_path)
    assert listed.returncode == 0, listed.stderr
    assert len(json.loads(listed.stdout)["methods"]) >= 12
    assert gradgate(python, "profiles", cwd=tmp_path).returncode == 0


def test_a_plug_in_file_is_verified_by_the_wheel(python: Path, tmp_path: Path, torch: Any) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN)
    ran = gradgate(
        python,
        "verify",
        "mine.py:gradient",
        "--family",
        "state_space",
        "--examples",
        2,
        "--report",
        "out",
        cwd=tmp_path,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "11 of 11 claims as declared: as claimed" in ran.stdout
    assert (tmp_path / "out" / "index.html").exists()


def test_a_plug_in_of_an_entry_point_is_verified_by_the_wheel(
    python: Path, tmp_path: Path, torch: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    source = tmp_path / "other"
    source.mkdir()
    (source / "othergrad.py").write_text(PLUGIN)
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "othergrad"\nversion = "1"\n'
        '[project.entry-points."gradgate.methods"]\n"state_space.other" = "othergrad:gradient"\n'
        '[tool.setuptools]\npy-modules = ["othergrad"]\n'
    )
    site = tmp_path_factory.mktemp("entry_point")  # a separate folder: no other test sees the entry point
    made = run(
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-index",
        "--target",
        site,
        build(source, tmp_path / "dist"),
        cwd=tmp_path,
    )
    assert made.returncode == 0, made.stderr
    ran = run(
        python.parent / "gradgate",
        "verify",
        "--family",
        "state_space",
        "--framework",
        "torch",
        "--claim",
        "tree",
        "--examples",
        1,
        "--json",
        "v.json",
        "--timeout",
        300,
        cwd=tmp_path,
        PYTHONPATH=str(site),
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    rows = json.loads((tmp_path / "v.json").read_text())["verdicts"]
    [mine] = [row for row in rows if row.get("target") == "othergrad:gradient"]
    assert (mine["verdict"], mine["family"], mine["framework"]) == ("upheld", "state_space", "torch")
    assert len(rows) == 1 + len(registry.methods("state_space", framework="torch")), "the references and the plug-in"


def test_pytest_in_a_foreign_project_judges_its_method(python: Path, tmp_path: Path, torch: Any) -> None:
    project = tmp_path / "project"
    (project / "tests").mkdir(parents=True)
    (project / "mine.py").write_text(PLUGIN)
    (project / "conftest.py").write_text(
        "import pytest\n\n@pytest.fixture(autouse=True)\ndef theirs():\n    yield\n\n"
        "def pytest_configure(config):\n    config.addinivalue_line('markers', 'slow: theirs')\n"
    )
    (project / "pyproject.toml").write_text("[tool.pytest.ini_options]\nfilterwarnings = ['error']\n")
    (project / "tests" / "test_theirs.py").write_text("def test_theirs():\n    assert True\n")
    ran = run(
        python,
        "-m",
        "pytest",
        "--pyargs",
        "gradgate.suites",
        "--method",
        "mine.py:gradient",
        "--family",
        "state_space",
        "--examples",
        2,
        "-q",
        "-p",
        "no:cacheprovider",
        cwd=project,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "11 passed" in ran.stdout
    ran = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=project)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout, "without --pyargs, gradgate must not change the project's test run"
