"""Systems without file locks, groups of processes or /proc: what they lack is masked, since CI runs on Linux.

Windows has no `fcntl`, `resource`, `os.killpg` and most signals: everything can be imported, `gradgate.check` judges in
the caller's process, and a command that needs processes of its own says so. macOS has no /proc.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradgate.suites.tests.scratch import SQUARE
from gradgate.suites.workers import process as workers
from gradgate.suites.workers.posix import MISSING

MASK = """
import importlib, importlib.machinery, os, pkgutil, signal, sys
FRAMEWORK = sys.argv[1]
importlib.import_module(FRAMEWORK)  # what frameworks need of Linux is not looked at
import pytest, _pytest.capture, hypothesis, concurrent.futures.process, asyncio, multiprocessing.connection
gone = {"fcntl", "resource", "grp", "pwd", "termios"}
find = importlib.machinery.PathFinder.find_spec
importlib.machinery.PathFinder.find_spec = classmethod(
    lambda cls, name, path=None, target=None: None if name in gone else find(name, path, target)
)
for name in gone:
    sys.modules.pop(name, None)
for module, names in {
    os: ("killpg", "EX_IOERR", "EX_OK", "setsid", "fork", "sysconf"),
    signal: ("SIGHUP", "SIGALRM", "SIGCHLD", "SIGPIPE", "SIGUSR1", "SIGKILL", "setitimer", "getitimer", "ITIMER_REAL"),
}.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
assert importlib.util.find_spec("fcntl") is None
"""
IMPORT = """
import gradgate, gradgate.suites, gradgate.references, gradgate.hw_profiles
left_out = (".tests", ".bugs", ".gallery", ".guide", ".site", ".releases", ".plugin", ".test_methods", "__main__")
for root in (gradgate.suites, gradgate.references, gradgate.hw_profiles):
    for found in pkgutil.walk_packages(root.__path__, root.__name__ + ".", onerror=lambda name: None):
        if any(part in found.name for part in left_out):
            continue
        try:
            importlib.import_module(found.name)
        except ImportError as error:
            if getattr(error, "name", "") in gone or "fcntl" in str(error):
                raise
        except (AttributeError, NameError) as error:
            raise SystemExit(f"{found.name}: {error}")
"""
CHECK = {
    "torch": SQUARE.replace("2 *", "FACTOR *")
    + """
x = torch.randn(3, 4)
def run(factor):
    global FACTOR
    FACTOR = factor
    gradgate.check(lambda x: Square.apply(x), lambda x: x * x, (x,))
""",
    "jax": """
x = jax.numpy.ones((3, 4)) * 0.5
def run(factor):
    op = jax.custom_vjp(lambda x: x * x)
    op.defvjp(lambda x: (x * x, x), lambda x, g: (factor * x * g,))
    gradgate.check(op, lambda x: x * x, (x,))
""",
}
JUDGE = """
run(2)
try:
    run(3)
except AssertionError as error:
    assert "wrong gradient of x (50%)" in str(error), error
else:
    raise SystemExit("not refuted")
from gradgate.suites import cli
sys.exit(cli.main(["verify", "--family", "chain", "--method", "revolve", "--examples", "1"]))
"""


@pytest.mark.parametrize("framework", CHECK)
def test_without_what_windows_lacks_check_judges_and_a_command_says_what_it_needs(
    framework: str, tmp_path: Path, process: Callable[..., Any]
) -> None:
    pytest.importorskip(framework)
    (tmp_path / "masked.py").write_text("\n".join([MASK, IMPORT, f"import {framework}", CHECK[framework], JUDGE]))
    ran = process("masked.py", framework, cwd=tmp_path)
    assert ran.status == 3, ran
    assert ran.err.splitlines()[-1] == f"gradgate: {MISSING}"


def test_without_proc_the_memory_of_a_process_is_known_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psutil")
    usual = Path.read_text

    def unreadable(path: Path, *arguments: Any, **options: Any) -> str:
        if path.is_relative_to("/proc"):
            raise FileNotFoundError(path)
        return usual(path, *arguments, **options)

    monkeypatch.setattr(Path, "read_text", unreadable)
    worker = workers.Worker.__new__(workers.Worker)
    worker.process = type("Own", (), {"pid": os.getpid()})()
    assert 2**20 < worker.resident() < 2**37
    worker.process = type("Gone", (), {"pid": 2**22 + 1})()
    assert worker.resident() == 0
