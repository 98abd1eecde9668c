"""Runs the code of a guide page: each block of Python runs alone, and must print the text shown after it."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import gradgate.suites.guide
from gradgate.references.contract import installed

FOLDER = Path(gradgate.suites.guide.__file__).parent
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[tuple[str, str]]:
    """(Python, shown output) for the blocks whose framework is installed; the output is "" if the page shows none."""
    text = page if "\n" in page else (FOLDER / f"{page}.md").read_text(encoding="utf-8")
    found = BLOCK.findall(text)
    shown = [following if kind == "text" else "" for kind, following in [*found[1:], ("", "")]]
    pairs = [(code, told) for (kind, code), told in zip(found, shown, strict=True) if kind == "python"]
    return [(code, told) for code, told in pairs if not _missing(code)]


def _missing(code: str) -> bool:
    return any(f"import {name}" in code and not installed(name) for name in ("jax", "torch", "flax"))


def run(code: str) -> str:
    """What a block prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "<page>", "exec"), {"__name__": "page"})
    return out.getvalue()


def check(page: str) -> int:
    """Run a page and compare what it prints with what it shows; returns the number of blocks that ran."""
    found = blocks(page)
    for code, shown in found:
        told = run(code)
        assert not shown or told.split() == shown.split(), f"not printed: {shown}\nprinted: {told}\nby: {code}"
    return len(found)
