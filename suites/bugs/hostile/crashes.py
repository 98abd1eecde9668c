"""Methods that give no answer: they raise, end their process, hang, or use up memory."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from typing import Any, NoReturn

import numpy as np

from gradgate.references.contract import Problem
from gradgate.suites.bugs.hostile.fault import fault, good


@fault("error", "the method raised ValueError: no such thing · crashes.py:… in raises: raise ValueError(…")
def raises(problem: Problem) -> NoReturn:
    """Raises an exception."""
    raise ValueError("no such thing\nand more")


@fault("error", "the method raised RuntimeError: (no message) · crashes.py:… in …")
def raises_without_a_word(problem: Problem) -> NoReturn:
    """Raises an exception without a message."""
    raise RuntimeError


class _Own(BaseException):
    pass


class _Mute(Exception):
    def __str__(self) -> str:
        raise ValueError

    __repr__ = __str__


@fault("error", "the method raised _Own: stop · crashes.py:… in …")
def raises_base_exception(problem: Problem) -> NoReturn:
    """Raises its own BaseException."""
    raise _Own("stop")


@fault("error", "the method raised _Mute: (its message raises ValueError) · crashes.py:… in …")
def raises_mute(problem: Problem) -> NoReturn:
    """Raises an exception whose message raises."""
    raise _Mute


@fault("error", "the method raised RecursionError: maximum recursion depth exceeded…")
def recurs(problem: Problem) -> Any:
    """Calls itself without end."""
    return recurs(problem)


@fault("error", "the method ran out of memory (MemoryError) · crashes.py:… in …")
def asks_too_much(problem: Problem) -> Any:
    """Allocates an exabyte."""
    return np.ones(2**57), None


@fault("error", "the method called sys.exit('bye') · crashes.py:… in …")
def exits(problem: Problem) -> NoReturn:
    """Calls sys.exit."""
    sys.exit("bye")


@fault("error", "the method raised KeyboardInterrupt · crashes.py:… in …")
def interrupts(problem: Problem) -> NoReturn:
    """Raises KeyboardInterrupt."""
    raise KeyboardInterrupt


@fault("error", "the method raised GeneratorExit: (no message) · crashes.py:… in …")
def raises_generator_exit(problem: Problem) -> NoReturn:
    """Raises GeneratorExit."""
    raise GeneratorExit


@fault("error", "the method ended its process (exit status 7)…", ends="process")
def ends(problem: Problem) -> NoReturn:
    """Ends its process."""
    os._exit(7)


@fault("error", "the method ended its process (exit status 0)…", ends="process")
def ends_quietly(problem: Problem) -> NoReturn:
    """Ends its process with status 0."""
    os._exit(0)


@fault("error", "the method's process was killed (signal SIGKILL): …", ends="process")
def kills_itself(problem: Problem) -> Any:
    """Kills its process."""
    os.kill(os.getpid(), signal.SIGKILL)


@fault(
    "error",
    "the method ended its process (signal SIGSEGV): Fatal Python error: Segmentation fault…in crashes",
    ends="process",
)
def crashes(problem: Problem) -> Any:
    """Crashes in native code."""
    os.kill(os.getpid(), signal.SIGSEGV)


@fault("error", "the method closed the pipe on which its process answers", ends="process")
def closes_everything(problem: Problem) -> Any:
    """Closes every open file."""
    answer = good(problem)
    os.closerange(0, 256)
    return answer


@fault("error", "the method wrote into the pipe on which its process answers", ends="process")
def writes_everywhere(problem: Problem) -> Any:
    """Writes into every open file."""
    for fd in range(3, 64):
        if os.path.realpath(f"/proc/self/fd/{fd}").rpartition("/")[2].startswith("pipe:"):
            try:
                os.write(fd, b"mine\n")
            except OSError:
                continue
    return good(problem)


@fault("error", "the method hung: no answer within … s", ends="time")
def hangs(problem: Problem) -> NoReturn:
    """Hangs, and ignores signals."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        time.sleep(0.1)


@fault("error", "the method hung: no answer within … s", ends="time")
def stops(problem: Problem) -> Any:
    """Stops its process (SIGSTOP)."""
    os.kill(os.getpid(), signal.SIGSTOP)


class _Endless(dict[str, Any]):
    def __iter__(self) -> Any:
        return itertools.count()


@fault("error", "the method hung: no answer within … s", ends="time")
def returns_endless(problem: Problem) -> Any:
    """Returns a lazy tree without end."""
    return good(problem)[0], _Endless()


@fault("error", "the method exhausted memory: its process grew past … GiB", ends="memory")
def grows(problem: Problem) -> NoReturn:
    """Allocates without end."""
    kept = []
    while True:
        kept.append(np.ones(2**22))


@fault("error", "the method wrote more than 256 MiB to standard output or standard error", ends="memory")
def floods(problem: Problem) -> NoReturn:
    """Prints without end."""
    while True:
        print("x" * 2**20)
