"""Shared by the chain's tests: three modules beside them as fixtures (tests cannot import each other), and the seed."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def nets() -> Any:
    """The module `nets.py`: models, a training step, and the comparison of two steps."""
    return _module("nets")


@pytest.fixture(scope="session")
def models() -> Any:
    """The module `models.py`: models that are not sequences, training steps, and the comparison of two trainings."""
    return _module("models")


@pytest.fixture(scope="session")
def dags() -> Any:
    """The module `dags.py`: random models with skips, and the bytes of a step within a budget."""
    return _module("dags")


def _module(name: str) -> Any:
    pytest.importorskip("torch")
    spec = importlib.util.spec_from_file_location(f"chain_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[f"chain_{name}"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    torch = pytest.importorskip("torch")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield
