"""How much of a pair's code was judged: lines that ran, decisions that went both ways, the source in its colours."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jinja2")
pytest.importorskip("plotly")

from gradgate.suites.judging.lines import Lines
from gradgate.suites.tests.report.test_report import page, section, verdict

SOURCE = """def mine(x):
    if x > 0:
        return x
    return never(x)
"""


def shown(folder: Path, never: bool, changed: bool = False) -> str:
    """The page of a verdict on a pair whose last line no problem ran, or on one of which everything ran."""
    file = folder / "mine.py"
    file.write_text(SOURCE)
    digest = hashlib.sha256(SOURCE.encode()).hexdigest()
    lines = Lines(str(file), digest, ((1, 3),) if never else ((1, 4),), ((4, 4),) if never else ())
    both = 0 if never else 1
    decisions: dict[str, Any] = {
        "both": both,
        "decisions": 1,
        "never": ["if at mine.py:2 (x > 0): false"] if never else [],
        "lines": {"mine.py:2": [both, 1]},
        "apart": [],
    }
    if changed:
        file.write_text(f"{SOURCE}# later\n")
    return page(folder / "report", verdict("gradient_exact", digits=50, lines=(lines,), decisions=decisions))


def marks(page: str) -> list[str]:
    """The classes of the lines of the listing, in order."""
    return re.findall(r'<tr class="line-(\w+)">', page)


def test_what_never_ran_is_counted_named_and_coloured(tmp_path: Path) -> None:
    made = shown(tmp_path, never=True)
    told = section(made, "source")
    assert "3 of 4" in told
    assert "0 of 1" in told
    assert "if at mine.py:2 (x > 0): false" in told
    assert marks(made) == ["ran", "half", "ran", "never"]
    assert '<span class="mark finding">3 of 4</span>' in made


def test_what_was_judged_wholly_has_no_other_colour(tmp_path: Path) -> None:
    made = shown(tmp_path, never=False)
    assert '<span class="mark upheld">4 of 4</span>' in made
    assert '<span class="mark upheld">1 of 1</span>' in made
    assert marks(made) == ["ran", "decided", "ran", "ran"]


def test_a_file_that_has_changed_is_counted_and_not_shown(tmp_path: Path) -> None:
    made = shown(tmp_path, never=True, changed=True)
    assert "3 of 4" in section(made, "source")
    assert "it has changed since it was judged" in section(made, "source")
    assert marks(made) == []
