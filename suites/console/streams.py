"""Standard output and standard error that may be closed, full or unable to hold a letter: a command goes on anyway.

What a command finds, its files and its exit status do not depend on who reads its output.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

NATIVE_LOG = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog\(\) |[IW]\d{4} [\d:.]+ +\d+ [\w.]+:\d+\] "
)
"""How a line begins that native code of a framework logs, such as about a device that this machine lacks."""


class Stream:
    """A text stream whose writes never fail. After the first failure, text goes nowhere.

    Attributes:
        failed: why text was lost, such as "No space left on device"; "" if none was, or if the reader has left, which
            is how a pager or ``head`` ends.
    """

    def __init__(self, stream: Any) -> None:
        """Wrap a stream; None stands for one that was closed before the process began."""
        self.failed = ""
        self._stream = _Nowhere() if stream is None or getattr(stream, "closed", False) else stream
        change = getattr(self._stream, "reconfigure", None)  # not every replacement of a stream has it
        with contextlib.suppress(ValueError, OSError):
            if change is not None:
                change(errors="backslashreplace")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text, if it can be written."""
        try:
            self._stream.write(text)
        except UnicodeEncodeError:
            encoding = getattr(self._stream, "encoding", None) or "ascii"
            self.write(text.encode(encoding, errors="backslashreplace").decode(encoding))
        except (OSError, ValueError) as error:
            self._lose(error)
        return len(text)

    def flush(self) -> None:
        """Write what is buffered, if it can be written."""
        try:
            self._stream.flush()
        except (OSError, ValueError) as error:
            self._lose(error)

    def _lose(self, error: OSError | ValueError) -> None:
        """Send everything from now on nowhere, what is still buffered included."""
        if getattr(error, "errno", None) != errno.EPIPE:
            self.failed = self.failed or getattr(error, "strerror", None) or str(error)
        try:
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())
        except (OSError, ValueError, AttributeError, io.UnsupportedOperation):
            self._stream = _Nowhere()


@contextlib.contextmanager
def safe() -> Iterator[tuple[Stream, Stream]]:
    """A scope in which `sys.stdout` and `sys.stderr` are such streams. File descriptors 0 to 2 are open in it."""
    _open_standard_descriptors()
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = made = Stream(before[0]), Stream(before[1])
    try:
        yield made
    finally:
        for stream in made:
            stream.flush()
        sys.stdout, sys.stderr = before


@contextlib.contextmanager
def without_native_logs() -> Iterator[None]:
    """A scope in which modules are imported. What they write to file descriptor 2 comes at its end, without such logs.

    JAX loads its plug-in for CUDA when it is imported, also where no GPU is asked for; the plug-in logs that there is
    none, and no variable silences it.
    """
    sys.stderr.flush()
    before = os.dup(2)
    with tempfile.TemporaryFile() as written:
        os.dup2(written.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(before, 2)
            os.close(before)
            written.seek(0)
            for line in written:
                if not NATIVE_LOG.match(line):
                    os.write(2, line)


def _open_standard_descriptors() -> None:
    """Open those that the caller has closed: else the next file that is opened would get everything printed."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
            os.set_inheritable(opened, True)


class _Nowhere(io.TextIOBase):
    def write(self, text: str) -> int:
        return len(text)
