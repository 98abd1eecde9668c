"""Text from elsewhere, such as an exception's message, without what would steer a terminal or break a document."""

from __future__ import annotations

import re

_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_NO_TEXT = re.compile(
    "[^\t\n\r\x20-\x7e\x85\xa0-\u200d\u2010-\u2029\u202f-\u2065\u206a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)


def plain(text: str) -> str:
    r"""`text` without escape sequences, control characters, marks that reverse the order of letters, and surrogates.

    >>> plain("\x1b[31mred\x1b[0m \x00\x9b \u202e \ud800"), plain("\x1b]0;title\x07 a")
    ('red   ', ' a')
    """
    return _NO_TEXT.sub("", _SEQUENCE.sub("", text))


def one_line(text: str) -> str:
    r"""`plain` text in one line.

    >>> one_line("first\n  second\r\n")
    'first second'
    """
    return " ".join(plain(text).split())
