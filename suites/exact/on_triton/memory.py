"""The memory of one launch: addresses as elements of shadows, and what programs do there that no program may do."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flint import arb

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_torch.shadows import FLOATS, Record, Shadows, as_numpy

UNDEFINED = arb("nan")
"""What nobody wrote, what lies outside of a tensor, or a masked lane without `other`: never a number."""
_TRITON = str(Path(next(iter(sys.modules["triton"].__path__))))
_OWN = str(Path(__file__).parents[2])


def line() -> str:
    """``file.py:123`` of the kernel's statement that runs."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((_OWN, _TRITON, "<")) and not name.endswith(("contextlib.py", "functools.py")):
            return f"{Path(name).name}:{frame.f_lineno}"
        frame = frame.f_back
    return "?"


@dataclass
class Traces:
    """What launches did that may be a fault; lines are ``kernel, file.py:123``.

    Attributes:
        order: how the programs of a grid are ordered: "forwards", "backwards" or "shuffled".
        faults: accesses outside of every tensor, and places that two programs, or two lanes, write differently.
        undefined: stores of numbers that follow from undefined ones; a fault if they reach the answer.
        shared: loads of what another program of the launch wrote, or stores over what another one read.
    """

    order: str = "forwards"
    faults: dict[str, None] = field(default_factory=dict)
    undefined: dict[str, None] = field(default_factory=dict)
    shared: dict[str, None] = field(default_factory=dict)


class Region:
    """The storage of one argument.

    Attributes:
        start, stop: its addresses.
        element: bytes of one number.
        shadow: its balls; None for whole numbers, which are in memory alone.
        reader, writer: for each number, the program of this launch that read or wrote it last; −1 for none.
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
            raw: Any = torch.empty(0, dtype=torch.uint8)
            self.record.data = as_numpy(raw.set_(self.tensor.untyped_storage())).copy()


class Memory:
    """All regions of one launch.

    Attributes:
        program: the number of the program that runs.
        locked: whether programs wait for each other, so that their accesses are ordered by more than atomics.
    """

    def __init__(self, shadows: Shadows, tensors: Iterable[torch.Tensor], kernel: str, traces: Traces) -> None:
        self.kernel, self.traces = kernel, traces
        self.program, self.locked = 0, False
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
        if any(ball.is_nan() for ball in values.tolist()):
            reason = ", ".join(self.suspects) or "another number that is not one"
            self.traces.undefined[f"{self.place()} stores what follows from undefined numbers ({reason})"] = None


def _differ(one: Any, other: Any) -> bool:
    """Whether there is a pair of numbers that certainly differ."""
    return any(a is not b and not (a - b).contains(0) for a, b in zip(one.tolist(), other.tolist(), strict=True))
