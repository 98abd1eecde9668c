"""Whether steps of an optimiser can be taken back: words for each reason why not."""

from __future__ import annotations

import math
from typing import Any

from gradgate.references.bilevel.inner.pairs import Adam, Clip, HeavyBall, parted
from gradgate.references.contract import UsageError

INVERTIBLE = {HeavyBall: "momentum", Adam: "adam"}
"""Optimiser whose steps can be taken back -> its name."""
BITS = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}
"""Dtype -> the bits of its significand."""


def check(loop: Any, optimiser: Any) -> None:
    """Check that the steps of a `Loop` can be taken back.

    Args:
        loop: the loop over given arrays.
        optimiser: its (init, update) pair.

    Raises:
        UsageError: no inverse of the optimiser is known, the dtypes of θ and η differ, υ_0 is another optimiser's, or
            digits would be lost.
    """
    before, pair = parted(optimiser)
    others = [part for part in before if not isinstance(part, Clip)]
    others += [] if isinstance(pair, tuple(INVERTIBLE)) else [pair]
    if others:
        told = type(others[0]).__name__ + (" in a chain" if before else "")
        raise UsageError(
            f"checkpointing='inversion' takes steps back, and no inverse of this optimiser ({told}) is known, "
            "since the numbers and the order of its steps cannot be read from it: use "
            f"sgd(learning_rate, momentum), adam(learning_rate) or adamw(learning_rate) of "
            f"gradgate.in_{loop.backend}, alone or in its "
            "chain(clip_by_global_norm(…), …); or checkpointing='logarithmic', which needs no inverse"
        )
    name, numbers = "sgd", {"momentum": getattr(pair, "momentum", None)}
    if isinstance(pair, Adam):
        name, numbers = "adam", {"b1": pair.b1, "b2": pair.b2}
    for number, value in numbers.items():
        if isinstance(value, (int, float)) and not 0 < value < 1:
            raise UsageError(
                f"the step of {name} with {number} {value} cannot be taken back: {number} must lie between 0 and "
                "1; or use checkpointing='logarithmic', which needs no inverse"
            )
    _check_state(loop, optimiser)
    kinds = {str(leaf.dtype) for leaves in (loop.flat["theta"], *loop.params.values()) for leaf in leaves}
    if len(kinds) > 1:
        raise UsageError(
            f"checkpointing='inversion' needs θ and η of one dtype, not {' and '.join(sorted(kinds))}: cast them, "
            "or use checkpointing='logarithmic'"
        )
    if isinstance(pair, Adam):
        check_digits(loop.steps, pair, kinds.pop())


def check_digits(steps: int, pair: Adam, dtype: str) -> None:
    """Check that what is taken back keeps the digits of its dtype.

    A step back divides the moments by b1 and b2, and their errors, too. Double words have twice the bits of a
    float, so T steps keep the digits if log2(1/b)·T is not above its bits. And a parameter may be taken back to a
    neighbouring float. Where the first gradients are small, that changes v_1 much, and the derivative of √v_1
    may have no right digit.

    Raises:
        UsageError: T is too large, or eps_root is 0 in a dtype below float64.
    """
    bits = next(bits for name, bits in BITS.items() if dtype.endswith(name))
    smallest = min((b for b in (pair.b1, pair.b2) if isinstance(b, (int, float))), default=1.0)
    most = math.inf if smallest == 1 else int(bits / -math.log2(smallest))
    if steps > most:
        raise UsageError(
            f"{steps} steps of adam with b1 or b2 {smallest} cannot be taken back in {dtype}, since digits "
            f"are lost after {most}: take fewer, a wider dtype, or checkpointing='logarithmic', which needs no inverse"
        )
    if bits < BITS["float64"] and isinstance(pair.eps_root, (int, float)) and pair.eps_root == 0:
        raise UsageError(
            f"steps of adam with eps_root 0 cannot be taken back in {dtype}, because the derivative of √v may lose "
            "all digits: give adam(…, eps_root=1e-8), take float64, or checkpointing='logarithmic'"
        )


def _check_state(loop: Any, optimiser: Any) -> None:
    """Check the structure of a given υ_0 against that of the optimiser's own start."""
    if loop.state is None:
        return
    own = optimiser.init(loop.asked.frame.unflatten(loop.structure["theta"], loop.flat["theta"]))
    if loop.asked.frame.flatten(own)[1] != loop.asked.frame.flatten(loop.state)[1]:
        raise UsageError("state is no state of this optimiser; legal: a tree such as optimiser.init(theta) returns")
