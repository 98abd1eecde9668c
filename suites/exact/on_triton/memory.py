"""The memory of one launch: addresses as elements of shadows, and what programs do there that no program may do."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from flint import arb

from gradgate.suites.exact import balls
from gradgate.suites.exact.lines import judges, line_at
from gradgate.suites.exact.on_torch.shadows import FLOATS, Record, Shadows, bytes_of

UNDEFINED = arb("nan")
"""What nobody wrote, what lies outside of a tensor, or a masked lane without `other`: never a number."""
_TRITON = next(iter(importlib.import_module("triton").__path__))


@functools.cache
def _foreign(file: str) -> bool:
    """Whether a file is Triton's, or a part of Python or of what judges, and no kernel's."""
    return file.startswith((_TRITON, "<")) or file.endswith(("contextlib.py", "functools.py")) or judges(file)


def line(direct: bool = False) -> str:
    """``file.py:123`` of the kernel's statement that runs; if only `direct` calls count, "" for one through Triton."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not _foreign(name):
            return line_at(name, frame.f_lineno)
        if direct and name.startswith(_TRITON):
            return ""
        frame = frame.f_back
    return "?"


@dataclass
class Traces:
    """What launches did that may be a fault; lines are ``kernel, file.py:123``.

    Attributes:
        order: how the programs of a grid are ordered: "forwards", "backwards" or "shuffled".
        choice: the number of the configuration that tuners choose.
        tried: whether tuners launch every configuration before.
        faults: accesses outside of every tensor, and places that two programs, or two lanes, write differently.
        undefined: stores of numbers that follow from undefined ones; a fault if they reach the answer.
        shared: loads of what another program of the launch wrote, or stores over what another one read.
        tuned: launches of tuners, each ``kernel, file.py:123 with a configuration``.
        trials: the largest number of configurations that a tuner had.
        choices: the largest number of those that differ in the interpreter.
    """

    order: str = "forwards"
    choice: int = 0
    tried: bool = False
    faults: dict[str, None] = field(default_factory=dict)
    undefined: dict[str, None] = field(default_factory=dict)
    shared: dict[str, None] = field(default_factory=dict)
    tuned: dict[str, None] = field(default_factory=dict)
    trials: int = 0
    choices: int = 0


class Region:
    """The storage of one argument.

    Attributes:
        start, stop: its addresses.
        element: bytes of one number.
        shadow: its balls; None for whole numbers, which are in memory alone.
        reader, writer: for each number, the program of this launch that read or wrote it last; −1 for none.
        line: where balls were stored last.
    """

    def __init__(self, tensor: torch.Tensor, record: Record | None) -> None:
        storage = tensor.untyped_storage()
        self.record, self.tensor = record, tensor
        self.start, self.element = storage.data_ptr(), tensor.element_size()
        self.count = storage.nbytes() // self.element
        self.stop = self.start + self.count * self.element
        self.reader = np.full(self.count, -1)
        self.writer = np.full(self.count, -1)
        self.changed = np.zeros(self.count, bool)
        self.line = ""

    @property
    def shadow(self) -> Any:
        """The balls of the storage, as the evaluator has them now."""
        return None if self.record is None else self.record.shadow

    def put_back(self) -> None:
        """Write the midpoints of what was stored into the floats themselves."""
        if self.record is None or not self.changed.any():
            return
        flat: Any = torch.empty(0, dtype=self.tensor.dtype)
        flat.set_(self.tensor.untyped_storage())
        numbers = balls.floats(self.record.shadow[self.changed])
        flat[torch.from_numpy(self.changed)] = torch.from_numpy(numbers).to(self.tensor.dtype)
        if self.record.data is not None:
            self.record.data = bytes_of(self.tensor)


