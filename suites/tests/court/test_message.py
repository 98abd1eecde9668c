"""What crosses the wall: it comes back as it was sent, and a reader refuses everything else."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable

import pytest

from gradgate.suites.court import inside, message
from gradgate.suites.court.proxy import _is_tree

ONE = message.Array("float64", (2, 3), bytes(48))
FRAME = message.packed(message.ANSWER, "{}", [ONE, message.NONE, message.Array("bool", (), b"\1")])


def read(data: bytes, most: int = 100, seconds: float = 5.0) -> tuple[int, str, list[message.Array]]:
    """What a reader makes of some bytes, after which the other side closes."""
    left = [data]

    def some(count: int, _: float) -> bytes:
        part, left[0] = left[0][: min(count, 7)], left[0][min(count, 7) :]
        return part

    return message.received(some, time.monotonic() + seconds, most)


def test_arrays_come_back_as_they_were_sent() -> None:
    kind, text, arrays = read(FRAME)
    assert (kind, text) == (message.ANSWER, "{}")
    assert arrays == [ONE, message.NONE, message.Array("bool", (), b"\1")]


def changed(place: int, code: str, *values: int) -> bytes:
    """The frame with other bytes at a place."""
    new = struct.pack(code, *values)
    return FRAME[:place] + new + FRAME[place + len(new) :]


ARRAY = message.HEAD.size + 2
MALFORMED: dict[str, Callable[[], bytes]] = {
    "another kind of bytes": lambda: b"\x80\x04\x95" + FRAME[3:],
    "an unknown kind": lambda: changed(4, "<B", 9),
    "a text longer than the frame": lambda: changed(5, "<I", 1 << 30),
    "more bytes than accepted": lambda: changed(11, "<Q", 1 << 60),
    "an unknown dtype": lambda: changed(ARRAY, "<B", 200),
    "too many dims": lambda: changed(ARRAY + 1, "<B", 200),
    "a shape larger than its bytes": lambda: changed(ARRAY + 2, "<Q", 1 << 62),
    "a smaller shape": lambda: changed(ARRAY + 2, "<Q", 1),
    "fewer arrays than bytes": lambda: changed(9, "<H", 1),
    "more arrays than bytes": lambda: changed(9, "<H", 9),
    "text that is no UTF-8": lambda: changed(message.HEAD.size, "<B", 255),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_frame_is_refused(what: str) -> None:
    with pytest.raises(message.Malformed):
        read(MALFORMED[what]())


def test_a_frame_larger_than_accepted_is_refused_before_it_is_read() -> None:
    assert read(FRAME, most=71)
    with pytest.raises(message.Malformed, match="71 bytes; at most 70"):
        read(FRAME, most=70)


def test_an_end_and_a_silence_are_told_apart() -> None:
    with pytest.raises(message.Closed):
        read(FRAME[:-1])

    def silent(_: int, __: float) -> bytes:
        raise TimeoutError

    with pytest.raises(message.TooLate):
        message.received(silent, time.monotonic() + 0.05, 10)


@pytest.mark.parametrize("value", [3.0, (1.0, [2.0, None]), {"a": 1.0, "b": (2.0, {"c": 3.0})}])
def test_a_tree_comes_back_as_it_was(value: object) -> None:
    leaves: list[object] = []
    tree = json.loads(json.dumps(inside.structure(value, leaves)))
    assert _is_tree(tree, len(leaves))
    assert inside.filled(tree, leaves) == value


@pytest.mark.parametrize(
    "tree", [0, [0, 0], [0, 2], {"t": 0}, {"x": []}, [[[[[[[[[[0, 1]]]]]]]]]], "0", [0, True], [0.0, 1]]
)
def test_a_tree_without_its_leaves_is_refused(tree: object) -> None:
    assert not _is_tree(tree, 2)
    assert _is_tree([1, 0], 2)
