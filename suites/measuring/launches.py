"""Launches of kernels that do nothing: bytes are told without them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass
class Launches:
    """How this process launches kernels.

    Attributes:
        skipped: whether launches do nothing (`skipping`).
        count: of launches that did nothing.
        told: called with the arguments of a launch that does nothing.
    """

    skipped: bool = False
    count: int = 0
    told: Callable[[Any], None] | None = None

    def skip(self, *arguments: Any) -> None:
        """Take in a launch that does nothing."""
        self.count += 1
        if self.told is not None:
            self.told(arguments)


STATE = Launches()


def skipped() -> bool:
    """Whether launches do nothing."""
    return STATE.skipped


@contextlib.contextmanager
def skipping() -> Iterator[Launches]:
    """Within it a launch does nothing but be counted: a program's tensors are made, and hold any numbers."""
    before = STATE.skipped, STATE.count
    STATE.skipped, STATE.count = True, 0
    try:
        yield STATE
    finally:
        STATE.skipped, STATE.count = before
