"""Problems with one long dim: sums over so many terms lose all digits in bfloat16 and float16.

A dim is lengthened although its declaration lists other sizes: these are sizes to try, and no bounds. `valid` has the
last word. A dim in whose length the reference's memory grows faster than linearly stays short.
"""

from __future__ import annotations

import functools
import math
from typing import Any, cast

from gradgate.hw_profiles.torch_memory import Refusal
from gradgate.references.contract import UsageError
from gradgate.suites.pairs.lowering import legal
from gradgate.suites.pairs.pair import Pair

LENGTHS = (2**16, 2**13, 2**11)
"""Sizes of a long dim; the first that is possible is taken. From 257 equal terms on, a sum in bfloat16 stands still."""
MOST_BYTES = 2**26
"""Most bytes of the inputs, and of what the reference keeps for its backward pass, in float32."""
PROBES = (64, 128)
"""Sizes at which the reference's memory is measured, to see how it grows."""


@functools.lru_cache(maxsize=8)
def long_sums(pair: Pair) -> tuple[dict[str, int], ...]:
    """The sizes of these problems, one for each dim that can be long.

    Cost: two forward passes of the reference at small sizes for each dim.
    """
    usual = {name: sizes[0] for name, sizes in pair.dims.items()}
    found = []
    for name in _summed(pair, usual):
        for length in LENGTHS:
            sizes = {**usual, name: length}
            if _possible(pair, sizes) and _bytes(pair, usual, name, length) <= MOST_BYTES:
                found.append(sizes)
                break
    return tuple(found)


def _summed(pair: Pair, usual: dict[str, int]) -> list[str]:
    """The dims that some gradient lacks, so that it is a sum over them; all dims if each gradient has all.

    A dim is in a gradient if its input grows with it.
    """
    found = []
    for name in pair.dims:
        twice = {**usual, name: 2 * usual[name] or 2}
        leaves = [draw for path, draw in pair.leaves.items() if path in pair.differentiated]
        if any(draw.count(twice) == draw.count(usual) for draw in leaves):
            found.append(name)
    return found or list(pair.dims)


def _possible(pair: Pair, sizes: dict[str, int]) -> bool:
    """Whether the dims make sense together; draws that need a long dim's size to be small do not."""
    return legal(pair, sizes) and 4 * pair.numbers({**sizes, **_options(pair)}) <= MOST_BYTES


def _options(pair: Pair) -> dict[str, object]:
    return {name: labels[0] for name, labels in pair.shared.items()}


def _bytes(pair: Pair, usual: dict[str, int], name: str, length: int) -> float:
    """About how many bytes the reference keeps at this length: what it keeps at two small ones, extrapolated."""
    kept = []
    for size in PROBES:
        sizes = {**usual, name: size}
        if not _possible(pair, sizes):
            return math.inf
        spec = pair.spec(dtype=pair.spec.widest, **cast(Any, sizes))
        try:
            kept.append(pair.residual_bytes(spec, {}, "reference"))
        except (Refusal, UsageError):
            return math.inf
    first, second = kept
    if not first:
        return 0.0
    return float(second * (length / PROBES[1]) ** max(1.0, math.log2(max(1, second) / first)))
