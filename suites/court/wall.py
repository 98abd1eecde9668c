"""What stands between a stranger and the court: bubblewrap where it works, and what the system itself offers.

With bubblewrap a stranger's processes have a file system of the interpreter and its packages alone, read-only, no
network, and see no other process. Without it, namespaces and Landlock do nearly the same where Linux offers them to
everybody (`inside.isolate`). What is done is part of every answer; nothing is assumed.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gradgate.references.errors import UsageError, unknown
from gradgate.suites.workers.variables import environment


def _place(name: str) -> Path:
    """The folder of one of gradgate's packages, which need not lie side by side."""
    spec = importlib.util.find_spec(f"gradgate.{name}")
    assert spec is not None
    return Path((spec.submodule_search_locations or [""])[0])


WALLS = ("auto", "bubblewrap", "plain")
"""``auto`` takes bubblewrap if it works here; ``plain`` never takes it."""
HERE = Path(__file__).resolve().parent
FILES = {
    "inside.py": HERE / "inside.py",
    "message.py": HERE / "message.py",
    "masks.py": HERE.parent / "pairs/masks.py",
    "landlock.py": HERE.parent / "workers/landlock.py",
}
"""What serves a candidate. None of these files imports anything of gradgate."""
PLACES = {"suites": HERE.parent, **{name: _place(name) for name in ("references", "hw_profiles")}}
"""Folders of gradgate -> where they are."""
EVALUATOR = (
    "suites/__init__.py",
    "suites/exact",
    *(f"hw_profiles/{name}.py" for name in ("__init__", "calls", "trip_count")),
    *(
        f"references/{name}.py"
        for name in (
            "__init__",
            "backends",
            "claim",
            "contract",
            "errors",
            "law_kinds",
            "plugged",
            "torch_ranks",
            "trial",
        )
    ),
)
"""What evaluates a candidate in sixty digits: it has no task in it. These are paths in gradgate's folder."""
BEHIND = "/court"
"""Where these files are in bubblewrap's file system."""
SCRATCH = "/dev/shm"
"""Where a candidate may write: an empty folder in memory is mounted over it, for each process another one."""
SYSTEM = ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin", "/etc/ld.so.cache", "/etc/localtime")


@dataclass(frozen=True)
class Limits:
    """What one process of a candidate may use.

    Attributes:
        seconds: seconds for one answer, compilation included.
        processor: seconds of processor time in all.
        memory: bytes beyond what the framework itself takes.
        processes: how many processes and threads' owners it may have at once.
    """

    seconds: float = 20.0
    processor: int = 120
    memory: int = 4 * 2**30
    processes: int = 16

    @property
    def together(self) -> float:
        """Seconds for all answers of one candidate, which may each take a little less than the limit."""
        return 12 * self.seconds


@functools.cache
def bubblewrap() -> str:
    """The path of a ``bwrap`` that works here; "" if there is none."""
    program = shutil.which("bwrap")
    if program is None:
        return ""
    tried = [program, "--unshare-all", "--cap-drop", "ALL", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
    try:
        ran = subprocess.run([*tried, sys.executable, "-I", "-S", "-c", ""], capture_output=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return program if ran.returncode == 0 else ""


def chosen(wall: str) -> str:
    """``bubblewrap`` or ``plain``.

    Raises:
        UsageError: there is no such wall, or bubblewrap is asked for and does not work here.
    """
    if wall not in WALLS:
        raise unknown("wall", wall, WALLS)
    if wall == "bubblewrap" and not bubblewrap():
        raise UsageError("there is no bwrap here that works; install bubblewrap, or use the wall 'auto'")
    return "plain" if wall == "plain" or not bubblewrap() else "bubblewrap"


def keeps_apart(walls: Mapping[str, str]) -> bool:
    """Whether a candidate behind this wall can neither kill nor read other processes of the same user."""
    return walls.get("kind") == "bubblewrap" or "processes" in walls or "signals" in walls


def folders(framework: str) -> list[str]:
    """The folders that a candidate's process has to read: the interpreter, and the packages of the framework."""
    found = [sys.prefix, sys.base_prefix]
    for package in ("numpy", framework):
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin:
            found.append(str(Path(spec.origin).parent.parent))
    real = [os.path.realpath(path) for path in found]
    whole = dict.fromkeys([*found, *real])
    return [path for path in whole if not any(path != other and _within(path, other) for other in whole)]


def _within(path: str, folder: str) -> bool:
    return Path(path).is_relative_to(folder)


def command(wall: str, framework: str, control: int, hidden: Sequence[str]) -> list[str]:
    """The command that starts `inside` behind a wall.

    Args:
        wall: ``bubblewrap`` or ``plain``.
        framework: ``jax`` or ``torch``.
        control: number of the inherited socket.
        hidden: files and folders that must not be visible, though they may lie among the packages.
    """
    python = [sys.executable, "-I", "-B"]
    if wall == "plain":
        return [*python, str(FILES["inside.py"]), str(control), framework]
    roots = folders(framework)
    words = [bubblewrap(), "--unshare-all", "--uid", "1000", "--gid", "1000"]
    words += ["--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    for path in SYSTEM:
        words += ["--ro-bind-try", path, path]
    for path in roots:
        words += ["--ro-bind", path, path]
    for path in hidden:
        if any(_within(path, root) for root in roots) and os.path.exists(path):
            words += ["--tmpfs", path] if os.path.isdir(path) else ["--ro-bind", "/dev/null", path]
    words += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", SCRATCH, "--chdir", SCRATCH]
    for name, file in FILES.items():
        words += ["--ro-bind", str(file), f"{BEHIND}/{name}"]
    for name in EVALUATOR:
        words += [
            "--ro-bind",
            str(PLACES[name.partition("/")[0]] / name.partition("/")[2]),
            f"{BEHIND}/gradgate/{name}",
        ]
    return [*words, *python, f"{BEHIND}/inside.py", str(control), framework]


def variables() -> dict[str, str]:
    """The whole environment of a process behind the wall; nothing of the court's own is passed on."""
    own = {name: value for name, value in environment().items() if "CACHE" not in name and "FAULT" not in name}
    return {
        **own,
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": SCRATCH,
        "TMPDIR": SCRATCH,
        "XDG_CACHE_HOME": SCRATCH,
        "JAX_NUM_CPU_DEVICES": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "TRITON_INTERPRET": "1",
        "XLA_FLAGS": _flags(own["XLA_FLAGS"]),
    }


def _flags(text: str) -> str:
    """The flags of XLA that gradgate's own workers set, without those of the user's environment."""
    users = (os.environ.get("XLA_FLAGS") or "").split()
    return " ".join(word for word in text.split() if word not in users)
