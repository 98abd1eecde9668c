"""Whatever the layout and the installation of a project, both sides of the gate run the files of their own commits."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gradgate.suites.tests.gate.layouts import BACKENDS, CHANGES, LAYOUTS, Environment, Layout
from gradgate.suites.tests.scratch import Scratch

pytestmark = pytest.mark.xdist_group("layouts")
FAST = {("src", False), ("renamed", True)}
"""What runs without the environment variable that names the build backends; with it, 48 runs of the gate."""
TABLE = [
    (name, editable)
    for name in LAYOUTS
    for editable in (False, True)
    if (name, editable) in FAST or os.environ.get(BACKENDS)
]


@pytest.fixture(scope="module", params=TABLE, ids=[f"{name}-{'editable' if e else 'copied'}" for name, e in TABLE])
def project(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Layout, Scratch, Environment]:
    """A layout, its repository, and the environment in which it is installed."""
    pytest.importorskip("torch")
    name, editable = request.param
    layout, place = LAYOUTS[name], tmp_path_factory.mktemp(name)
    environment = Environment(place / "environment")
    if not environment.can(layout.backend):
        pytest.skip(f"{layout.backend} is not installed")
    environment.variables["GRADGATE_CACHE"] = str(place / "cache")
    made = layout.make(place / "repository", f"{name}, {editable}")
    for folder in (*layout.beside, layout.project):
        environment.install(made.root / folder, editable=editable)
    return layout, made, environment


@pytest.mark.parametrize("change", CHANGES)
def test_the_gate_runs_the_commits(project: tuple[Layout, Scratch, Environment], change: str, tmp_path: Path) -> None:
    layout, made, environment = project
    made.git("checkout", "--quiet", "--force", "-B", "change", "main")
    made.replace(f"{layout.code}/ops.py", *CHANGES[change])
    made.write({} if CHANGES[change] else {"README.md": "other words\n"})
    made.git("commit", "--quiet", "--all", "--message", "change")
    ran = environment.gate(made.root / layout.project, "--json", str(tmp_path / "gate.json"))
    said = ran.stdout + ran.stderr
    assert ran.returncode == (0 if change == "docs" else 1), said
    document = json.loads((tmp_path / "gate.json").read_text())
    for side in ("base", "head"):
        assert document["ran"][side][f"{layout.package}.ops"] == f"{layout.code}/ops.py"
    kinds = {finding["kind"] for finding in document["findings"]}
    assert kinds == {"wrong": {"refuted"}, "array": {"rise"}, "docs": set()}[change], said
    if change == "wrong":
        assert "REFUTED square:square:torch:gradient_exact" in ran.stdout
        assert "upheld on the base" in ran.stdout
    if change == "docs":
        assert "PASS: every gated figure is the same" in ran.stdout
    assert len(made.git("worktree", "list").splitlines()) == 1
