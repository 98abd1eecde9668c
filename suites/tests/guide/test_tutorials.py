"""The tutorials, pasted block by block into an empty folder, with one framework alone: every shown text is printed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gradgate.suites.tests.guide.test_worked_pages import BLOCK, FOLDER, PASTED, PROGRAMS, words
from gradgate.suites.tests.scratch import Scratch
from gradgate.suites.tests.test_missing_frameworks import BLOCK as WITHOUT
from gradgate.suites.tests.test_missing_frameworks import PARTS

INSTALLED = ("python3 -m venv", ". .venv/bin/activate", "pip install")
"""How the lines begin that make the environment, which the test has."""


def lines(block: str) -> Iterator[str]:
    """The commands of a block of the shell, without those that make the environment."""
    for line in block.splitlines():
        assert line.startswith("$ "), f"every line of the block is a command: {line}"
        if not line[2:].startswith(INSTALLED):
            yield line[2:]


@pytest.mark.parametrize("page", PASTED)
def test_a_tutorial_pasted_into_an_empty_folder_runs_to_the_gate(
    page: str, tmp_path: Path, process: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(PASTED[page])
    monkeypatch.setenv("GRADGATE_CACHE", str(tmp_path / "cache"))
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Test")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "test@example.org")
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "sitecustomize.py").write_text(WITHOUT)
    path = os.pathsep.join(filter(None, [str(blocked), os.environ.get("PYTHONPATH")]))
    gone = [part for name, parts in PARTS.items() if name != PASTED[page] for part in parts]
    alone = {"PYTHONPATH": path, "GRADGATE_TEST_WITHOUT": ",".join(gone)}
    text = (FOLDER / f"{page}.md").read_text(encoding="utf-8")
    told: str | None = None
    made = Scratch(tmp_path / "empty")
    for kind, name, block in BLOCK.findall(text):
        assert (kind == "text") == (told is not None), f"an output must follow every command: {block}"
        if name:
            assert f"`{name}`" in text, "the file's name is visible outside of the block"
            made.write({name: block})
        elif kind == "console":
            for line in lines(block):
                assert line.startswith(("git ", "printf ")), line
                assert (
                    process(
                        "-c", f"import subprocess, sys; sys.exit(subprocess.call({line!r}, shell=True))", cwd=made.root
                    ).status
                    == 0
                ), line
        elif kind == "sh":
            program, *arguments = shlex.split(block)
            found = process(*PROGRAMS[program], *arguments, cwd=made.root, env=alone)
            told = str(found.out) + str(found.err)
        else:
            assert "…" not in block.split(), "nothing is cut out"
            assert words(block) in words(told or ""), f"not printed: {block}\nprinted: {told}"
            told = None
