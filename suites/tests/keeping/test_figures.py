"""Kept figures: they are reused as long as nothing that they depend on has changed; a failure is never kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gradgate.hw_profiles.cache import Cache
from gradgate.hw_profiles.measurement import Measurement
from gradgate.references import registry
from gradgate.suites.keeping.figures import Figures
from gradgate.suites.keeping.keys import Keys
from gradgate.suites.keeping.store import Store
from gradgate.suites.measuring.cells import MethodCell

pytest.importorskip("torch")

PAIR = """
import gradgate

tanh = gradgate.Pair(
    lambda x: x.tanh(), reference=lambda x: x.tanh() + 0, name="tanh", framework="torch",
    inputs={"x": gradgate.normal("T")}, dims={"T": (4, 3)},
)
"""
FOUND = Measurement("cpu", "measured", temp_bytes=8, required_bytes=24, flops=4)


@pytest.fixture
def author(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.py"
    path.write_text(PAIR)
    return path


def kept(tmp_path: Path, **how: Any) -> Figures:
    """The kept figures as a new process opens them."""
    return Figures(Keys.here(), Store(Cache(tmp_path / "cache")), **how)


def cell(size: int = 4) -> MethodCell:
    [family] = registry.offered("mine.py:tanh")
    [declared] = family.methods
    return MethodCell(declared, "cpu", registry.spec_class(family.name)(T=size))


def test_figures_are_reused_until_the_file_of_the_function_changes(author: Path, tmp_path: Path) -> None:
    one = cell()
    first = kept(tmp_path)
    assert first.get(one.declared, one.to_dict()) is None
    first.put(one.declared, one.to_dict(), FOUND)
    assert kept(tmp_path).get(one.declared, one.to_dict()) == FOUND
    assert kept(tmp_path, fresh=True).get(one.declared, one.to_dict()) is None
    assert kept(tmp_path).get(one.declared, cell(3).to_dict()) is None
    author.write_text(PAIR + "y = 1\n")
    assert kept(tmp_path).get(one.declared, one.to_dict()) is None


def test_a_failure_is_measured_again(author: Path, tmp_path: Path) -> None:
    one = cell()
    kept(tmp_path).put(one.declared, one.to_dict(), Measurement("cpu", "crashed", reason="out of memory"))
    assert kept(tmp_path).get(one.declared, one.to_dict()) is None


def test_a_file_edited_while_it_is_measured_is_not_kept(author: Path, tmp_path: Path) -> None:
    one, first = cell(), kept(tmp_path)
    assert first.get(one.declared, one.to_dict()) is None
    author.write_text(PAIR.replace("tanh() + 0", "tanh() + 0.0"))
    first.put(one.declared, one.to_dict(), FOUND)
    author.write_text(PAIR)
    assert kept(tmp_path).get(one.declared, one.to_dict()) is None


def test_an_environment_variable_that_changes_what_is_computed_is_part_of_the_key(
    author: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = cell()
    kept(tmp_path).put(one.declared, one.to_dict(), FOUND)
    assert kept(tmp_path).get(one.declared, one.to_dict()) == FOUND
    monkeypatch.setenv("JAX_DEFAULT_MATMUL_PRECISION", "highest")
    assert kept(tmp_path).get(one.declared, one.to_dict()) is None
