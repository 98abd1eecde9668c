"""Where in the author's files a call of foreign code went wrong, in one line."""

from __future__ import annotations

import linecache
import sys
import traceback
from collections.abc import Set
from types import FrameType

SHOWN = 3
"""Largest number of frames shown: the last ones of a traceback, where the exception was raised."""
WIDTH = 80
"""Largest number of characters shown of a source line."""
OWN = ("gradgate.references.", "gradgate.suites.bugs.")
"""Modules of gradgate that count as the author's if the method itself is part of gradgate."""
BETWEEN = "gradgate.references.backends"
"""The module among them whose functions stand between who judges and a method, as that which compiles it does."""

FRAMEWORKS = frozenset({"jax", "jaxlib", "torch", "numpy"})
"""Packages that are never the author's, although a compiled method may carry the name of one of them."""


def last_frames(error: BaseException, *implementation: str) -> str:
    """The last frames of an exception that are in its author's files: `` · mine.py:12 in step: raise ValueError``.

    Frames of installed packages, of the standard library and of gradgate are left out, except frames of the package
    that contains the method.

    Args:
        implementation: ``package.module:function`` or ``file.py:function`` of the method; if its function comes from
            another module, also that module.

    Returns:
        Each frame after `` · ``, the outermost first; "" if there is none.
    """
    places = [place.partition(":")[0] for place in implementation]
    own = {place.partition(".")[0] for place in places if not place.endswith(".py")} - FRAMEWORKS
    found: list[str] = []
    for frame, line in traceback.walk_tb(error.__traceback__):
        if is_authors(frame, own):
            said = _told(frame, line)
            if not found or found[-1] != said:  # a function that calls itself is shown once
                found.append(said)
    return "".join(f" · {said}" for said in found[-SHOWN:])


def is_authors(frame: FrameType, own: Set[str]) -> bool:
    """Whether a frame runs an author's file: none of an installed package, unless it is in `own`, or of gradgate."""
    file = frame.f_code.co_filename
    spec = frame.f_globals.get("__spec__")  # a worker is __main__ by name
    module = str(getattr(spec, "name", "") or frame.f_globals.get("__name__", ""))
    package = module.partition(".")[0]
    if file.startswith("<") or not package:
        return False
    if package == "gradgate":
        return package in own and module.startswith(OWN) and module != BETWEEN
    if package in own:
        return True
    installed = "site-packages" in file or "dist-packages" in file
    return not installed and package not in sys.stdlib_module_names


def _told(frame: FrameType, number: int) -> str:
    file = frame.f_code.co_filename
    text = linecache.getline(file, number, frame.f_globals).strip()
    text = text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"
    where = f"{file.replace(chr(92), '/').rpartition('/')[2]}:{number} in {frame.f_code.co_name}"
    return f"{where}: {text}" if text else where
