"""One quantity over a sweep of sizes, the law fitted to it, and both in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gradgate.hw_profiles.fit import FitError, FittedLaw, fit

WORDS = {
    "temp_bytes": "temp",
    "required_bytes": "total",
    "argument_bytes": "arguments",
    "output_bytes": "outputs",
    "peak_bytes": "peak",
    "flops": "FLOPs",
}

LEAST = 0.5
"""Bytes or FLOPs: a smaller constant is what rounding leaves. Neither it nor one below the law's grain is printed."""


@dataclass(frozen=True)
class Series:
    """Measured values of a quantity over sizes, and their law.

    Attributes:
        quantity: a field of `Measurement`, in bytes or FLOPs.
        variable: the Spec field that was swept.
        letter: the letter of this field in the law.
        sizes, values: what was measured, smallest size first.
        law: the fitted law; None if none could be fitted, or it is not reliable.
        problem: a sentence that says why there is no law; "" if there is one.
        exponents: the smallest and largest exponent when any one size is left out; None if nothing was fitted.
        name: distinguishes this series from others of the same claim.
    """

    quantity: str
    variable: str
    letter: str
    sizes: tuple[float, ...]
    values: tuple[float, ...]
    law: FittedLaw | None
    problem: str = ""
    exponents: tuple[float, float] | None = None
    name: str = ""

    @classmethod
    def of(
        cls, quantity: str, variable: str, letter: str, points: Sequence[tuple[float, float]], name: str = ""
    ) -> Series:
        """Fit (size, value) points. If they are too few, or do not follow one law, `problem` says so."""
        points = sorted(points)
        sizes, values = tuple(size for size, _ in points), tuple(value for _, value in points)
        law, problem, exponents = None, "", None
        try:
            law = fit(sizes, values, quantity)
            exponents = law.exponent_range
        except FitError as error:
            problem = f"no law: {error}"
        if law is not None and not law.reliable:
            problem = law.doubt
            law = None
        return cls(quantity, variable, letter, sizes, values, law, problem, exponents, name)

    @property
    def words(self) -> str:
        """The law in words, such as ``temp ≈ 1.2 MB + 52 kB·T^1.00``, or why there is none."""
        if self.law is None:
            return self.problem
        what = WORDS.get(self.quantity, self.quantity)
        constant = amount(self.law.constant, self.quantity)
        if self.law.exponent == 0:
            return f"{what} ≈ {constant}, whatever {self.letter}"
        grows = f"{amount(self.law.coefficient, self.quantity)}·{self.letter}^{self.law.exponent:.2f}"
        known = abs(self.law.constant) >= max(self.law.grain, LEAST)
        return f"{what} ≈ {constant} + {grows}" if known else f"{what} ≈ {grows}"

    @property
    def span(self) -> str:
        """Such as ``T = 64 … 4096``."""
        return f"{self.letter} = {self.sizes[0]:g} … {self.sizes[-1]:g}" if self.sizes else "no size"

    def to_dict(self) -> dict[str, Any]:
        """The series in plain JSON types. The parts of the law are under ``law``, which is None if there is no law."""
        fields = asdict(self)
        fields["law"] = asdict(self.law) if self.law is not None else None
        return fields | {"words": self.words}


def amount(value: float, quantity: str) -> str:
    """A figure with its unit, in three digits and powers of 1000.

    >>> amount(1_234_567, "temp_bytes"), amount(52_000, "flops"), amount(12, "temp_bytes")
    ('1.23 MB', '52 kFLOP', '12 B')
    """
    unit, size, prefix = ("FLOP" if quantity == "flops" else "B"), abs(value), ""
    for larger in "kMGTP":
        if size < 999.5:
            break
        size, prefix = size / 1000, larger
    return f"{'-' if value < 0 else ''}{size:.3g} {prefix}{unit}"