class Memory:
    """All regions of one launch.

    Attributes:
        program: the number of the program that runs.
        declared: ``file.py:123`` of the kernel itself.
        locked: whether programs wait for each other, so that their accesses are ordered by more than atomics.
    """

    def __init__(self, shadows: Shadows, tensors: Iterable[torch.Tensor], kernel: str, traces: Traces) -> None:
        self.kernel, self.traces = kernel, traces
        self.program, self.locked = 0, False
        self.declared = ""
        self._undefined_before = len(traces.undefined)
        self.suspects: dict[str, None] = {}
        found: dict[int, Region] = {}
        for tensor in tensors:
            start = tensor.untyped_storage().data_ptr()
            if not tensor.numel() and not tensor.untyped_storage().nbytes():
                continue
            other = found.get(start)
            if other is not None and other.tensor.dtype != tensor.dtype:
                raise balls.Unknown(f"the Triton kernel {kernel}: one storage as {other.tensor.dtype}, {tensor.dtype}")
            if other is None:
                floats = tensor.dtype in FLOATS
                found[start] = Region(tensor, shadows.for_kernel(tensor, UNDEFINED) if floats else None)
        self.regions = [found[start] for start in sorted(found)]
        self._starts = np.array([region.start for region in self.regions], np.uint64)

    def of(self, tensor: torch.Tensor) -> Region | None:
        """The region of a tensor of floats."""
        start = tensor.untyped_storage().data_ptr()
        return next((each for each in self.regions if each.start == start and each.record is not None), None)

    def close(self) -> list[str]:
        """End the launch: write the balls' midpoints into memory.

        Returns:
            What explains an answer with undefined numbers: where the launch stored such, or which it did not store.
        """
        found = list(self.traces.undefined)[self._undefined_before :]
        for region in self.regions:
            region.put_back()
            left = [] if region.shadow is None else [ball is UNDEFINED for ball in region.shadow.tolist()]
            if any(left) and (region.line or all(left)):
                where = f"{region.line} leaves some" if region.line else f"{self.declared} leaves all"
                found.append(f"{self.kernel}, {where} of a tensor's numbers undefined")
        self.traces.undefined |= dict.fromkeys(found)
        return found

    def place(self) -> str:
        """The kernel, and its line."""
        return f"{self.kernel}, {line()}"

    def enter(self, program: int) -> None:
        """Another program begins."""
        self.program = program
        self.suspects.clear()

    def parts(self, addresses: Any, mask: Any, what: str) -> list[tuple[Region, Any, Any]]:
        """The regions that lanes access: each with the lanes, and with the places of their numbers in it.

        Args:
            addresses: (N,) unsigned integers.
            mask: (N,) booleans; a lane without is left out, as is one that accesses no argument's memory.
            what: "read" or "write", for the message.
        """
        lanes = np.flatnonzero(mask)
        if not len(lanes):
            return []
        wanted = addresses[lanes]
        at = np.searchsorted(self._starts, wanted, side="right") - 1
        found = []
        outside = at < 0
        for number in np.unique(at[at >= 0]):
            region = self.regions[number]
            here = at == number
            legal = here & (wanted < region.stop)
            outside |= here & ~legal
            bytes_in = (wanted[legal] - np.uint64(region.start)).astype(np.int64)
            if (bytes_in % region.element).any():
                raise balls.Unknown(f"the Triton kernel {self.kernel}: an address inside of a number")
            if legal.any():
                found.append((region, lanes[legal], bytes_in // region.element))
        if outside.any():
            self.traces.faults[f"{self.place()} {'reads' if what == 'read' else 'writes'} outside of every tensor"] = (
                None
            )
            if what == "read":
                self.suspects[line()] = None
        return found

    def read(self, region: Region, places: Any) -> None:
        """Note that the program reads these numbers."""
        others = region.writer[places]
        if not self.locked and ((others != -1) & (others != self.program)).any():
            self.traces.shared[f"{self.place()} reads what another program writes"] = None
        region.reader[places] = self.program

    def write(self, region: Region, places: Any, values: Any, atomic: bool) -> None:
        """Write balls, or note that whole numbers are written (`values` is an array of integers then).

        Args:
            atomic: whether it is one step of reading and writing.
        """
        shadow = region.shadow
        if not atomic and not self.locked:
            others = region.writer[places]
            twice = (others != -1) & (others != self.program)
            if twice.any() and (shadow is None or _differ(shadow[places[twice]], values[twice])):
                if shadow is not None:
                    self.traces.faults[f"{self.place()} writes what another program writes, without an atomic"] = None
                else:
                    self.traces.shared[f"{self.place()} writes what another program writes"] = None
            read = region.reader[places]
            if ((read != -1) & (read != self.program)).any():
                self.traces.shared[f"{self.place()} writes what another program reads"] = None
        region.writer[places] = self.program
        if shadow is None:
            return
        if not atomic and len(places) > 1 and len(np.unique(places)) < len(places):
            shadow[places] = values
            if _differ(shadow[places], values):
                self.traces.faults[f"{self.place()} writes one address from several lanes"] = None
        shadow[places] = values
        region.changed[places] = True
        region.line = line()
        if any(ball.is_nan() for ball in values.tolist()):
            reason = ", ".join(self.suspects) or "another number that is not one"
            self.traces.undefined[f"{self.place()} stores what follows from undefined numbers ({reason})"] = None


def _differ(one: Any, other: Any) -> bool:
    """Whether there is a pair of numbers that certainly differ."""
    return any(a is not b and not (a - b).contains(0) for a, b in zip(one.tolist(), other.tolist(), strict=True))
