"""State that belongs to the process and not to one call: it is restored after every call of foreign code.

So no later call, and no oracle, runs in surroundings that an earlier method has changed. What a method's module changes
when it is imported stays changed: it is part of the method.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

NAMES = ("SIGHUP", "SIGINT", "SIGTERM", "SIGALRM", "SIGCHLD", "SIGPIPE", "SIGUSR1")
SIGNALS = tuple(getattr(signal, name) for name in NAMES if hasattr(signal, name))
"""Signals whose handlers are looked at; a system may lack some of them."""
STREAMS = range(3)
"""File descriptors of standard input, output and error."""


@dataclass(frozen=True)
class Part:
    """One part of the surroundings: its name, how to read its state, and how to put that state back."""

    name: str
    read: Callable[[], Any]
    put: Callable[[Any], object]
    module: str = ""


def _environment() -> dict[str, str]:
    """`os.environ` as a dict; to copy it plainly would ask the recorder about each variable, in every call."""
    data: Any = os.environ._data  # type: ignore[attr-defined]
    return {os.environ.decodekey(key): os.environ.decodevalue(value) for key, value in data.items()}


def _put_environment(old: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(old)


def _put_handlers(old: dict[signal.Signals, Any]) -> None:
    for number, handler in old.items():
        if handler is not None:  # None: not installed by Python, which cannot put it back
            signal.signal(number, handler)


def _alarm() -> bool:
    return hasattr(signal, "getitimer") and signal.getitimer(signal.ITIMER_REAL)[0] > 0


def _put_alarm(running: bool) -> None:
    if not running and hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, 0)


def _put_streams(old: tuple[Any, Any, Any]) -> None:
    sys.stdin, sys.stdout, sys.stderr = old


def _torch(name: str, read: str, put: str) -> Part:
    """A part that two functions of PyTorch read and set."""
    return Part(
        f"PyTorch's {name}",
        lambda: getattr(sys.modules["torch"], read)(),
        lambda old: getattr(sys.modules["torch"], put)(old),
        "torch",
    )


def _put_jax(old: dict[str, Any]) -> None:
    config = sys.modules["jax"].config
    for name, value in old.items():
        if config.values[name] != value:
            config.update(name, value)


PARTS = (
    Part("the working directory", os.getcwd, os.chdir),
    Part("os.environ", _environment, _put_environment),
    Part("a signal handler", lambda: {number: signal.getsignal(number) for number in SIGNALS}, _put_handlers),
    Part("the alarm timer", _alarm, _put_alarm),
    Part("sys.stdin, stdout or stderr", lambda: (sys.stdin, sys.stdout, sys.stderr), _put_streams),
    Part("the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit),
    Part("NumPy's error state", np.geterr, lambda old: np.seterr(**old)),
    _torch("default dtype", "get_default_dtype", "set_default_dtype"),
    _torch("default device", "get_default_device", "set_default_device"),
    _torch("grad mode", "is_grad_enabled", "set_grad_enabled"),
    _torch("number of threads", "get_num_threads", "set_num_threads"),
    Part("jax.config", lambda: dict(sys.modules["jax"].config.values), _put_jax, "jax"),
)


@contextlib.contextmanager
def restored() -> Iterator[list[str]]:
    """Put back what the body changes; yields a list, which afterwards names what was changed.

    Frameworks that are not imported before the body are left out. Cost: about 0.1 ms.
    """
    parts = [part for part in PARTS if not part.module or hasattr(sys.modules.get(part.module), "__version__")]
    before = [part.read() for part in parts]
    changed: list[str] = []
    with _descriptors(changed), warnings.catch_warnings():
        try:
            yield changed
        finally:
            for part, old in zip(parts, before, strict=True):
                if _differs(part, old):
                    changed.append(part.name)
                    with contextlib.suppress(Exception):  # the others are put back all the same
                        part.put(old)


def _differs(part: Part, old: Any) -> bool:
    try:
        return bool(part.read() != old)
    except OSError:  # the working directory is gone
        return True


@contextlib.contextmanager
def _descriptors(changed: list[str]) -> Iterator[None]:
    """Put back standard input, output and error if they were closed or redirected."""
    spare = {fd: os.dup(fd) for fd in STREAMS if _leads_to(fd)}
    before = {fd: _leads_to(fd) for fd in STREAMS}
    try:
        yield
    finally:
        wrong = [fd for fd in STREAMS if _leads_to(fd) != before[fd]]
        if wrong:
            changed.append(f"file descriptor {' and '.join(map(str, wrong))}")
        for fd, copy in spare.items():
            with contextlib.suppress(OSError):
                if fd in wrong:
                    os.dup2(copy, fd)
                os.close(copy)


def _leads_to(fd: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(fd)
    except OSError:
        return None
    return found.st_dev, found.st_ino
