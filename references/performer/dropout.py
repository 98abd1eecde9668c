"""Dropout whose mask depends on the position, so that every slicing of a sequence is the same function.

The paper (§5) gives each slice its own seed and uses it twice, forward and backward. That is right for one chunk size,
but another chunk size then has another mask: the losses, and so the gradients, of two chunk sizes belong to two
functions, which are equal in distribution only. Here the bit for unit i of sequence b at position l, place p is a hash
of (seed, p, l, b, i) alone (a counter-based generator). Each slice, even of one token, computes its part of one mask
whenever it needs it, always the same, and stores none of it. In the paper's words, the seeds of slices are (seed, l).
"""

from __future__ import annotations

from typing import Any

BITS = 24


def scaled_mask(xp: Any, like: Any, rate: float, seed: Any, place: Any, start: Any) -> Any:
    """Zeros with probability `rate`, else 1/(1 − rate): the shape (n, batch, D) and dtype of `like`.

    Args:
        seed: () int32.
        place: number of the dropout layer.
        start: position of the first of the n tokens.

    The probability is a multiple of 2^−24; the bits are the same in every backend and dtype.
    """
    n, batch, width = like.shape

    def numbers(size: int) -> Any:
        return xp.arange(size, dtype=xp.int32)

    def single(number: Any) -> Any:  # has one axis: NumPy's scalars would warn of the overflow, which is intended
        return xp.reshape(xp.asarray(number, dtype=xp.int32), (1,))

    h = _mixed(single(seed) ^ _mixed(single(place)))
    h = _mixed(h ^ (numbers(n) + single(start)))
    h = _mixed(h[:, None] ^ (numbers(batch) * 40503 + 1))
    h = _mixed(h[..., None] ^ (numbers(width) * 2654435 + 1))
    kept = (h & (2**BITS - 1)) >= round(rate * 2**BITS)
    return xp.astype(kept, like.dtype) / (1.0 - rate)


def _mixed(h: Any) -> Any:
    """The finalizer of MurmurHash3 on int32, whose products wrap in all backends; shifts made logical by a mask."""
    for shift, factor in ((16, 0x85EBCA6B - 2**32), (13, 0xC2B2AE35 - 2**32), (16, None)):
        h = h ^ ((h >> shift) & (2 ** (32 - shift) - 1))
        h = h if factor is None else h * factor
    return h
