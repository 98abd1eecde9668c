"""The progress of long work, on standard error: a bar on a terminal, plain lines elsewhere.

Every long command shows its progress with `progress`, so that all of them look alike.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from gradgate.suites.console.terminal import console

TENTHS = 10
"""How many lines work of known length prints where there is no terminal, unless its command chooses the lines."""
TELLS = 5.0
"""Seconds after which the time left is estimated."""


class Show:
    """The progress of one piece of work.

    Attributes:
        done: how many parts are done.
        total: how many there are; None if that is not known.
    """

    def __init__(self, out: Console, total: int | None, what: str, done: int, bar: Progress | None) -> None:
        self.done, self.total = done, total
        self._out, self._what, self._bar = out, what, bar
        self._id = bar.add_task(what or "starting", total=total, completed=done, left="") if bar else None
        self._begun, self._before = time.monotonic(), done

    def doing(self, text: str) -> None:
        """Show what is being done now: next to the bar, and nowhere else."""
        if self._bar is not None and self._id is not None:
            self._bar.update(self._id, description=text)

    def advance(self, text: str = "", *, count: int = 1, line: bool | None = None) -> None:
        """Show that `count` more parts are done.

        Args:
            text: the part that was done last; by default the work as a whole.
            count: how many parts.
            line: whether to print a line where there is no terminal; by default one at each tenth of the work.
        """
        before, self.done = self._tenth(), self.done + count
        if self._bar is not None and self._id is not None:
            self._bar.update(self._id, advance=count, description=text or self._what, left=self.left())
        elif line if line is not None else self._tenth() > before:
            self._out.print(self._line(text), markup=False, soft_wrap=True)

    def note(self, text: str) -> None:
        """Print a line that stays: above the bar on a terminal, among the other lines elsewhere."""
        out = self._bar.console if self._bar is not None else self._out
        out.print(text, markup=False, soft_wrap=True)

    def left(self, seconds: float | None = None) -> str:
        """How long the rest takes, in words, if each part takes as long as those of this run did; "" at first.

        Args:
            seconds: the seconds that have passed; by default those since the work began.
        """
        passed = time.monotonic() - self._begun if seconds is None else seconds
        here = self.done - self._before
        if not self.total or not here or passed < TELLS or self.done >= self.total:
            return ""
        wanted = passed / here * (self.total - self.done)
        return f"about {wanted:.0f} s left" if wanted < 90 else f"about {wanted / 60:.0f} min left"

    def _tenth(self) -> int:
        return TENTHS * self.done // self.total if self.total else 0

    def _line(self, text: str) -> str:
        if self.total is None:
            return f"{text or self._what} ({self.done} done)"
        left = f", {words}" if (words := self.left()) else ""
        return (f"[{self.done}/{self.total}] {text}" if text else f"{self._what}: {self.done} of {self.total}") + left


@contextlib.contextmanager
def progress(total: int | None, what: str = "", *, done: int = 0) -> Iterator[Show]:
    """Show the progress of work while the block runs.

    Args:
        total: how many parts the work has; None if that is not known.
        what: the parts, in the plural.
        done: how many of them are done already.
    """
    out = console(stderr=True)
    if not out.is_terminal:
        yield Show(out, total, what, done, None)
        return
    words = (TextColumn(text, markup=False) for text in ("{task.fields[left]}", "{task.description}"))
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), *words)
    with Progress(*columns, console=out, transient=True) as bar:
        yield Show(out, total, what, done, bar)
