"""What README and CONTRIBUTING tell a reader to do, works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gradgate.suites.cli import main

ROOT = Path(__file__).parents[2]


def _blocks(document: str, heading: str) -> list[str]:
    section = re.search(rf"^## {heading}$(.*?)(?=^## |\Z)", (ROOT / document).read_text(encoding="utf-8"), re.M | re.S)
    assert section, f"{document} has no section {heading}"
    return re.findall(r"^```(?:python)?\n(.*?)^```", section.group(1), re.M | re.S)


@pytest.mark.parametrize("heading", ["Verify", "Test"])
def test_readme_gives_exactly_one_command(heading: str) -> None:
    [command] = _blocks("README.md", heading)
    assert command.count("\n") == 1
    assert "nox -s" in command


def test_the_worked_example_of_contributing_is_upheld(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the example is PyTorch's")
    example, *_ = _blocks("CONTRIBUTING.md", "Verify a method of your own, without touching gradgate")
    assert example.count("\n") <= 36
    path = tmp_path / "mine.py"
    path.write_text(example, encoding="utf-8")
    assert main(["verify", f"{path}:recompute", "--family", "state_space", "--examples", "12", "--jobs", "1"]) == 0
