"""Launches of kernels that do nothing: bytes are counted without running kernels."""

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
        count: how many launches did nothing.
        listener: a function that is called with the arguments of a launch that does nothing.
    """

    skipped: bool = False
    count: int = 0
    listener: Callable[[Any], None] | None = None

    def skip(self, *arguments: Any) -> None:
        """Count a launch that does nothing, and report its arguments."""
        self.count += 1
        if self.listener is not None:
            self.listener(arguments)


STATE = Launches()


def skipped() -> bool:
    """Whether launches do nothing."""
    return STATE.skipped


@contextlib.contextmanager
def skipping() -> Iterator[Launches]:
    """A scope in which a launch is only counted. A program's tensors are made, and hold arbitrary numbers."""
    before = STATE.skipped, STATE.count
    STATE.skipped, STATE.count = True, 0
    try:
        yield STATE
    finally:
        STATE.skipped, STATE.count = before
