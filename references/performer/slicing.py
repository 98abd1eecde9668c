"""What both frameworks share: values of options, and the length of blocks."""

from __future__ import annotations

import math
from typing import Any

from gradgate.references.contract import IllegalOption, UsageError

PREFIX_SUMS = ("explicit", "iterative", "matrix", "block")
TERMS = ("all", "key", "query", "suffix")
"""Which terms of the printed block backward are taken literally."""
LONGEST_BLOCK = 64
"""The paper's choice (App. B); also used for ``matrix``, because d and M are often 64."""


def block_size(prefix_sum: str, tokens: int) -> int:
    """Tokens per block of a slice, at most 64: 1 for ``iterative``, √n rounded up for ``block``, otherwise n.

    A block holds c·D1 numbers. With c = √n these are few compared with the slice's n tokens, even if 64 tokens would be
    most of the slice. ``matrix`` holds c² numbers per head, at most 64 for each of the slice's tokens.
    """
    if prefix_sum == "iterative":
        return 1
    return min(LONGEST_BLOCK, max(tokens, 1) if prefix_sum == "matrix" else math.isqrt(max(tokens, 1) - 1) + 1)


def check_prefix_sum(value: Any) -> str:
    """`value`, if it names a way to compute prefix sums.

    Raises:
        IllegalOption: it does not; the message states the legal values.
    """
    if isinstance(value, str) and value in PREFIX_SUMS:
        return value
    raise IllegalOption(f"prefix_sum must be explicit, iterative, matrix or block, not {value!r}")


def check_term(value: Any) -> str:
    """`value`, if it is one of TERMS.

    Raises:
        IllegalOption: it is not; the message states the legal values.
    """
    if isinstance(value, str) and value in TERMS:
        return value
    raise IllegalOption(f"term must be all, key, query or suffix, not {value!r}")


def check_reversible(residual: str) -> None:
    """Check that the layers of a problem can be undone.

    Raises:
        UsageError: they cannot; the message states what to do.
    """
    if residual != "reversible":
        raise UsageError(
            f"slim_reversible undoes reversible layers, and the problem has residual={residual!r}: build it with "
            f"residual='reversible', or call slim_checkpointed"
        )
