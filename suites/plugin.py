"""The pytest plugin: options that judge your own method inside your own pytest run.

``pytest --pyargs gradgate.suites --method mine.py:my_gradient --family state_space``

No module of gradgate and no framework is imported before a gradgate test is collected. Otherwise the plugin would load
modules before the import hooks of other plugins are set.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

HERE = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the suite. All but ``--gradgate-watch`` affect ``--pyargs gradgate.suites`` only."""
    group = parser.getgroup("gradgate", "gradgate: verify memory-efficient gradients")
    group.addoption("--method", metavar="TARGET", help="package.module:function or file.py:function to judge")
    group.addoption("--family", metavar="F", help="problem class of --method, or the only class of references to judge")
    group.addoption("--framework", metavar="X", help="jax or torch; by default what the method's module imports")
    group.addoption("--examples", type=int, default=100, metavar="N", help="problems per claim (default 100)")
    group.addoption("--gradgate-seed", type=int, default=0, metavar="S", help="seed of all draws (default 0)")
    watch = "judge every handwritten derivative that the tests call, as gradgate watch does"
    group.addoption("--gradgate-watch", action="store_true", help=watch)
    group.addoption("--gradgate-timeout", type=float, default=60.0, metavar="S", help="limit per call (default 60 s)")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave gradgate's own tests out of a run that judges a method."""
    if config.getoption("--method") and collection_path.is_relative_to(HERE / "tests"):
        return True
    return None


def pytest_configure(config: pytest.Config) -> None:
    """With ``--gradgate-watch``, record from now on, in this process and in those that it starts."""
    if config.getoption("--gradgate-watch"):
        from gradgate.suites.commands import watch

        watch.begin(is_worker=hasattr(config, "workerinput"))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """With ``--gradgate-watch``, judge what was recorded; the status of tests that passed becomes that of the rules."""
    if session.config.getoption("--gradgate-watch") and not hasattr(session.config, "workerinput"):
        from gradgate.suites.commands import watch

        status = watch.end()
        session.exitstatus = session.exitstatus or status
