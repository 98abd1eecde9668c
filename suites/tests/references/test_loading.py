"""What a target names is loaded from its text, whatever bytecode lies beside it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gradgate.references import loading


def test_bytecode_of_another_text_of_the_same_time_and_length_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    path = tmp_path / "gradients.py"
    for number in (1, 2):
        path.write_text(f"number = {number}\n")
        os.utime(path, (1e9, 1e9))
        loading._file.cache_clear()
        assert loading.load(f"{path}:number") == number
    assert not (tmp_path / "__pycache__").exists()
