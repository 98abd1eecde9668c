"""Kept figures: they are reused as long as nothing that they depend on has changed; a failure is never kept."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from gradgate.hw_profiles import recording
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


def measurement() -> Measurement:
    """A measurement by a process that has read the file."""
    reading = {"files": {"mine.py": recording.file_digest("mine.py")}}
    return Measurement("cpu", "measured", temp_bytes=8, required_bytes=24, flops=4, record={str(reading): reading})


@pytest.fixture
def author(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.py"
    path.write_text(PAIR)
    return path


def opened(tmp_path: Path, **how: Any) -> Figures:
    """The kept figures as a new process opens them."""
    return Figures(Keys(tmp_path), Store(Cache(tmp_path / "cache")), **how)


def cell(size: int = 4) -> MethodCell:
    [family] = registry.offered("mine.py:tanh")
    [declared] = family.methods
    return MethodCell(declared, "cpu", registry.spec_class(family.name)(T=size))


def test_figures_are_reused_until_the_file_of_the_function_changes(author: Path, tmp_path: Path) -> None:
    one = cell()
    first = opened(tmp_path)
    assert first.get(one.declared, one.to_dict()) is None
    first.put(one.declared, one.to_dict(), measurement())
    assert opened(tmp_path).get(one.declared, one.to_dict()) == measurement()
    assert opened(tmp_path, fresh=True).get(one.declared, one.to_dict()) is None
    assert opened(tmp_path).get(one.declared, cell(3).to_dict()) is None
    author.write_text(PAIR + "y = 1\n")
    assert opened(tmp_path).get(one.declared, one.to_dict()) is None


def test_a_failure_is_measured_again(author: Path, tmp_path: Path) -> None:
    one = cell()
    opened(tmp_path).put(one.declared, one.to_dict(), Measurement("cpu", "crashed", reason="out of memory"))
    assert opened(tmp_path).get(one.declared, one.to_dict()) is None


def test_what_was_not_recorded_is_measured_again(author: Path, tmp_path: Path) -> None:
    one, first = cell(), opened(tmp_path)
    first.put(one.declared, one.to_dict(), dataclasses.replace(measurement(), record={}))
    assert first.answers.notes("figures") == [
        "figures that cannot be kept for the next run: what was read was not recorded"
    ]
    assert opened(tmp_path).get(one.declared, one.to_dict()) is None


def test_figures_of_several_states_of_a_file_are_kept_side_by_side(author: Path, tmp_path: Path) -> None:
    one = cell()
    opened(tmp_path).put(one.declared, one.to_dict(), measurement())
    author.write_text(PAIR + "y = 1\n")
    opened(tmp_path).put(one.declared, one.to_dict(), measurement())
    author.write_text(PAIR)
    assert opened(tmp_path).get(one.declared, one.to_dict()) == measurement()
    author.write_text(PAIR + "z = 1\n")
    last = opened(tmp_path)
    assert last.get(one.declared, one.to_dict()) is None
    assert last.answers.notes("figures") == ["figures that were kept are outdated: mine.py has changed"]


def test_an_environment_variable_that_changes_what_is_computed_is_part_of_the_key(
    author: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = cell()
    opened(tmp_path).put(one.declared, one.to_dict(), measurement())
    assert opened(tmp_path).get(one.declared, one.to_dict()) == measurement()
    monkeypatch.setenv("JAX_DEFAULT_MATMUL_PRECISION", "highest")
    assert opened(tmp_path).get(one.declared, one.to_dict()) is None
