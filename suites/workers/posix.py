"""What processes of their own need of the operating system, and what is said where it is missing."""

from __future__ import annotations

import importlib.util
import os

from gradgate.references.errors import UsageError

MISSING = (
    "gradgate judges foreign code in processes of their own, which need Linux or macOS: on Windows, run it in WSL; "
    "gradgate.check works in any test there"
)


def need_processes() -> None:
    """Check that processes can be started with pipes of their own, and be ended with all that they started.

    Raises:
        UsageError: the system has no file locks or no groups of processes, as Windows has not.
    """
    if importlib.util.find_spec("fcntl") is None or not hasattr(os, "killpg"):
        raise UsageError(MISSING)
