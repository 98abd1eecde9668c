"""Text of a source replaced wherever it stands, whatever its layout: a formatter may move where lines end.

Texts are compared token by token. Spaces, ends of lines, comments, and the comma before a closing bracket do not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""
    (?P<layout>\s+|\#[^\n]*|\\\n)
    |[rbfuRBFU]{0,2}(?:\"\"\".*?\"\"\"|'''.*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |\d[\w.]*(?:(?<=[eE])[+-]\d+)?
    |\w+
    |\*\*=|//=|>>=|<<=|\.\.\.|->|:=|\*\*|//|>>|<<|<=|>=|==|!=|[-+*/%@&|^]=
    |.
    """,
    re.VERBOSE | re.DOTALL,
)
CLOSING = frozenset(")]}")


@dataclass(frozen=True)
class _Token:
    text: str
    start: int
    end: int


def replaced(text: str, old: str, new: str) -> str:
    """The text with `new` in the place of `old`, which occurs exactly once.

    Args:
        text: source of a module.
        old: a part of it, laid out in any way.
        new: begins and ends with the same spaces and ends of lines as `old`, or stands where `old` stands.

    Raises:
        LookupError: `old` occurs nowhere, or several times; says how often.
    """
    if text.count(old) == 1:
        return text.replace(old, new)
    places = list(_places(text, old)) if not text.count(old) else [(0, 0)] * text.count(old)
    if len(places) != 1:
        raise LookupError(f"{old!r} occurs {len(places)} times, not once")
    [(start, end)] = places
    lead, trail = old[: len(old) - len(old.lstrip())], old[len(old.rstrip()) :]
    if lead and text[:start].endswith(lead):
        start -= len(lead)
    else:
        new = new.lstrip() if lead else new
    if trail and text[end:].startswith(trail):
        end += len(trail)
    else:
        new = new.rstrip() if trail else new
    return text[:start] + new + text[end:]


def _places(text: str, old: str) -> Iterator[tuple[int, int]]:
    """Where the tokens of a part begin and end in a text."""
    tokens, part = _tokens(text), [token.text for token in _tokens(old)]
    texts = [token.text for token in tokens]
    for first in range(len(texts) - len(part) + 1 if part else 0):
        if texts[first] == part[0] and texts[first : first + len(part)] == part:
            yield tokens[first].start, tokens[first + len(part) - 1].end


def _tokens(text: str) -> list[_Token]:
    """The tokens of a text, which may begin and end anywhere between two of them."""
    tokens: list[_Token] = []
    for match in _TOKEN.finditer(text):
        if match.lastgroup == "layout":
            continue
        if match[0] in CLOSING and tokens and tokens[-1].text == ",":
            tokens.pop()
        tokens.append(_Token(match[0], match.start(), match.end()))
    return tokens
