"""The page about meta-gradients: its blocks run, and both frameworks print the same numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gradgate.suites.guide

PAGE = Path(gradgate.suites.guide.__file__).parent / "meta_gradients.md"
BLOCK = re.compile(r"^```python (\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def code(framework: str) -> str:
    """All blocks of a framework, joined."""
    found = [text for kind, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")) if kind == framework]
    assert len(found) == 3
    return "\n".join(found)


def printed(framework: str, tmp_path: Path, process: Callable[..., Any]) -> list[float]:
    """The numbers that a framework's blocks print."""
    (tmp_path / f"in_{framework}.py").write_text(code(framework), encoding="utf-8")
    found = process(f"in_{framework}.py", cwd=tmp_path)
    assert found.status == 0, found.err
    return [float(number) for number in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", found.out)]


def test_the_blocks_run_and_both_frameworks_print_the_same(
    jax: Any, torch: Any, tmp_path: Path, process: Callable[..., Any]
) -> None:
    pytest.importorskip("optax")
    ours, theirs = (printed(framework, tmp_path, process) for framework in ("jax", "torch"))
    assert len(ours) == 5
    assert ours[3] == pytest.approx(ours[4], rel=1e-4)  # states that are kept, and steps that are taken back
    assert ours[3] != pytest.approx(ours[0], rel=1e-4)
    assert all(abs(number) > 1e-6 for number in ours)
    assert ours == pytest.approx(theirs, rel=1e-3)


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_the_first_block_has_ten_lines(framework: str) -> None:
    first = next(text for kind, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")) if kind == framework)
    lines = [line for line in first.splitlines() if line]
    assert len(lines) - sum(line.startswith(("import", "from")) for line in lines) <= 10


def test_another_number_would_be_seen() -> None:
    assert pytest.approx([1.0, 2.01], rel=1e-3) != [1.0, 2.0]
