"""Whatever has changed that a pair read: `verify`, `memory` and the gate ask again; unchanged, they ask nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gradgate.suites.tests.keeping.ways import WAYS, write
from gradgate.suites.tests.scratch import Scratch

pytest.importorskip("torch")
ALL = "GRADGATE_TEST_ALL_WAYS"
"""Environment variable: try every way through every command, which takes 20 minutes."""
ALWAYS = {"verify": "a file of data", "memory": "a module beside it", "gate": "importlib.import_module"}
"""What is tried without the variable: command -> way."""
TRIED = [(name, command) for name in WAYS for command in ALWAYS if ALWAYS[command] == name or os.environ.get(ALL)]
PAIRS = """import sys

sys.path.append("")
import mine
import gradgate
from gradgate import normal

square = gradgate.Pair(
    "ops:square", "ops:plain", {"x": normal("T")}, {"T": (2, 4)}, dtypes=("float32",), measured=[{"T": 8}],
)
"""
OPS = """import torch


def square(x):
    return (x * x).sum()


def plain(x):
    return (x**2).sum()
"""
SETTINGS = '[tool.gradgate]\npairs = ["gradients.py"]\nprofiles = ["cpu"]\nexamples = 1\n'
ASKED = {
    "verify": ["gradients.py", "--examples", "1", "--claim", "tree", "--jobs", "1"],
    "memory": ["gradients.py", "--profile", "cpu", "--jobs", "1"],
    "gate": ["--base", "main", "--jobs", "1"],
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scratch:
    """A repository beside ``site-packages``, which is on the import path; its cache is its own."""
    made = Scratch(tmp_path / "repository")
    monkeypatch.chdir(made.root)
    monkeypatch.setenv("PYTHONPATH", str(made.root / "site-packages"))
    monkeypatch.setenv("GRADGATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MY_SET", raising=False)
    return made


def asked_again(command: str) -> tuple[int, int] | None:
    """Run a command; how many answers were reused, of how many. None if it could not judge, in a line that says so."""
    ran = subprocess.run(
        [sys.executable, "-m", "gradgate.suites.cli", command, *ASKED[command], "--json", "../answer.json"],
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode in (2, 3):
        assert "gradgate" in ran.stdout + ran.stderr
        return None
    assert ran.returncode == 0, ran.stdout + ran.stderr
    document: dict[str, Any] = json.loads(Path("../answer.json").read_text())
    if command == "gate":
        return document["claims"]["reused"], document["claims"]["judged"]
    rows = document["verdicts" if command == "verify" else "cells"]
    return sum(row["reused" if command == "verify" else "cached"] for row in rows), len(rows)


@pytest.mark.parametrize(("name", "command"), TRIED)
def test_what_changed_is_asked_again(
    name: str, command: str, project: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    way, root = WAYS[name], project.root
    (root / "site-packages").mkdir()
    texts = {"mine.py": way.mine, "gradients.py": PAIRS, "ops.py": OPS, "pyproject.toml": SETTINGS}
    for path, text in {**texts, **way.files, ".gitignore": "site-packages\n__pycache__\n"}.items():
        write(path, text)(root, monkeypatch)
    way.prepare(root)
    project.commit()
    project.branch()

    first = asked_again(command)
    assert first is not None
    assert first[0] == 0
    write("bystander.py", "x = 1\n")(root, monkeypatch)
    project.commit()
    second = asked_again(command)
    assert second == (first[1], first[1])
    way.change(root, monkeypatch)
    project.commit()
    third = asked_again(command)
    assert third is None if way.breaks else third is not None and third[0] == 0
