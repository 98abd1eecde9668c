"""What the chain's tests share: `nets.py` as a fixture, because tests cannot import each other, and seeds."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def own() -> Any:
    """The module `nets.py`: models, a training step, and the comparison of two."""
    pytest.importorskip("torch")
    spec = importlib.util.spec_from_file_location("chain_nets", Path(__file__).with_name("nets.py"))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["chain_nets"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    torch = pytest.importorskip("torch")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield
