"""The buffers of a compiled program, and when each is live, read from what XLA writes about its buffer assignment.

``hw_profiles.compile.measure`` returns sums. Here a program is compiled in a child process that dumps the assignment.
The child is ended as soon as the assignment is there: no machine code is made, so this takes a third of the time. For
the host and NVIDIA the total is that of ``measure``; of a TPU's programs at 489M it is 18% and 27% less.
"""

from __future__ import annotations

import functools
import os
import pickle
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIMIT = 1800.0
"""Seconds after which a compilation is given up."""
FILES = ("memory-usage-report.txt", "live-range.txt", "buffer-assignment.txt")
"""The ends of the names of the dumped files; the first is written last."""
_ALLOCATION = re.compile(r"^allocation (\d+): size (\d+), (.*)$")
_PARAMETER = re.compile(r"^parameter \d+, shape \|([^|]*)\|")
_VALUE = re.compile(r"^ value: <\d+ (\S+?)(\{[\d,]*\})?( \(phi\))? @\d+> \(size=(\d+),offset=(\d+)\): (.*)$")
_RANGE = re.compile(r"^    (\S+?)(\{[\d,]*\}):(\d+)-(\d+)$")
_LAST = re.compile(r"^HloLiveRange \(max (\d+)\)")


@dataclass(frozen=True)
class Buffer:
    """One place in memory while one value is in it.

    Attributes:
        shape: such as ``f32[2,21,5120,1280]``.
        bytes: its size.
        place: allocation and offset; values that are live in turn may share a place.
        first, last: the instructions between which it is live.
        kept: whether it is an argument or a result, which are live from the first instruction to the last.
        writer: the instruction that writes it; empty for an argument, and for a value that a loop only hands on.
    """

    shape: str
    bytes: int
    place: tuple[int, int]
    first: int
    last: int
    persistent: bool = False
    writer: str = ""


@dataclass(frozen=True)
class Assignment:
    """The buffer assignment of a program.

    Attributes:
        total: bytes of all allocations: temporaries, arguments and results.
        instructions: the number of scheduled instructions; the body of a loop counts once.
        buffers: all buffers.
    """

    total: int
    instructions: int
    buffers: tuple[Buffer, ...]

    def live(self, instruction: int) -> tuple[Buffer, ...]:
        """The buffers that are live at an instruction; of those at one place, the largest."""
        found: dict[tuple[int, int], Buffer] = {}
        for one in self.buffers:
            if one.first <= instruction <= one.last and one.bytes > getattr(found.get(one.place), "bytes", 0):
                found[one.place] = one
        return tuple(found.values())

    @functools.cached_property
    def peak(self) -> int:
        """The first instruction at which most bytes are live."""
        return max(range(self.instructions + 1), key=lambda at: sum(one.bytes for one in self.live(at)))


def assignment(program: Callable[..., Any], arguments: Sequence[Any], profile: str) -> Assignment:
    """The buffer assignment of ``program(*arguments)`` on a profile.

    Args:
        program, arguments: as for `hw_profiles.compile.measure`.
        profile: name of a profile that has a compiler.

    Raises:
        LookupError: the compiler is missing, refuses the program, or takes too long.

    Cost: 10 s to a minute for a model of Table 6.
    """
    from gradgate.hw_profiles.compile import PLATFORMS
    from gradgate.hw_profiles.profile import availability, load
    from gradgate.hw_profiles.traced import trace

    known = load(profile)
    if known.compiler is None or not availability(known).available:
        raise LookupError(f"{profile}: {availability(known).reason}")
    text = trace(program, arguments).text(PLATFORMS[known.compiler])
    with tempfile.TemporaryDirectory() as folder:
        return read(*_dumped({"text": text, "profile": known, "devices": 1}, known.compiler, Path(folder)))


def _dumped(request: dict[str, Any], compiler: str, folder: Path) -> list[str]:
    """The contents of `FILES`, in their order."""
    from gradgate.hw_profiles import compiler_process

    flags = compiler_process.FLAGS[compiler].get("XLA_FLAGS", "") + f" --xla_dump_to={folder} --xla_dump_hlo_as_text"
    environment = {key: value for key, value in os.environ.items() if key not in ("LIBTPU_INIT_ARGS", "PYTHONWARNINGS")}
    environment |= {"PATH": compiler_process._path()} | compiler_process._SETUP | {"XLA_FLAGS": flags}
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "gradgate.hw_profiles.compiler_main"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    assert child.stdin is not None
    try:
        pickle.dump(request, child.stdin)
        child.stdin.flush()
        deadline = time.monotonic() + LIMIT
        while not (written := _complete(folder)):
            if child.poll() is not None or time.monotonic() > deadline:
                raise LookupError(f"{request['profile'].name}: the compiler wrote no buffer assignment")
            time.sleep(0.2)
        return written
    finally:
        child.kill()
        child.wait()
        child.stdin.close()


def _complete(folder: Path) -> list[str]:
    """The contents of `FILES` if all are there; the last one must have stopped growing."""
    found = [next(iter(sorted(folder.glob(f"*after_optimizations-{name}"))), None) for name in FILES]
    if any(file is None for file in found):
        return []
    sizes = [file.stat().st_size for file in found if file]
    time.sleep(0.5)
    if not all(sizes) or sizes != [file.stat().st_size for file in found if file]:
        return []
    return [file.read_text(encoding="utf-8") for file in found if file]


def read(usage: str, ranges: str, assigned: str) -> Assignment:
    """The assignment in the texts of `FILES`."""
    total = sum(int(bytes_) for bytes_ in re.findall(r"^Total bytes: (\d+)", usage, re.MULTILINE))
    lines = ranges.splitlines()
    told = _LAST.match(lines[0])
    assert told, f"no live ranges: {lines[0]}"
    last = int(told[1])
    live = {match[1] + match[2]: (int(match[3]), int(match[4])) for line in lines if (match := _RANGE.match(line))}
    return Assignment(total, last, tuple(_buffers(assigned.splitlines(), live, last)))


def _buffers(lines: Iterable[str], live: dict[str, tuple[int, int]], last: int) -> Iterable[Buffer]:
    allocation, kept = 0, False
    for line in lines:
        if match := _ALLOCATION.match(line):
            allocation, kept = int(match[1]), match[3].startswith(("parameter", "maybe-live-out"))
            if told := _PARAMETER.match(match[3]):
                yield Buffer(told[1], int(match[2]), (allocation, 0), 0, last, True)
        elif match := _VALUE.match(line):
            name, index, handed_on, bytes_, offset, shape = match.groups()
            first, until = live.get(name + (index or "{}"), (1, 0))
            if first <= until or kept:
                place = allocation, int(offset)
                span = (0, last) if kept else (first, until)
                writer = "" if handed_on else name
                yield Buffer(shape.partition("{")[0], int(bytes_), place, *span, kept, writer)
