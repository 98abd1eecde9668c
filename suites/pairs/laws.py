"""Promises of a pair about bytes and work: `gradgate.grows` and `gradgate.at_most`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gradgate.hw_profiles import fit
from gradgate.references.contract import Claim, UsageError, unknown
from gradgate.references.law_kinds import Growth, OfReference, Over, Within

QUANTITIES = {
    "temp_bytes": "temporaries of the whole gradient, of XLA on a profile or of PyTorch",
    "peak_bytes": "the peak of the whole gradient",
    "residual_bytes": "what is kept between the forward and the backward pass",
    "compiled_residual_bytes": "the same under torch.compile, at any size and without a device (PyTorch)",
    "compiled_peak_bytes": "Inductor's estimate of the peak of the larger pass, without its inputs (PyTorch)",
    "flops": "arithmetic of the whole gradient",
}
SIZES = (1, 2, 4, 8, 16)
"""The sizes of a sweep, as multiples of the smallest."""
SMALLEST = 64
"""The size at which a sweep begins by default."""


def grows(
    quantity: str = "temp_bytes",
    *,
    never: str = "",
    sizes: Mapping[str, Sequence[int]] | None = None,
    at: Mapping[str, Any] | None = None,
    **exponents: float,
) -> tuple[Claim, ...]:
    """The promise that a quantity grows with a dim no faster than a power of it.

    Args:
        quantity: ``temp_bytes``, ``peak_bytes``, ``residual_bytes``, ``compiled_residual_bytes``,
            ``compiled_peak_bytes`` or ``flops``.
        never: a product of two dims, such as ``"T*V"``, that must not appear: no array of that size is made.
        sizes: dim -> at least 5 sizes that span a factor of 4 or more; by default 64 … 1024.
        at: sizes of other dims, values of options and other Spec fields at which the sweep is made.
        exponents: dim -> the power: ``T=1`` is linear, ``T=0`` constant, ``T=0.5`` a square root.

    Returns:
        One claim for each dim, and one for the product.

    Raises:
        UsageError: the quantity is unknown, no dim is named, a power or sizes cannot be fitted by a law, or a product
            is not of two dims.

    Cost: one compilation of the gradient for each size and profile in JAX, one run in PyTorch; four for a product.
    Residual bytes are traced in JAX, and never run.

    Not for: small sizes, at which alignment and padding outweigh the law; the claim is then inapplicable. In PyTorch
    the bytes are those of eager CPU tensors, not of a caching allocator.

    Example::

        claims=[grows("temp_bytes", T=1, never="T*V")]
    """
    if quantity not in QUANTITIES:
        raise unknown("quantity", quantity, QUANTITIES)
    if not exponents and not never:
        raise UsageError(f"grows({quantity!r}, …) names a dim, as in T=1, or a product, as in never='T*V'")
    for name, exponent in exponents.items():
        number = isinstance(exponent, (int, float)) and not isinstance(exponent, bool)
        if not number or not 0 <= exponent <= fit.MAX_EXPONENT:
            raise UsageError(
                f"{name}={exponent!r} is no power: a number of 0 to {fit.MAX_EXPONENT:g}, such as 1 for linear growth"
            )
    chosen = {name: _sizes(name, values) for name, values in (sizes or {}).items()}
    usual = tuple(SMALLEST * factor for factor in SIZES)
    found = []
    for name, exponent in exponents.items():
        law = Growth(quantity, Over(name, chosen.get(name, usual)), exponent, Within("at most"), dict(at or {}))
        statement = f"{quantity} grow no faster than {name}^{exponent:g}"
        found.append(Claim(f"{quantity}_{name}", law.check, statement, "declared", law=law))
    if never:
        names = [part.strip() for part in never.split("*")]
        if len(names) != 2 or names[0] == names[1]:
            raise UsageError(f"never is a product of two dims, such as 'T*V', not {never!r}")
        first, second = (Over(name, chosen.get(name, usual)) for name in names)
        law = Growth(quantity, first, 1.0, Within("at most"), dict(at or {}), never=second)
        statement = f"{quantity} have no part that grows like {names[0]}·{names[1]}"
        found.append(Claim(f"{quantity}_never_{names[0]}_{names[1]}", law.check, statement, "declared", law=law))
    return tuple(found)


def _sizes(name: str, values: Sequence[int]) -> tuple[int, ...]:
    """The sizes of a sweep, in order.

    Raises:
        UsageError: too few, or too close together, for a law to be fitted.
    """
    whole = all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in values)
    found = tuple(sorted(set(values))) if whole else ()
    if len(found) < fit.MIN_POINTS or found[-1] < fit.MIN_SPAN * found[0]:
        raise UsageError(
            f"sizes of {name} are at least {fit.MIN_POINTS} whole numbers that span a factor of {fit.MIN_SPAN:g}, such "
            f"as (64, 128, 256, 512, 1024), not {values!r}"
        )
    return found


def at_most(quantity: str, *, of_reference: float, at: Mapping[str, Any] | None = None) -> tuple[Claim, ...]:
    """The promise that a quantity of the function is at most a share of the same quantity of the reference.

    Args:
        quantity: as in `grows`.
        of_reference: the share, such as 0.25.
        at: sizes of dims, values of options and other Spec fields at which both are measured; by default the largest
            dims that are declared, and the first value of every option.

    Raises:
        UsageError: the quantity is unknown, or the share is not a positive number.

    Cost: the function and the reference are measured once each.

    Not for: a promise about how bytes grow, which `grows` makes; a share of 0, which no function can keep.

    Example::

        claims=[at_most("residual_bytes", of_reference=0.25, at={"T": 4096})]
    """
    if quantity not in QUANTITIES:
        raise unknown("quantity", quantity, QUANTITIES)
    if isinstance(of_reference, (bool, str)) or not 0 < of_reference < math.inf:
        raise UsageError(f"of_reference is a positive share, such as 0.25, not {of_reference!r}")
    law = OfReference(quantity, of_reference, dict(at or {}))
    statement = f"{quantity} are at most {of_reference:g} times the reference's"
    return (Claim(f"{quantity}_of_reference", law.check, statement, "declared", law=law),)
