"""An environment for each library: what it needs, on top of the packages of the shared environment.

It is a virtual environment with a ``.pth`` file that adds the shared environment's packages behind its own. So what is
installed there wins, and JAX and PyTorch are not installed again. pip sees the packages of both. uv would not: it looks
at the environment's own folder only, and would install JAX and PyTorch for every library.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata as installed_metadata
from pathlib import Path

from gradgate.suites.console.files import write_atomically
from gradgate.suites.gallery.metadata import Library

INSTALLING = 900.0
"""Seconds after which an installation is stopped."""
STAMP = "gallery.json"
"""The file in an environment that says what is in it; it is written last."""
FORM = 1
"""Version of the way in which environments are made. Environments that were made in another way are made again."""


class CannotInstall(Exception):
    """The environment of a library cannot be made; the message says why."""


@dataclass(frozen=True)
class Ran:
    """A process that has ended.

    Attributes:
        status: its exit status; None if it was stopped after its time.
        output: standard output and standard error.
        seconds: how long it ran.
    """

    status: int | None
    output: str
    seconds: float


@dataclass(frozen=True)
class Environment:
    """The environment of a library.

    Attributes:
        python: its interpreter.
        installed: name -> version of what it has besides the shared packages.
        version: the version of the library.
        shared: the folder of the shared packages.
    """

    python: Path
    installed: Mapping[str, str]
    version: str
    shared: Path

    @property
    def key(self) -> str:
        """A hash of what is installed in it. The verdicts depend on it, through ``GRADGATE_ENVIRONMENT``."""
        return hashlib.sha256(json.dumps(dict(self.installed), sort_keys=True).encode()).hexdigest()[:16]


def run(
    command: Sequence[str | Path],
    limit: float,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    watch: Callable[[], None] | None = None,
) -> Ran:
    """Run a program with a limit of seconds; when the time is over, it and the processes that it started are killed.

    Args:
        command: the program and its arguments.
        limit: seconds.
        cwd: the folder in which it runs.
        env: variables that are added to the environment.
        watch: is called about every second.
    """
    began = time.monotonic()
    given = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    with subprocess.Popen(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        cwd=cwd,
        env=given | dict(env or {}),
        start_new_session=True,
        text=True,
        errors="replace",
    ) as process:
        output = ""
        try:
            while True:
                left = limit - (time.monotonic() - began)
                try:
                    output = process.communicate(timeout=max(0.0, min(1.0, left)))[0]
                    return Ran(process.returncode, output, time.monotonic() - began)
                except subprocess.TimeoutExpired as waiting:
                    if left <= 1.0:
                        _kill(process)
                        text = waiting.output or b""
                        output = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
                        return Ran(None, output, time.monotonic() - began)
                    if watch is not None:
                        watch()
        finally:
            _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill a process with its group, and close its pipe, which a process outside of the group could keep open."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def key_of(library: Library) -> str:
    """The hash of all that decides what is installed: the declared metadata, Python, and the shared environment."""
    stamp = Path(sys.prefix) / "installed"
    shared = stamp.read_text(encoding="utf-8") if stamp.is_file() else ""
    facts = [
        FORM,
        library.dependencies,
        library.no_deps,
        library.no_build_isolation,
        sys.version,
        sys.prefix,
        shared,
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def made(library: Library, folder: Path, fresh: bool = False) -> Environment:
    """The environment of a library, made if it does not exist or if its declaration has changed.

    Args:
        library: the library.
        folder: the folder of all environments.
        fresh: make it again.

    Raises:
        CannotInstall: a requirement cannot be installed, or the library is not there afterwards; says why.

    Cost: a second, and the time that pip takes; nothing if it exists.
    """
    place, shared = folder / library.name, Path(sysconfig.get_path("purelib"))
    stamp, wanted = place / STAMP, key_of(library)
    known = json.loads(stamp.read_text(encoding="utf-8")) if stamp.exists() and not fresh else {}
    if known.get("key") != wanted:
        shutil.rmtree(place, ignore_errors=True)
        if why := library.unsuited():
            raise CannotInstall(why)
        _install(library, place, shared)
        known = {"key": wanted, "installed": _distributions([_own(place)])}
        write_atomically(stamp, json.dumps(known, indent=1) + "\n")
    version = _distributions([shared, *map(Path, sys.path)]) | known["installed"]
    found = {_plain(name): number for name, number in version.items()}.get(_plain(library.judges))
    if found is None:
        raise CannotInstall(f"{library.judges} is neither among what was installed nor in the shared environment")
    return Environment(_python(place), known["installed"], found, shared)


def _install(library: Library, place: Path, shared: Path) -> None:
    """Make an environment and install the requirements.

    Raises:
        CannotInstall: says why, in pip's words.
    """
    made = run([sys.executable, "-m", "venv", "--without-pip", "--clear", place], INSTALLING)
    if made.status != 0:
        raise CannotInstall(f"python -m venv failed: {last_words(made.output)}")
    # The name makes Python read this file last. A line that begins with "import" is run; addsitedir also reads the
    # .pth files of the shared environment, by which gradgate is found.
    line = f"import site; site.addsitedir({str(shared)!r})\n"
    (_own(place) / "zz_shared.pth").write_text(line, encoding="utf-8")
    if not library.dependencies:
        return
    flags = ["--no-deps"] if library.no_deps else []
    flags += ["--no-build-isolation"] if library.no_build_isolation else []
    pip = [str(_python(place)), "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--quiet"]
    ran = run([*pip, *flags, *library.dependencies], INSTALLING)
    if ran.status is None:
        raise CannotInstall(f"pip did not end within {INSTALLING:.0f} s")
    if ran.status != 0:
        raise CannotInstall(f"pip failed: {last_words(ran.output)}")


def last_words(output: str, lines: int = 3) -> str:
    """The last lines of a program's output that say something, as one line; errors first."""
    found = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith(("[notice]", "  "))]
    errors = [line for line in found if line.lower().startswith(("error", "gradgate: ")) or "Error: " in line]
    return " · ".join((errors or found)[-lines:])[:600] or "it printed nothing"


def _python(place: Path) -> Path:
    return place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _own(place: Path) -> Path:
    [found] = place.rglob("site-packages")
    return found


def _distributions(folders: Sequence[Path]) -> dict[str, str]:
    """Name -> version of the distributions in these folders."""
    found = installed_metadata.distributions(path=[str(folder) for folder in folders])
    return dict(sorted((one.name, one.version) for one in found))


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")
