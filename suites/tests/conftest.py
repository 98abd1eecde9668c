"""Fixtures of all tests: frameworks that may be missing, the command line, plug-in files and workers."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import platformdirs
import pytest

from gradgate.references import registry
from gradgate.references.contract import Spec, installed
from gradgate.references.registry import spec_class
from gradgate.suites import cli
from gradgate.suites.judging.run import Run
from gradgate.suites.tests import nightly
from gradgate.suites.workers.shards import Shard
from gradgate.suites.workers.supervisor import Limits, Supervisor
from gradgate.suites.workers.variables import environment
from gradgate.suites.workers.worker import collect_rarely

# This runs before any test imports JAX: several devices on the CPU, a quick compiler and XLA's cache, as in a worker.
os.environ.update(environment())

GOOD = {
    "torch": """
import torch

def good(problem):
    grads, loss = torch.func.grad_and_value(problem.loss)(problem.params)
    return loss, grads
""",
    "jax": """
import jax

def good(problem):
    return jax.value_and_grad(problem.loss)(problem.params)
""",
}
"""Backprop as a plug-in, by framework: a module in which `good` is right; tests add wrong functions to it."""


@dataclasses.dataclass(frozen=True)
class Ran:
    """The result of one command: exit status, standard output and standard error."""

    status: int
    out: str
    err: str


def pytest_collection_finish() -> None:
    """Collect garbage as rarely as a worker does."""
    collect_rarely()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that choose among the tests."""
    words = "run the I-th of N shares, which cost about the same; the tests of a file stay together"
    parser.addoption("--part", type=Shard.parse, default=Shard(), metavar="I/N", help=words)
    words = "run what a push leaves out, in folders of which a source or a test has changed since this commit"
    parser.addoption("--since", metavar="REV", help=words)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Make one ``--dist loadgroup`` group of a file's tests, which share programs and fixtures; a test's mark wins.

    What is too expensive for every push is marked. What was not asked for is left out, by ``-m`` and ``-k`` first: the
    parts share what these leave. Expensive groups come first, so that no process is left with one at the end.
    """
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.location[0]))
    nightly.mark(items)
    yield
    seconds, since = nightly.read(), config.getoption("--since")
    here = config.getoption("--part").part(
        nightly.touched(items, since) if since else items,
        lambda item: item.location[0],
        lambda item: nightly.cost(item.nodeid, seconds),
    )
    chosen = set(here)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = nightly.expensive_first(here, _group)


def _group(item: pytest.Item) -> str:
    marker = item.get_closest_marker("xdist_group")
    return str(marker.args[0] if marker and marker.args else item.location[0])


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every test an empty cache: it sees no result of another test, and the user's cache does not change.

    Only the digests of installed packages are shared: they hold gigabytes, and no test changes them.
    """
    cache = tmp_path_factory.mktemp("cache")
    shared = Path(platformdirs.user_cache_dir("gradgate", appauthor=False), "tests", "packages")
    shared.mkdir(parents=True, exist_ok=True)
    (cache / "packages").symlink_to(shared)
    monkeypatch.setenv("GRADGATE_CACHE", str(cache))


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every test an empty list of registered classes: it sees no class that another test registered."""
    monkeypatch.setattr(registry, "_REGISTERED", {})


@pytest.fixture(autouse=True)
def _own_modules() -> None:
    """Forget the package `mylib` of another test: several tests write one, each in a folder of its own."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "mylib"]:
        del sys.modules[name]


@pytest.fixture(params=["jax", "torch"])
def framework(request: pytest.FixtureRequest) -> str:
    """Each framework, skipped where it is not installed."""
    if not installed(request.param):
        pytest.skip(f"{request.param} is not installed")
    return str(request.param)


@pytest.fixture(scope="session")
def torch() -> Any:
    """PyTorch, or a skip."""
    return pytest.importorskip("torch")


@pytest.fixture(scope="session")
def jax() -> Any:
    """JAX, or a skip."""
    return pytest.importorskip("jax")


@pytest.fixture(scope="session")
def spec() -> Callable[..., Spec]:
    """A function that makes a state-space Spec with these fields; every other field has its default."""
    return lambda **fields: spec_class("state_space")(**fields)


@pytest.fixture
def gradgate(capfd: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run a gradgate command in this process, as the console script does."""

    def run(*arguments: object) -> Ran:
        capfd.readouterr()
        try:
            status = cli.main([str(argument) for argument in arguments])
        except SystemExit as stop:  # --help
            status = int(stop.code or 0)
        return Ran(status, *capfd.readouterr())

    return run


@pytest.fixture(scope="session")
def process() -> Callable[..., Ran]:
    """Run ``python …`` in a separate process, in a given folder and with additions to the environment."""

    def run(*arguments: object, cwd: Path, env: dict[str, str] | None = None, timeout: float = 240) -> Ran:
        ran = subprocess.run(
            [sys.executable, *map(str, arguments)],
            cwd=cwd,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        return Ran(ran.returncode, ran.stdout, ran.stderr)

    return run


@pytest.fixture
def plugin(tmp_path: Path) -> Callable[..., str]:
    """Write a plug-in for a framework, with `good` and the given code; returns the path of its file."""

    def write(code: str = "", framework: str = "torch", name: str = "mine.py") -> str:
        pytest.importorskip(framework)
        path = tmp_path / name
        path.write_text(GOOD[framework] + code)
        return str(path)

    return write


@pytest.fixture(scope="module")
def patient() -> Iterator[Supervisor]:
    """One worker for a whole test file, with five problems per claim and a time limit that only a hang reaches."""
    with Supervisor(Run(examples=5), jobs=1, limits=Limits(120)) as made:
        yield made
