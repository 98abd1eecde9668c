"""The folders in which calls are recorded, and the environment of a process that records."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

from gradgate.hw_profiles.cache import Cache
from gradgate.suites.watching.recorder import FOLDER

KEPT = 8
"""Folders of earlier runs that are kept, so that their calls can be judged again."""
CALLS = 2000
"""Calls that are kept, so that a later run that records them finds their verdicts."""
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


def settled(folder: Path, stem: str, text: str, beside: str = "") -> Path:
    """A recorded call beside the cached results, in a folder named after its content; older ones are removed.

    So a second run that records the same call finds the verdicts of the first.

    Args:
        folder: where it was recorded.
        stem: the name of its files.
        text: the file of Python that names the call as a pair, which is written here, too.
        beside: the name of a call of the same rule that had values, if this one had none.

    Returns:
        The path of that file.
    """
    names = [f"{one}.{ending}" for one in filter(None, (stem, beside)) for ending in ("json", "pickle")]
    files = [folder / name for name in names if (folder / name).exists()]
    name = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:24]
    above = Cache().folder.parent / "watched"
    place = above / name
    if not (place / f"{stem}.py").exists():
        place.mkdir(parents=True, exist_ok=True)
        for path in files:
            shutil.copyfile(path, place / path.name)
        (place / f"{stem}.py").write_text(text, encoding="utf-8")
    earlier = sorted(above.iterdir(), key=lambda path: path.stat().st_mtime)
    for path in earlier[:-CALLS]:
        shutil.rmtree(path, ignore_errors=True)
    place.touch()
    (folder / f"{stem}.py").write_text(text, encoding="utf-8")
    return place / f"{stem}.py"


def environment(folder: Path) -> dict[str, str]:
    """The environment of a command whose Python processes record into a folder; this Python's programs come first."""
    before = os.environ.get("PYTHONPATH")
    return {
        **os.environ,
        FOLDER: str(folder),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(STARTUP), before])),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
    }
