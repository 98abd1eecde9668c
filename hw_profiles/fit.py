"""The law that a sweep follows: the exponent with which bytes (or FLOPs) grow with a size, and how reliable it is.

The model is ``bytes = constant + coefficient · size ** exponent``; parameters, workspaces and the like are the
constant. Data that follow the model exactly give exactly its parameters, however small they are. Otherwise the fit
minimises the sum of absolute relative residuals, so one size at which a compiler pads or decides differently does not
change the fit.

Two questions need care, because compilers round every buffer up to a grain of 16, 64, 512 or 4096 bytes.

*Is a small rise a law or noise?* A law has three unknowns, so some law passes through any three points. If the other
n − 3 points were anywhere within the spread s of the data, one of them would be within δ of that law with a probability
of at most 2δ/s. There are n·(n−1)·(n−2)/6 choices of the three points, so noise follows some law to within δ with a
probability of at most ``n·(n−1)·(n−2)/6 · (2δ/s)^(n−3)``. A law is certain if this is below `CHANCE`. Exact data have
δ = 0, so they are a law at every size. With five points, δ is below s/200; with eight, below s/18. A small rise that no
law follows so closely is padding.

*Which exponents does rounding allow?* If every buffer is rounded up to a grain, then all values are multiples of it.
The grain is therefore at most the greatest common divisor of the values. If the law is not certain on the scale of that
grain, the data can be a law that was rounded up, so every exponent with which some law is within one grain above every
value is possible. All of these are in the law's range of exponents. If that range is wide, the sizes are too small.

Claims, figures of papers, plots and ``gradgate memory`` all use `fit`. Every constant that the result of a fit depends
on is in this module, with its reason.
"""

from __future__ import annotations

import math
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
GRAIN = 4096
"""Bytes: the largest grain to which a compiler rounds a buffer, a tile of TPUs. It is also the largest rise over a
whole sweep that padding alone may explain: some hundred bytes for each of a few buffers. It is absolute, so that a
large constant does not hide slow growth."""
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

CHANCE = 1e-3
"""The largest probability with which noise may follow a law as closely as the data do, if the law is to be certain."""

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
_FINEST = 1e-13  # width of the last interval in which the exponent of exact data is
_EPSILON = 4 * float(np.finfo(float).eps)  # relative error of a few operations in floats
_ROUNDING = 1e-9  # relative growth that rounding alone can cause
_FOLLOWED = 1e-6  # residuals of data that follow a law exactly, relative to the value and to the spread
_PLAIN = 4  # the exponent of exact data is a multiple of 1/4 if one such multiple explains them, too
_SMALL = 1e-3  # of the largest value: the residuals of smaller values are relative to this

Floats = NDArray[np.float64]
Law = tuple[float, float, float]
"""Exponent, constant and slope; the slope is of a size that is relative to the largest."""


class FitError(ValueError):
    """A sweep that cannot show a law: it has too few sizes, is too narrow, or has values that are not allowed."""


