"""The bytes that cross the wall: a kind, a text, and arrays as dtype, shape and raw bytes. Nothing is ever unpickled.

A frame is ``GGC1``, then little-endian: the kind (1 byte), the number of bytes of the text (4), the number of arrays
(2) and the number of bytes of all that follows (8). The text is UTF-8. An array is its dtype (1 byte, an index into
`DTYPES`), its number of dims (1), its dims (8 each), and its numbers in row-major order. The reader knows beforehand
how much it accepts and reads no byte more, so a reply cannot exhaust it.

This module is read on both sides, and imports the standard library alone.
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

MAGIC = b"GGC1"
HEAD = struct.Struct("<4sBIHQ")
DTYPES = (
    ("float64", 8),
    ("float32", 4),
    ("bfloat16", 2),
    ("float16", 2),
    ("int64", 8),
    ("int32", 4),
    ("int16", 2),
    ("int8", 1),
    ("uint8", 1),
    ("bool", 1),
    ("uint32", 4),
    ("uint16", 2),
    ("uint64", 8),
    ("none", 0),
)
"""(name, bytes of a number); ``none`` stands where a gradient is None."""
CODES = {name: code for code, (name, _) in enumerate(DTYPES)}
DIMS = 16
"""Most dims of an array."""
TEXT = 1 << 16
"""Most bytes of the text of a reply."""
ASK, ANSWER, RAISED = 1, 2, 3
"""Kinds: a request; a reply with arrays; a reply with the words of an exception."""


class Malformed(Exception):
    """What came through the wall is not a frame that the reader accepts; the message says why."""


class Closed(Exception):
    """The other side has closed its end."""


class TooLate(Exception):
    """No whole frame arrived in time."""


@dataclass(frozen=True)
class Array:
    """An array as it crosses the wall.

    Attributes:
        dtype: a name in `DTYPES`.
        shape: its dims.
        numbers: its raw bytes, row-major.
    """

    dtype: str
    shape: tuple[int, ...]
    numbers: bytes


NONE = Array("none", (), b"")


def packed(kind: int, text: str, arrays: Sequence[Array] = ()) -> bytes:
    """A frame."""
    said = text.encode("utf-8", "replace")
    parts = [said]
    for array in arrays:
        parts.append(struct.pack(f"<BB{len(array.shape)}Q", CODES[array.dtype], len(array.shape), *array.shape))
        parts.append(array.numbers)
    return HEAD.pack(MAGIC, kind, len(said), len(arrays), sum(map(len, parts))) + b"".join(parts)


def sized(head: bytes, most: int, text: int = TEXT) -> tuple[int, int, int, int]:
    """(kind, bytes of the text, arrays, bytes that follow) of a frame's first bytes.

    Args:
        most: bytes of arrays that the reader accepts.
        text: bytes of text that it accepts.

    Raises:
        Malformed: these are not the first bytes of a frame, or the frame is larger than accepted.
    """
    magic, kind, said, arrays, rest = HEAD.unpack(head)
    if magic != MAGIC or kind not in (ASK, ANSWER, RAISED):
        raise Malformed("it is not a message of this kind")
    if said > min(rest, text):
        raise Malformed(f"its text has {said} bytes; at most {text}")
    if rest - said > most:
        raise Malformed(f"its arrays have {rest - said} bytes; at most {most} are accepted")
    return kind, said, arrays, rest


def parsed(body: bytes, said: int, arrays: int) -> tuple[str, list[Array]]:
    """(text, arrays) of the bytes after a frame's head.

    Raises:
        Malformed: an array has an unknown dtype, too many dims, or not as many bytes as its shape says.
    """
    try:
        text = body[:said].decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed("its text is not UTF-8") from None
    found, place = [], said
    for _ in range(arrays):
        if place + 2 > len(body):
            raise Malformed("it ends within an array")
        code, dims = body[place], body[place + 1]
        place += 2
        if code >= len(DTYPES) or dims > DIMS or place + 8 * dims > len(body):
            raise Malformed("an array has an unknown dtype, or too many dims")
        shape = struct.unpack_from(f"<{dims}Q", body, place)
        place += 8 * dims
        name, width = DTYPES[code]
        count = math.prod(shape) * width
        if count > len(body) - place:
            raise Malformed("an array has fewer bytes than its shape says")
        found.append(Array(name, shape, body[place : place + count]))
        place += count
    if place != len(body):
        raise Malformed("bytes follow the last array")
    return text, found


def received(
    read: Callable[[int, float], bytes], until: float, most: int, text: int = TEXT
) -> tuple[int, str, list[Array]]:
    """(kind, text, arrays) of the next frame.

    Args:
        read: (bytes, seconds) -> some bytes, at most so many; b"" at the end. It may raise TimeoutError.
        until: the time, of `time.monotonic`, at which the frame must be there.
        most: bytes of arrays that are accepted.
        text: bytes of text that are accepted.

    Raises:
        Malformed, Closed, TooLate.
    """

    def whole(count: int) -> bytes:
        parts, left = [], count
        while left:
            rest = until - time.monotonic()
            if rest <= 0:
                raise TooLate
            try:
                part = read(min(left, 1 << 20), rest)
            except TimeoutError:
                continue
            if not part:
                raise Closed
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    kind, said, arrays, rest = sized(whole(HEAD.size), most, text)
    return (kind, *parsed(whole(rest), said, arrays))
