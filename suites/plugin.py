"""The pytest plugin: options that judge your own method inside your own pytest run.

``pytest --pyargs gradgate.suites --method mine.py:my_gradient --family state_space``

Nothing of the project, nor of a framework, is imported before a gradgate test is collected: a plugin that did would
load modules ahead of other plugins' import hooks.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

HERE = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the suite; they act on ``--pyargs gradgate.suites`` only."""
    group = parser.getgroup("gradgate", "gradgate: verify memory-efficient gradients")
    group.addoption("--method", metavar="TARGET", help="package.module:function or file.py:function to judge")
    group.addoption("--family", metavar="F", help="problem class that --method solves, or to restrict references to")
    group.addoption("--framework", metavar="X", help="jax or torch; by default what the method's module imports")
    group.addoption("--examples", type=int, default=100, metavar="N", help="problems per claim (default 100)")
    group.addoption("--gradgate-seed", type=int, default=0, metavar="S", help="of everything that is drawn (default 0)")
    group.addoption("--gradgate-timeout", type=float, default=60.0, metavar="S", help="limit per call (default 60 s)")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave gradgate's own tests out of a run that judges a method."""
    if config.getoption("--method") and collection_path.is_relative_to(HERE / "tests"):
        return True
    return None
