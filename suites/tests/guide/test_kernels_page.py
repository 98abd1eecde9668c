"""The page on kernels does what it says."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradgate.suites.tests.guide.test_worked_pages import BLOCK, FOLDER, check_shown, ran
from gradgate.suites.tests.scratch import Scratch


def test_the_page_on_kernels_does_what_it_says(
    tmp_path: Path, process: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("jax")
    if importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed: pip install 'gradgate[triton]'")
    monkeypatch.setenv("GRADGATE_CACHE", str(tmp_path / "cache"))
    made = Scratch(tmp_path / "page")
    made.commit({".gitignore": "__pycache__/\n"})
    told = ""
    for kind, name, text in BLOCK.findall((FOLDER / "kernels.md").read_text(encoding="utf-8")):
        if name:
            made.write({name: text})
        elif kind == "diff":
            (tmp_path / "change.diff").write_text(text)
            made.git("apply", str(tmp_path / "change.diff"))
        elif kind == "sh":
            told = ran(made, process, text)
        else:
            check_shown(text, told)
