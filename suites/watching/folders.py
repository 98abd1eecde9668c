"""The folders in which calls are recorded, and the environment of a process that records."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from gradgate.hw_profiles.cache import Cache
from gradgate.suites.watching.recorder import FOLDER

KEPT = 8
"""Folders of earlier runs that are kept, so that their calls can be judged again."""
STARTUP = Path(__file__).parent / "startup"
"""The folder of the ``sitecustomize`` that starts the recorder."""


def fresh() -> Path:
    """A new empty folder beside the cached results. The oldest ones are removed."""
    above = Cache().folder.parent / "watch"
    above.mkdir(parents=True, exist_ok=True)
    earlier = sorted((path for path in above.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
    for path in earlier[:-KEPT]:
        shutil.rmtree(path, ignore_errors=True)
    return Path(tempfile.mkdtemp(dir=above))


def environment(folder: Path) -> dict[str, str]:
    """The environment of a command whose Python processes record into a folder; this Python's programs come first."""
    before = os.environ.get("PYTHONPATH")
    return {
        **os.environ,
        FOLDER: str(folder),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(STARTUP), before])),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
    }
