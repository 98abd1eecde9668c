"""Long pages in parts: a reader of a phone gets at most a few screens, and a link leads to what it names."""

from __future__ import annotations

import re
from collections.abc import Sequence

WORDS = 2_300
"""Words that a part has at most, unless a single piece has more. Titles and navigation come on top."""
RAW = re.compile(r"^```\{raw\} html\n.*?^```$", re.MULTILINE | re.DOTALL)


def words(text: str) -> int:
    r"""How many words of a Markdown text a reader sees: drawings and the lines of tables are none.

    >>> words("a **bold** word\\n| x | y |\\n|---|---|\\n")
    5
    """
    return sum(any(map(str.isalnum, word)) for word in RAW.sub("", text).split())


def parts(pieces: Sequence[str], most: int = WORDS) -> list[list[str]]:
    """Pieces of a page in order, as many to a part as have at most `most` words together.

    >>> parts(["a b", "c", "d e f g", "h"], 3)
    [['a b', 'c'], ['d e f g'], ['h']]
    """
    found: list[list[str]] = []
    count = 0
    for piece in pieces:
        own = words(piece)
        if not found or count + own > most:
            found.append([])
            count = 0
        found[-1].append(piece)
        count += own
    return found
