"""What both frameworks agree on: values of options, and how long blocks are."""

from __future__ import annotations

import math
from typing import Any

from gradgate.references.contract import IllegalOption

PREFIX_SUMS = ("explicit", "iterative", "block")
TERMS = ("all", "key", "query", "suffix")
"""What of the printed block backward is read literally."""
LONGEST_BLOCK = 64
"""The paper's choice (App. B)."""


def block_size(prefix_sum: str, tokens: int) -> int:
    """Tokens per block of a slice: 1, or of ``block`` √n rounded up, at most 64.

    √n keeps what a block holds, c·D1 numbers, small beside the slice's n tokens where 64 would be most of the slice.
    """
    return 1 if prefix_sum == "iterative" else min(LONGEST_BLOCK, math.isqrt(max(tokens, 1) - 1) + 1)


def check_prefix_sum(value: Any) -> str:
    """`value`, if it names a way to compute prefix sums.

    Raises:
        IllegalOption: it does not; states the legal values.
    """
    if isinstance(value, str) and value in PREFIX_SUMS:
        return value
    raise IllegalOption(f"prefix_sum must be explicit, iterative or block, not {value!r}")


def check_term(value: Any) -> str:
    """`value`, if it is one of TERMS.

    Raises:
        IllegalOption: it is not; states the legal values.
    """
    if isinstance(value, str) and value in TERMS:
        return value
    raise IllegalOption(f"term must be all, key, query or suffix, not {value!r}")
