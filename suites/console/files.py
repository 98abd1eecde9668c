"""Writing results so that a file holds the old text or the new one, never half of it, even after a crash."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from gradgate.references.contract import UsageError


def write_atomically(path: Path, text: str) -> None:
    """Replace a file in one step. Its folder is made if it does not exist.

    Raises:
        UsageError: the file cannot be written; says why.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(text, encoding="utf-8")
        os.replace(draft, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
