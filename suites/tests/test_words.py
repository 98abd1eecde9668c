"""Words that do not come back: documents, docstrings, comments and messages are in plain modern English."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("suites", "references", "hw_profiles", "asv_bench", ".github")
KINDS = (".md", ".py", ".toml", ".html", ".yml", ".cff")
WORDS = {
    r"heed(s|ed|ing|less)?": "reads, follows, ignores",
    r"beside (whose|which)": "say it in two sentences",
    r"dear(er|est|ly)?": "expensive",
    r"of which no(thing|ne|body)?": "say it in two sentences",
    r"cr(y|ies|ied) (at|wolf)|cries": "raises an alarm, reports",
    r"would else": "would otherwise",
    r"by luck alone": "by chance",
    r"of old": "older, earlier",
    r"hitherto|heretofore": "so far",
    r"lest": "so that … not",
    r"albeit": "although",
    r"whilst|amongst": "while, among",
    r"n[ao]ught": "nothing, zero",
    r"(where|there)(of|in|upon|unto|withal)": "say of which, in which",
    r"nay|aye|ere|betwixt|anon": "the modern word",
    r"in vain": "without effect",
    r"at all events": "in any case",
    r"must needs": "must",
    r"befall(s|en)?|betoken(s|ed)?": "happen, mean",
}
"""Words, as patterns -> what to write in their place."""
QUOTED = re.compile(r"^words = .*$", re.MULTILINE)
"""A paper's own words in a ledger."""


def occurrences(text: str) -> list[str]:
    """Every such word of a text, with its line and what to write in its place."""
    text = QUOTED.sub("", text)
    told = []
    for pattern, better in WORDS.items():
        for match in re.finditer(rf"\b({pattern})\b", text, re.IGNORECASE):
            line = text.count("\n", 0, match.start()) + 1
            told.append(f"line {line}: {match[0]!r}; write: {better}")
    return told


def _made(path: Path) -> bool:
    """Whether a file is in a folder that tools make."""
    return bool({"node_modules", "__pycache__", ".asv"} & set(path.parts))


def documents() -> Iterator[Path]:
    """Everything that people read: documents and sources."""
    yield from (path for path in ROOT.iterdir() if path.suffix in KINDS)
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*")):
            if path.suffix in KINDS and path.is_file() and path != Path(__file__).resolve() and not _made(path):
                yield path


INSTALLED = re.compile(r"(?<![\w.~}>-])/(?:[\w.-]+/)+site-packages/")
"""A file of an installed package, by its place on the machine that wrote the text."""


@pytest.mark.parametrize(("text", "there"), [("at /a/b/lib/site-packages/x.py:3", 1), ("lib/site-packages/x.py", 0)])
def test_a_place_on_a_machine_is_found(text: str, there: int) -> None:
    assert len(INSTALLED.findall(text)) == there


@pytest.mark.skipif(not (ROOT / ".github").exists(), reason="not a checkout")
def test_no_kept_figures_or_results_name_a_place_on_the_machine_that_measured_them() -> None:
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.json"):
            found = None if _made(path) else INSTALLED.search(path.read_text("utf-8"))
            assert not found, f"{path.relative_to(ROOT)} names {found[0]}"


@pytest.mark.skipif(not (ROOT / ".github").exists(), reason="not a checkout")
def test_no_document_docstring_comment_or_message_has_one() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}, {said}" for path in documents() for said in occurrences(path.read_text("utf-8"))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "text",
    [
        "This check heeds options.",
        "backwards are dear",
        "a problem of which no run knows",
        "it cries at noise",
        "Lest it fail.",
        "the device beside whose rows it stands",
        "an array whereof we know",
    ],
)
def test_such_a_word_is_found(text: str) -> None:
    assert len(occurrences(f"Plain words.\n{text}\n")) == 1
    assert occurrences(f"Plain words.\n{text}\n")[0].startswith("line 2: ")


def test_a_papers_own_words_and_longer_words_are_left_alone() -> None:
    assert occurrences('words = "minimise compute whilst satisfying the budget"\n') == []
    assert occurrences("endear, modest, here, therefore, whereas, older\n") == []
