"""The law that a sweep follows: the exponent with which bytes (or FLOPs) grow with a size, and how reliable it is.

The model is ``bytes = constant + coefficient · size ** exponent``; parameters, workspaces and the like are the
constant. The fit minimises the sum of absolute relative residuals, so one size at which a compiler pads or decides
differently does not change the fit, and data that follow the model exactly give exactly its parameters.

Claims, figures of papers, plots and ``gradgate memory`` all use `fit`. Every constant that the result of a fit depends
on is in this module, with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import combinations
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

# What a sweep must have.
MIN_POINTS = 5
"""Three points for the three unknowns, one point to check them, and one point that may be an outlier."""
MIN_SPAN = 4.0
"""Largest size over smallest size. Over a factor of 4, an exponent that is off by `TOLERANCE` is off by 15% in bytes,
five times `MAX_OFF`."""
GRAIN = 4096.0
"""Bytes: a rise of at most this much over a whole sweep counts as none. Alignment and padding alone can add some
hundred bytes to each of a few buffers. The grain is absolute, so that a large constant does not hide slow growth."""
EXACT = ("flops", "times", "residual_bytes", "compiled_residual_bytes")
"""Quantities without a grain: FLOPs and the bytes of what is kept between two passes are counted exactly, and the
quotient of two quantities has no unit."""

# Which exponents are sought.
MIN_EXPONENT = 0.02
"""Over the narrowest sweep, a factor of 4, this exponent is a rise of 2.8%, which is below `MAX_OFF`."""
MAX_EXPONENT = 4.0
"""One whole power above the steepest that any paper claims, n³."""
MIN_CONSTANT = -0.25
"""The least constant, relative to the smallest value. Lower-order terms may be negative, but the memory of an empty
problem may not. Without this bound, logarithmic growth would be fitted by a tiny exponent with a huge negative
constant."""

# When the data follow one law.
MAX_OFF = 0.03
"""The largest relative residual that is never an outlier. The choices of compilers change bytes by a few percent (H100,
backprop of state_space: 71.8 kB per token at T = 256, 65.4 kB at T = 16384), and a law must hold in spite of that. 3%
at one end of even the narrowest sweep, a factor of 4, changes the exponent by ln 1.03 / ln 4 = 0.02, a fifth of
`TOLERANCE`."""
OUTLIER = 10.0
"""The residual of an outlier is also larger than this many times the median residual: for normal residuals, that is 6.7
standard deviations."""
MAX_OUTLIERS = 1
"""A sweep may have as few as five points; two outliers among five points are a second regime."""
MAX_SPREAD = 0.2
"""The largest spread of the exponents that are fitted with one point left out. It is the width of a claimed exponent ±
`TOLERANCE`: if one point changes the exponent by more, that point decides the verdict."""

# What a law may be used for.
TOLERANCE = 0.1
"""How far a measured exponent may be from the claimed one, unless the claim says otherwise. It is five times the change
that `MAX_OFF` causes, and a fifth of the distance between √ and linear."""
LINEAR = 0.15
"""How far an exponent may be from 1 if the claim is that n devices divide linear growth. It is 1.5 times `TOLERANCE`:
each of n devices has an nth of the growth, so the constant part and the grain have more weight. The nearest other law,
√, is 0.5 away. `adjoint_distributed` of state_space (cpu, 8 to 128 layers) has the exponent 1.00 on 1 device and on 4
devices."""
SHARE_TOLERANCE = 0.1
"""How far the ratio of the growth on one device to the growth on each of n devices may be from n, relative to n, unless
the claim says otherwise. If one of four devices stays idle, the ratio is 3, which is 25% off."""
MAX_CHANGE = 0.05
"""The largest relative change over a sweep, if the claim is that bytes do not depend on a size. It is above `MAX_OFF`;
over the narrowest sweep it is an exponent of ln 1.05 / ln 4 = 0.035, a third of `TOLERANCE`."""
LEAST_PER_ELEMENT = 1 / 16
"""The least number of bytes per element from which gradgate concludes that there is an array whose size is the product
of two dims. The smallest such array, an array of bits, has 1/8; what alignment and padding add, some kilobytes over
960² elements, is below 1/100."""
MAX_EXTRAPOLATION = 1024.0
"""Beyond this many times the largest measured size, a law is not trusted: there, an exponent that is off by 0.02 gives
bytes that are off by 15%."""

# Arithmetic.
_GRID = 101  # exponents tried in one round; the next round is between the two neighbours of the best one
_FINE = 1e-10  # width of the last grid
_ROUNDING = 1e-9  # relative growth that rounding alone can cause
_SMALL = 1e-3  # of the largest value: the residuals of smaller values are relative to this

Floats = NDArray[np.float64]


class FitError(ValueError):
    """A sweep that cannot show a law: it has too few sizes, is too narrow, or has values that are not allowed."""


@dataclass(frozen=True)
class FittedLaw:
    """``bytes = constant + coefficient · size ** exponent``, fitted.

    Attributes:
        exponent: 0 if the bytes do not grow.
        constant, coefficient: bytes, and bytes per size ** exponent.
        residual: median of the absolute difference between measured and fitted bytes, relative to the measured bytes.
        exponent_range: smallest and largest exponent of the fits that leave out one point.
        largest: the largest size of the sweep.
        outliers: the sizes whose residual is far above the other residuals and above `MAX_OFF`.
    """

    exponent: float
    constant: float
    coefficient: float
    residual: float
    exponent_range: tuple[float, float]
    largest: float
    outliers: tuple[float, ...] = ()

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Self:
        """Rebuild the law from the result of `dataclasses.asdict`, also after a round trip through JSON."""
        known: dict[str, Any] = {item.name: row[item.name] for item in fields(cls) if item.name in row}
        lists = {name: tuple(value) for name, value in known.items() if isinstance(value, list)}
        return cls(**{**known, **lists})

    @property
    def reliable(self) -> bool:
        """Whether the data follow one law: at most one outlier, and no single point decides the exponent.

        A law that is not reliable neither upholds nor refutes a claim: there is a change of regime between the sizes,
        such as temporaries that no longer fit in a TPU's on-chip memory.
        """
        low, high = self.exponent_range
        return len(self.outliers) <= MAX_OUTLIERS and high - low <= MAX_SPREAD

    @property
    def doubt(self) -> str:
        """Why the law is not reliable, as a sentence; "" if it is reliable."""
        if self.reliable:
            return ""
        low, high = self.exponent_range
        return (
            f"no single law: the exponent is {low:.2f} to {high:.2f} depending on which size is left out, with "
            f"outliers at {', '.join(f'{size:g}' for size in self.outliers) or 'no size'}; the sizes straddle a "
            "change of regime, try larger ones"
        )

    @property
    def linear(self) -> bool:
        """Whether the growth is linear, to within `LINEAR`."""
        return abs(self.exponent - 1) <= LINEAR

    def predict(self, size: float) -> float:
        """Bytes at a size."""
        return float(self.constant + self.coefficient * size**self.exponent)

    def largest_size(self, memory_bytes: float) -> float | None:
        """Return the size at which the law reaches ``memory_bytes``, and 0 if no size fits.

        None if the law reaches it only beyond `MAX_EXTRAPOLATION` times the largest measured size, or never.
        """
        if self.constant > memory_bytes:
            return 0.0
        if self.predict(self.largest * MAX_EXTRAPOLATION) <= memory_bytes:
            return None
        return float(((memory_bytes - self.constant) / self.coefficient) ** (1 / self.exponent))


@dataclass(frozen=True)
class Independence:
    """Whether bytes stay the same while a size grows.

    Attributes:
        holds: whether the growth is within the tolerance.
        growth: (bytes at the largest sizes − bytes at the smallest) / bytes at the smallest.
        sentence: this result in words.
    """

    holds: bool
    growth: float
    sentence: str


def fit(sizes: Sequence[float], values: Sequence[float], quantity: str) -> FittedLaw:
    """Fit the law that a geometric sweep follows.

    Args:
        sizes: at least 5 different positive sizes that span a factor of 4 or more; factors of 2 suit best.
        values: the quantity at each size; none negative.
        quantity: what the values are. For a quantity in `EXACT`, every rise counts; for others, which are bytes, only a
            rise above `GRAIN`.

    Returns:
        The law, its exponent between 0 and `MAX_EXPONENT`, its constant at least `MIN_CONSTANT` · min(values).

    Raises:
        FitError: the sweep has too few sizes or is too narrow, or values are negative or not finite.

    Cost: some ten milliseconds.
    """
    x, y = _checked(sizes, values)
    grain = 0.0 if quantity in EXACT else GRAIN
    # The unit of the size can be chosen freely: with the largest size as 1, no power overflows.
    unit = x.max()
    exponent, constant, slope = _best(x / unit, y, grain)
    ranges = [_best(np.delete(x, i) / unit, np.delete(y, i), grain)[0] for i in range(len(x))]
    coefficient = slope / unit**exponent
    off = np.abs(y - constant - slope * (x / unit) ** exponent) / _scale(y)
    residual = float(np.median(off))
    outliers = x[off > max(OUTLIER * residual, MAX_OFF)]
    return FittedLaw(
        exponent=exponent,
        constant=constant,
        coefficient=float(coefficient),
        residual=residual,
        exponent_range=(min(ranges), max(ranges)),
        largest=float(unit),
        outliers=tuple(outliers.tolist()),
    )


def surely_faster(exponent_range: tuple[float, float], claimed: float, tolerance: float = TOLERANCE) -> bool:
    """Whether values grow faster than claimed whichever size is left out, even if they follow no single law.

    Args:
        exponent_range: smallest and largest exponent of the fits that leave out one size.
        claimed: the claimed exponent.
        tolerance: of the claim; `MAX_SPREAD`, by which one size may change an exponent, is added to it.
    """
    return exponent_range[0] - claimed > tolerance + MAX_SPREAD


def does_not_depend(sizes: Sequence[float], values: Sequence[float], tolerance: float = MAX_CHANGE) -> Independence:
    """Whether bytes are the same at every size, up to a relative tolerance over the whole sweep.

    One outlier is ignored: the result is the smallest growth of all sweeps that leave out one point.

    Raises:
        FitError: as ``fit``.
    """
    x, y = _checked(sizes, values)
    growth = min((_growth(np.delete(x, i), np.delete(y, i)) for i in range(len(x))), key=abs)
    holds = abs(growth) <= tolerance
    verb = "do not depend on the size" if holds else "depend on the size"
    span = f"from {x.min():g} to {x.max():g}"
    sentence = f"bytes {verb}: they change by {growth:+.2%} {span}, tolerance {tolerance:.2%}"
    return Independence(bool(holds), growth, sentence)


def _checked(sizes: Sequence[float], values: Sequence[float]) -> tuple[Floats, Floats]:
    x, y = np.asarray(sizes, float), np.asarray(values, float)
    if x.shape != y.shape or x.ndim != 1:
        raise FitError(f"one value per size is needed; got {x.size} sizes and {y.size} values")
    if not (np.isfinite(x).all() and np.isfinite(y).all() and (x > 0).all() and (y >= 0).all()):
        raise FitError("sizes must be positive, values must not be negative, and all must be finite")
    different = np.unique(x).size
    if different < MIN_POINTS:
        raise FitError(f"{different} different sizes are too few to fit a law: measure at least {MIN_POINTS}")
    if x.max() / x.min() < MIN_SPAN:
        raise FitError(f"sizes from {x.min():g} to {x.max():g} are too close: span a factor of {MIN_SPAN:g} or more")
    order = np.argsort(x)
    return x[order], y[order]


def _growth(x: Floats, y: Floats) -> float:
    extremes = np.array([y[y.argmax()] - y[0], y[y.argmin()] - y[0], y[-1] - y[0]])
    change = float(extremes[np.abs(extremes).argmax()])
    if change == 0:
        return 0.0
    return change / float(y[0]) if y[0] else float("inf")


def _scale(y: Floats) -> Floats:
    """Return what residuals are relative to; a value of 0 has no more weight than other small values."""
    return np.maximum(y, _SMALL * y.max()) if y.max() > 0 else np.ones_like(y)


def _best(x: Floats, y: Floats, grain: float) -> tuple[float, float, float]:
    """Exponent, constant and slope with the least absolute relative residual."""
    level = float(np.median(y))
    tolerance = max(grain, _ROUNDING * level)
    if np.sum(np.abs(y - level) > tolerance) <= 1:  # flat, apart from at most one outlier
        return 0.0, level, 0.0
    flat_cost = float(np.sum(np.abs(y - level) / _scale(y)))
    low, high = MIN_EXPONENT, MAX_EXPONENT
    while True:
        grid = np.linspace(low, high, _GRID)
        costs, constants, slopes = _lines(x ** grid[:, None], y)
        best = int(costs.argmin())
        if high - low < _FINE:
            break
        low, high = float(grid[max(0, best - 1)]), float(grid[min(_GRID - 1, best + 1)])
    exponent, cost, constant, slope = (float(a[best]) for a in (grid, costs, constants, slopes))
    rise = abs(slope) * float(np.ptp(x**exponent))
    if slope <= 0 or rise <= tolerance or flat_cost <= cost:
        return 0.0, level, 0.0
    return exponent, constant, slope


def _lines(z: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
    """Least absolute relative residual of ``constant + slope · z``, for each row of z: costs, constants, slopes.

    The constant is at least MIN_CONSTANT · min(y). The optimum passes through two points, or through one with the
    constant at its bound, so trying all is exact.
    """
    first, second = (np.array(side) for side in zip(*combinations(range(z.shape[1]), 2), strict=True))
    apart = z[:, second] - z[:, first]
    # Two points of equal z (sizes that so small a power does not separate) define no line; the lines with the constant
    # at its bound replace theirs.
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = (y[second] - y[first]) / apart
        constants = y[first] - slopes * z[:, first]
    bound = MIN_CONSTANT * y.min()
    legal = (apart != 0) & (constants >= bound)
    slopes = np.concatenate([np.where(legal, slopes, 0), (y - bound) / z], axis=1)
    constants = np.concatenate([np.where(legal, constants, np.inf), np.full(z.shape, bound)], axis=1)
    off = np.abs(constants[..., None] + slopes[..., None] * z[:, None, :] - y) / _scale(y)
    costs = off.sum(axis=2)
    best = costs.argmin(axis=1)[:, None]
    cost, constant, slope = (np.take_along_axis(each, best, axis=1)[:, 0] for each in (costs, constants, slopes))
    return cost, constant, slope