@dataclass(frozen=True)
class FittedLaw:
    """``bytes = constant + coefficient · size ** exponent``, fitted.

    Attributes:
        exponent: 0 if the bytes do not grow.
        constant, coefficient: bytes, and bytes per size ** exponent.
        residual: median of the absolute difference between measured and fitted bytes, relative to the measured bytes.
        exponent_range: smallest and largest exponent of the fits that leave out one point, and of the laws that
            explain the data up to the grain.
        largest: the largest size of the sweep.
        outliers: the sizes whose residual is far above the other residuals and above `MAX_OFF`; none if rounding
            explains all residuals.
        grain: bytes to which a law may have been rounded up to give all values; 0 if none was, or the law is finer.
    """

    exponent: float
    constant: float
    coefficient: float
    residual: float
    exponent_range: tuple[float, float]
    largest: float
    outliers: tuple[float, ...] = ()
    grain: float = 0.0

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
        if self.grain:
            return (
                f"no single law: the values are multiples of {self.grain:g} bytes and grow by few of them, so "
                f"exponents from {low:.2f} to {high:.2f} explain them; try larger sizes"
            )
        outliers = f", with outliers at {', '.join(f'{size:g}' for size in self.outliers)}" if self.outliers else ""
        return (
            f"no single law: the exponent is {low:.2f} to {high:.2f} depending on which size is left out{outliers}; "
            "the sizes straddle a change of regime, try larger ones"
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
        quantity: what the values are. For a quantity in `EXACT`, every rise counts. Others are bytes; there, a rise of
            at most `GRAIN` and `MAX_CHANGE` is none, unless the law is certain.

    Returns:
        The law, its exponent between 0 and `MAX_EXPONENT`. Its constant is at least `MIN_CONSTANT` · min(values) unless
        the data follow the law exactly.

    Raises:
        FitError: the sweep has too few sizes or is too narrow, or values are negative or not finite.

    Cost: some ten milliseconds, and less than one for data that follow a law exactly.
    """
    x, y = _checked(sizes, values)
    # The unit of the size can be chosen freely: with the largest size as 1, no power overflows.
    unit = float(x.max())
    z = x / unit
    followed = _followed(z, y)
    if followed is not None:
        exponent, constant, slope = followed
        return FittedLaw(exponent, constant, slope / unit**exponent, 0.0, (exponent, exponent), unit)
    law = exponent, constant, slope = _best(z, y)
    off = np.abs(y - _predicted(z, law))
    # At a bound of the exponents, another kind of law would follow the data better.
    inside = MIN_EXPONENT + _FINE < exponent < MAX_EXPONENT - _FINE
    certain = inside and _certain(off, float(np.ptp(y)))
    rests = [(np.delete(z, i), np.delete(y, i)) for i in range(len(x))]
    padded = [quantity not in EXACT and not certain and _padding(values) for _, values in rests]
    if any(padded):  # constant, apart from at most one outlier
        law = exponent, constant, slope = 0.0, float(np.median(y)), 0.0
        off = np.abs(y - constant)
        exponents = [0.0]
    else:
        exponents = [exponent, *(_best(*rest)[0] for rest in rests)]
    grain = 0.0 if quantity in EXACT or _padding(y) or _certain(off, _grain(y)) else _grain(y)
    rounded = _rounded(z, y, grain) if grain else []
    exponents += rounded
    grain = grain if rounded else 0.0
    return FittedLaw(
        exponent=exponent,
        constant=constant,
        coefficient=float(slope / unit**exponent),
        residual=_residual(y, off),
        exponent_range=(min(exponents), max(exponents)),
        largest=unit,
        outliers=() if rounded else _outliers(x, y, off),
        grain=grain,
    )


def negligible(values: Sequence[float] | Floats, quantity: str) -> bool:
    """Whether all changes of bytes over a sweep are as small as those of padding: at most `GRAIN` and `MAX_CHANGE`.

    For a quantity in `EXACT`, no change is negligible.
    """
    return quantity not in EXACT and _padding(np.asarray(values, float))


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


def _padding(y: Floats) -> bool:
    return float(np.ptp(y)) <= min(GRAIN, MAX_CHANGE * float(y.min()))


def _predicted(z: Floats, law: Law) -> Floats:
    exponent, constant, slope = law
    return constant + slope * z**exponent


def _residual(y: Floats, off: Floats) -> float:
    return float(np.median(off / _scale(y)))


def _outliers(x: Floats, y: Floats, off: Floats) -> tuple[float, ...]:
    least = max(OUTLIER * _residual(y, off), MAX_OFF)
    return tuple(x[off > least * _scale(y)].tolist())


def _certain(off: Floats, spread: float) -> bool:
    """Whether noise within `spread` would hardly ever follow a law as closely as residuals of at most max(off)."""
    n = len(off)
    return math.comb(n, 3) * (2 * float(off.max())) ** (n - 3) <= CHANCE * spread ** (n - 3)


def _grain(y: Floats) -> float:
    """The largest grain up to `GRAIN` of which all values are multiples; 0 if they are not whole numbers."""
    if not np.all(y == np.round(y)):
        return 0.0
    return float(math.gcd(GRAIN, *(int(value) for value in y)))


def _rounded(z: Floats, y: Floats, grain: float) -> list[float]:
    """The smallest and largest exponent of the laws that are at most one grain below every value; [] if there is none.

    For one exponent, the least width of a strip of slope a that has all points is the least range of y − a·z over the
    slopes through two points.
    """
    exponents = np.arange(MIN_EXPONENT, MAX_EXPONENT, MIN_EXPONENT)
    first, second = (np.array(side) for side in zip(*combinations(range(len(z)), 2), strict=True))
    powers = z ** exponents[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = (y[second] - y[first]) / (powers[:, second] - powers[:, first])
    widths = np.ptp(y - slopes[..., None] * powers[:, None, :], axis=2)
    possible = exponents[np.nanmin(widths, axis=1) < grain]
    return [float(possible.min()), float(possible.max())] if possible.size else []


def _followed(z: Floats, y: Floats) -> Law | None:
    """The law that the data follow exactly; None if they follow none, or do not grow.

    The law through the first, a middle and the last point is unique: with a larger exponent, the middle point is a
    smaller share of the way up.
    """
    first, last = 0, len(z) - 1
    inner = np.flatnonzero((z > z[first]) & (z < z[last]))
    middle = int(inner[np.abs(np.log(z[inner]) - np.log(z[first]) / 2).argmin()])
    spread = float(np.ptp(y))
    rise = float(y[last] - y[first])
    if rise <= 0:
        return None
    share = float(y[middle] - y[first]) / rise

    def way(exponent: float) -> float:
        low, here, high = (float(z[i]) ** exponent for i in (first, middle, last))
        return (here - low) / (high - low)

    low, high = MIN_EXPONENT, MAX_EXPONENT + 1 / _PLAIN
    if not way(high) < share < way(low):
        return None
    while high - low > _FINEST:
        between = (low + high) / 2
        low, high = (between, high) if way(between) > share else (low, between)
    plain = round(low * _PLAIN) / _PLAIN
    for exponent in (plain, low):
        if not MIN_EXPONENT < exponent <= MAX_EXPONENT:
            continue
        powers = z**exponent
        slope = rise / float(powers[last] - powers[first])
        constant = float(y[first]) - slope * float(powers[first])
        law = exponent, _cleared(constant, y), slope
        if np.all(np.abs(y - _predicted(z, law)) <= _FOLLOWED * np.minimum(y, spread) + _EPSILON * y.max()):
            return law
    return None


def _cleared(constant: float, y: Floats) -> float:
    """The constant, or 0 if it is only what rounding in floats leaves."""
    return 0.0 if abs(constant) <= max(_ROUNDING * float(y.min()), _EPSILON * float(y.max())) else constant


def _best(x: Floats, y: Floats) -> Law:
    """Exponent, constant and slope with the least absolute relative residual."""
    level = float(np.median(y))
    if np.sum(np.abs(y - level) > _ROUNDING * level) <= 1:  # flat, apart from at most one outlier
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
    if slope <= 0 or flat_cost <= cost or slope * float(np.ptp(x**exponent)) <= _ROUNDING * level:
        return 0.0, level, 0.0
    return exponent, _cleared(constant, y), slope


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
