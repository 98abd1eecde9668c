"""The arrays that make the memory as large as it is are named, in both frameworks."""

from __future__ import annotations

from typing import Any

import pytest

from gradgate.hw_profiles import alive


def test_what_a_scan_keeps_for_its_backward_pass_is_named(jax: Any) -> None:
    from gradgate.hw_profiles.compile import measure

    def loss(w: Any, x: Any) -> Any:
        kept, _ = jax.lax.scan(lambda h, _: (jax.numpy.tanh(h @ w), None), x, None, length=10)
        return (kept**2).sum()

    arguments = (jax.ShapeDtypeStruct((64, 64), "float32"), jax.ShapeDtypeStruct((32, 64), "float32"))
    found = measure(jax.value_and_grad(loss), arguments, "cpu", use_cache=False)
    assert found.status == "measured", found.reason
    assert len(found.alive) == alive.MOST
    assert all(one.startswith("f32[10,32,64] 81,920 bytes (") for one in found.alive)
    nothing = measure(lambda w: w + 1, arguments[:1], "cpu", use_cache=False)
    assert (nothing.temp_bytes, nothing.alive) == (0, ())
    again = type(found).from_json(found.to_json())
    assert again == found


def test_the_largest_tensors_of_the_peak_are_named_with_their_operations(torch: Any) -> None:
    from gradgate.hw_profiles.torch_memory import peak

    def program(x: Any) -> Any:
        wide = x[:, None] * torch.ones(32)
        small = wide.sum(1)
        del wide
        return small.double() + 1

    found = peak(program, (torch.zeros(64),))
    assert (
        found.alive
        == (
            "float32[64,32] 8,192 bytes (aten::mul)",
            "float32[64] 256 bytes (aten::sum)",
            "float32[32] 128 bytes (aten::ones)",
        )[: len(found.alive)]
    )
    assert found.held_bytes == 256
    assert not any("given" in one for one in found.alive), "what is passed in is not the program's"


def test_what_shares_a_place_is_named_once_and_a_compiler_that_does_not_tell_names_nothing() -> None:
    assert alive.named(b"", [b""]) == []
    buffers = {1: (0, 100), 2: (50, 80), 3: (100, 60), 4: (160, 8)}  # number -> (offset, size): 2 overlaps 1 and 3
    assigned = b"".join(field(9, field(1, key) + field(2, at) + field(3, size)) for key, (at, size) in buffers.items())
    assert alive.named(field(3, assigned), []) == ["100 bytes", "60 bytes", "8 bytes"]
    assert alive.named(field(3, assigned + field(7, 1)), []) == [], "a result is no temporary"


def field(number: int, value: int | bytes) -> bytes:
    """A field of a protobuf message."""
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3) + varint(value)


def varint(value: int) -> bytes:
    more = value >> 7
    return bytes([value & 127 | 128]) + varint(more) if more else bytes([value])


@pytest.mark.parametrize("value", [0, 127, 128, 300, 2**40])
def test_numbers_are_read_as_protobuf_writes_them(value: int) -> None:
    assert list(alive._fields(field(5, value))) == [(5, value)]
