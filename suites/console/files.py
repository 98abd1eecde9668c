"""Writing results so that a reader, or a crash, sees the old text or the new, never half of it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from gradgate.references.contract import UsageError


def write_atomically(path: Path, text: str) -> None:
    """Replace a file in one step, making its folder.

    Raises:
        UsageError: it cannot be written; says why.
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
