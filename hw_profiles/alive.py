"""Which arrays fill the temporary memory of a compiled program, as its buffer assignment has them.

XLA gives the assignment as a serialized ``BufferAssignmentProto``, and the program as an ``HloModuleProto`` (both in
``xla/service/hlo.proto`` and ``xla/xla_data.proto`` of OpenXLA). No Python package has their classes, so the few fields
that are needed are read from the wire format, which protobuf keeps stable. The host's compiler gives an assignment;
those for absent GPUs and TPUs give none (jaxlib 0.10.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

MOST = 3
"""How many arrays are named, largest first."""
LARGEST = 32 * 2**20
"""Bytes of a serialized program beyond which no names are read: that would take longer than compiling it."""
KINDS = {
    1: "pred",
    2: "s8",
    3: "s16",
    4: "s32",
    5: "s64",
    6: "u8",
    7: "u16",
    8: "u32",
    9: "u64",
    10: "f16",
    11: "f32",
    12: "f64",
    15: "c64",
    16: "bf16",
    18: "c128",
}
"""XLA's numbers of dtypes -> their names."""
TUPLE = 13
NOT_TEMPORARY = (3, 5, 7, 12)
"""Fields of an allocation that is a thread's own, an argument, a result or a constant."""

Field = tuple[int, int | bytes]


def named(assignment: bytes, modules: Sequence[bytes]) -> list[str]:
    """The largest temporaries, none of which shares its place, as ``f32[16,64,64] 262,144 bytes (fusion.3)``.

    Several arrays may use one place, one after another; the largest of them is named. The assignment has no times. But
    a place exists because what lies beside it was alive, so these arrays make the memory as large as it is.

    Args:
        assignment: a serialized ``BufferAssignmentProto``; b"" if the compiler gives none.
        modules: serialized ``HloModuleProto``, which name what an instruction makes.

    Returns:
        At most `MOST` names, largest first; [] if there is no assignment.
    """
    if not assignment or sum(map(len, modules)) > LARGEST:
        return []
    defined: dict[int, tuple[int, list[int]]] = {}
    placed: list[tuple[int, int, int]] = []
    for number, value in _fields(assignment):
        parts = list(_fields(_bytes(value)))
        if number == 1:
            place = list(_fields(_bytes(dict(parts).get(3, b""))))
            index = [step for key, part in place if key == 3 for step in _numbers(part)]
            defined[_int(dict(parts).get(1, 0))] = _int(dict(place).get(4, 0)), index
        elif number == 3 and not any(dict(parts).get(key) for key in NOT_TEMPORARY):
            of_one = [dict(_fields(_bytes(part))) for key, part in parts if key == 9]
            one = [(_int(each.get(3, 0)), _int(each.get(2, 0)), _int(each.get(1, 0))) for each in of_one]
            placed = max(placed, one, key=lambda each: sum(size for size, *_ in each))
    made = {key: told for module in modules for key, told in _instructions(module)}
    largest: list[tuple[int, int, int]] = []
    for size, offset, buffer in sorted(placed, key=lambda each: (-each[0], each[1], each[2])):
        if len(largest) < MOST and all(offset >= at + n or at >= offset + size for n, at, _ in largest):
            largest.append((size, offset, buffer))
    found = []
    for size, _, buffer in largest:
        instruction, index = defined.get(buffer, (0, []))
        found.append(_told(size, *made.get(instruction, ("", b"")), index))
    return found


def _instructions(module: bytes) -> Iterator[tuple[int, tuple[str, bytes]]]:
    """(id, (name, shape)) of every instruction: an id in a buffer assignment holds that of the computation above it."""
    for number, value in _fields(module):
        if number != 3:
            continue
        computation = list(_fields(_bytes(value)))
        above = next((_int(part) for key, part in computation if key == 5), 0)
        for key, part in computation:
            if key == 2:
                one = dict(_fields(_bytes(part)))
                place = _int(one.get(35, 0)) & 0xFFFFFFFF
                yield above << 32 | place, (_bytes(one.get(1, b"")).decode(), _bytes(one.get(3, b"")))


def _told(size: int, name: str, shape: bytes, index: Sequence[int]) -> str:
    parts = list(_fields(shape))
    for step in index:
        inner = [_bytes(part) for key, part in parts if key == 4]
        parts = list(_fields(inner[step])) if step < len(inner) else []
    kind = next((_int(part) for key, part in parts if key == 2), 0)
    dims = [extent for key, part in parts if key == 3 for extent in _numbers(part)]
    array = f"{KINDS[kind]}[{','.join(map(str, dims))}] " if kind in KINDS else ""
    return f"{array}{size:,} bytes" + (f" ({name})" if name else "")


def _fields(message: bytes) -> Iterator[Field]:
    """(number, value) of each field: an int for a varint, bytes for everything else."""
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if kind == 2:
            length, at = _varint(message, at)
        else:
            length = {1: 8, 5: 4}[kind]
        yield key >> 3, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _numbers(part: int | bytes) -> list[int]:
    """The numbers of a repeated field, packed or one by one."""
    if isinstance(part, int):
        return [part]
    found, at = [], 0
    while at < len(part):
        value, at = _varint(part, at)
        found.append(value)
    return found


def _int(value: int | bytes) -> int:
    return value if isinstance(value, int) else 0


def _bytes(value: int | bytes) -> bytes:
    return value if isinstance(value, bytes) else b""
