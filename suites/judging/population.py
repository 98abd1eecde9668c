"""Judges the problems of one claim together, where each problem alone says little.

A single problem refutes a leaf whose error passes `KAPPA` times the noise. In bfloat16 that is often more than the
leaf itself. So the problems of a claim are also judged together.

*The rule.* On every problem plain backprop runs `NOISE_SAMPLES` = 8 times in the dtype under test, and ν is its largest
error. If the method rounds as plain backprop does, it is a ninth such run, and each of the nine is as likely as the
others to have the largest error: the method's error is above ν with probability at most 1/9, whatever the distribution
of the errors. A method may sum in another order, so a problem counts only if the error is above EXCESS = 2 times the
method's allowance (`Comparison`: ν or the floor, plus what the method may lose knowingly). On n problems the count K is
then at most binomial, K ≤ Bin(n, 1/9), and a leaf is refuted if P(Bin(n, 1/9) ≥ K) ≤ ALARM = 1e-9. Ten problems are the
fewest that can refute: (1/9)^10 = 2.9e-10.

*Which problems.* The rule is applied to the problems of each shape, because an error that grows with the length shows
only on the long ones. It is also applied to the n problems with the smallest allowance, n = 10, 20, 40, … and all,
because an error of constant relative size shows best where the noise is small. The choice does not depend on the
method's answers.

*Common scaling.* An error of constant relative size δ adds the same number to b = ⟨g − g*, g*⟩/‖g*‖² on every problem,
whereas rounding changes b's sign from problem to problem. So the mean of b is judged as well, on the same sets of
problems. On a problem the runs of plain backprop have a_s, s = 1 … 8; let σ² be their mean square, plus (f·u)². The
weights are w = v/σ, with v = 1/σ cut down so that no v² is more than a tenth of Σv². The leaf is refuted if

    |mean b| > max(EXCESS·max(max_s |mean a_s|, f·u), DEVIATIONS·√Σv²/Σw).

The first term is for a rounding error with a preferred sign, as sums in bfloat16 have; a method may have twice plain
backprop's. f is 2 in bfloat16. In all other dtypes it is GROWTH = 4, as for a single problem: an elementary function
that is always some units too large is not a mistake there.

The second term is for errors without a preferred sign. b is cut off at ±max(CUT·σ, EXCESS·(|a_s| + f·u)), where s is
the run with the largest mean, so that the mean can always pass the first term, but one problem with a heavy tail cannot
decide. Then t = b/σ has the same distribution on every problem, whatever the problem's scale. Let K(λ) be the logarithm
of the mean of exp(λt). No v² is more than a tenth of Σv², so Chernoff's bound is

    P(|Σv·t| > D·√Σv²) ≤ 2·min_λ exp(max_{n ≥ 10} n·K(λ/√n) − λ·D).

With D = DEVIATIONS this is below ALARM/8 for normal errors and for Student's of 3 and 4 degrees of freedom
(`test_population` computes it), and s is one of eight runs. What the method may lose knowingly is added to σ², to |a_s|
and to the first term. For a method that loses digits knowingly this bound is not proved: s is then one of 64 pairs of
runs, and its error has another distribution. There `gradgate calibrate` alone counts the alarms.

*False alarms.* A claim has fewer than 1,000 pairs of a leaf and a set of problems, so a method that is as good as plain
backprop is refuted by either rule with probability at most 1e-6, under these assumptions. `gradgate calibrate` counts
alarms of both rules.

*Informative problems.* A problem says nothing about a leaf if the bound there reaches `INFORMATIVE` of the leaf. The
bound is KAPPA times the allowance; in bfloat16 it is EXCESS times, because only problems together can refute. Such a
problem does not count for the leaf. A leaf with too few informative problems makes the claim inapplicable.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradgate.references.backends import UNIT_ROUNDOFF
from gradgate.references.oracle import NOISE_SAMPLES
from gradgate.suites.judging.tolerance import EXCESS, GROWTH, INFORMATIVE, Along, Comparison, informs

DEVIATIONS = 8.05
"""How many standard deviations the mean of b may be away from zero."""
CUT = 2.5
"""b is cut off at this many standard deviations, or farther out if plain backprop's own error is there."""
SCALED = {"float64": GROWTH, "float32": GROWTH, "float16": GROWTH, "bfloat16": 2.0}
"""f: unit roundoffs of a common factor that plain backprop is always allowed."""
CHANCE = 1 / (NOISE_SAMPLES + 1)
"""Largest probability that one given run of nine has the largest error."""
ALARM = 1e-9
"""Largest probability that one set of problems refutes a leaf that is as good as plain backprop's."""
FEWEST_TOGETHER = 10
"""Least number of problems that can refute together: CHANCE^10 is below ALARM, CHANCE^9 is not."""
FEWEST = 3
"""Least number of informative problems that a leaf needs; if fewer than nine are judged, a third of them."""
SHARE = 0.1
"""Share of a leaf's problems that must be informative."""


@dataclass(frozen=True)
class Seen:
    """A leaf on one problem: the problem's shape, error over allowance, and the allowance relative to the leaf."""

    shape: str
    ratio: float
    noise: float


@dataclass(frozen=True)
class Excess:
    """A leaf whose error is too often above EXCESS times its allowance: on `above` of `problems` problems.

    Attributes:
        median: the median of error over allowance, over these problems.
    """

    leaf: str
    above: int
    problems: int
    needed: int
    median: float
    noise: float

    @property
    def error(self) -> float:
        """The relative error of the median problem."""
        return self.median * self.noise

    def __str__(self) -> str:
        """The refutation in words."""
        return (
            f"{self.leaf or 'loss'} is in bounds on each problem, but its error is above {EXCESS:g} times the noise of "
            f"plain backprop on {self.above} of {self.problems} problems (median {self.median:.3g} times a noise of "
            f"{self.noise:.2g}); a method as good as plain backprop reaches {self.needed} with probability {ALARM:g}"
        )


@dataclass(frozen=True)
class Scaled:
    """A leaf that is too long or too short by a common factor: on the average of the problems, by `mean` of itself."""

    leaf: str
    mean: float
    bound: float
    problems: int

    @property
    def error(self) -> float:
        """The relative error on average."""
        return abs(self.mean)

    @property
    def noise(self) -> float:
        """The part of it that the rounding of plain backprop explains."""
        return self.bound

    def __str__(self) -> str:
        """The refutation in words."""
        return (
            f"{self.leaf} is in bounds on each problem, but over {self.problems} problems it is off by "
            f"{self.mean:+.2g} times itself on average; rounding in plain backprop explains {self.bound:.2g}"
        )


@dataclass(frozen=True)
class Informed:
    """How many problems are informative about a kind of leaf: the kind with the fewest such problems.

    Attributes:
        kind: the leaf without its layer's number, such as ``layers[].w``.
        judged: number of problems in which this kind occurs.
        together: whether the problems are also judged together.
    """

    kind: str
    dtype: str
    problems: int
    judged: int
    together: bool = True

    @property
    def enough(self) -> bool:
        """Whether a verdict can be based on them."""
        fewest = FEWEST_TOGETHER if self.together and self.dtype == "bfloat16" else min(FEWEST, -(-self.judged // 3))
        return self.problems >= max(fewest, SHARE * self.judged)

    def __str__(self) -> str:
        """Why the claim cannot be judged."""
        return (
            f"too few informative problems: {self.problems} of {self.judged} say anything about "
            f"{self.kind or 'the loss'} in {self.dtype}; on the others the bound reaches "
            f"{INFORMATIVE[self.dtype]:g} of its size. Either the problems are too ill-conditioned for this dtype, or "
            "the method allows itself too much (kappa, rounding)"
        )


@dataclass
class Population:
    """The comparisons of one claim, by dtype and leaf."""

    seen: dict[tuple[str, str], list[Seen]] = field(default_factory=dict)
    informing: dict[tuple[str, str], list[bool]] = field(default_factory=dict)
    along: dict[tuple[str, str], list[tuple[str, Along]]] = field(default_factory=dict)

    def add(self, found: Comparison, shape: str) -> None:
        """Take in one problem's comparison; `shape` is equal for problems that share compiled programs."""
        kinds: dict[str, bool] = {}
        for leaf, (_, noise, ratio) in found.leaves.items():
            self.seen.setdefault((found.dtype, leaf), []).append(Seen(shape, ratio, noise))
            kinds[kind_of(leaf)] = kinds.get(kind_of(leaf), False) or informs(noise, found.dtype)
        for kind, told in kinds.items():
            self.informing.setdefault((found.dtype, kind), []).append(told)
        for leaf, along in found.along.items():
            self.along.setdefault((found.dtype, leaf), []).append((shape, along))

    def excess(self) -> Excess | None:
        """The leaf that is refuted by the problems together, by the widest margin; None if none is."""
        worst: tuple[int, Excess] | None = None
        for (dtype, leaf), rows in self.seen.items():
            told = [row for row in rows if informs(row.noise, dtype)]
            for chosen in _sets([row.shape for row in told], [row.noise for row in told]):
                some = [told[i] for i in chosen]
                above, needed = sum(not row.ratio <= EXCESS for row in some), least(len(some))
                if above >= needed and (worst is None or above - needed > worst[0]):
                    middle = sorted(some, key=lambda row: row.ratio)[len(some) // 2]
                    found = Excess(leaf, above, len(some), needed, middle.ratio, middle.noise)
                    worst = (above - needed, found)
        return worst[1] if worst else None

    def refuted(self) -> Excess | Scaled | None:
        """What refutes a leaf although no single problem does; None if nothing does."""
        return self.excess() or self.scaled()

    def scaled(self) -> Scaled | None:
        """The leaf that is refuted because of a common factor, the one farthest beyond its bound; None if none is."""
        found = [one for key, rows in self.along.items() for one in scalings(*key, rows)]
        wrong = [one for one in found if abs(one.mean) > one.bound]
        return max(wrong, key=lambda one: abs(one.mean) / one.bound, default=None)

    def informed(self, together: bool = True) -> Informed | None:
        """The kind of leaf with the fewest informative problems; None if nothing was compared.

        Args:
            together: whether the problems are also judged together, for which bfloat16 needs more of them.
        """
        found = [
            Informed(kind, dtype, sum(told), len(told), together) for (dtype, kind), told in self.informing.items()
        ]
        return min(found, key=lambda one: (one.enough, one.problems / one.judged), default=None)


def kind_of(leaf: str) -> str:
    """A leaf's name without the numbers of layers.

    >>> kind_of("layers[3].A.w0")
    'layers[].A.w0'
    """
    return re.sub(r"\[\d+\]", "[]", leaf)


@functools.cache
def least(problems: int) -> int:
    """The smallest K with P(Bin(problems, CHANCE) ≥ K) ≤ ALARM; problems + 1 if there is none.

    >>> least(9), least(10), least(100)
    (10, 10, 35)
    """
    tail, count = 0.0, problems + 1
    while count > 0:
        more = math.comb(problems, count - 1) * CHANCE ** (count - 1) * (1 - CHANCE) ** (problems - count + 1)
        if tail + more > ALARM:
            break
        tail, count = tail + more, count - 1
    return count


def _sets(shapes: Sequence[str], allowances: Sequence[float]) -> Iterator[list[int]]:
    """The sets of problems that are judged together: of each shape, and those with the smallest allowance."""
    of_shape: dict[str, list[int]] = {}
    for i, shape in enumerate(shapes):
        of_shape.setdefault(shape, []).append(i)
    yield from of_shape.values()
    ordered, size = sorted(range(len(shapes)), key=lambda i: allowances[i]), FEWEST_TOGETHER
    while size < len(ordered):
        yield ordered[:size]
        size *= 2
    yield ordered


def scalings(dtype: str, leaf: str, rows: list[tuple[str, Along]]) -> Iterator[Scaled]:
    """The common factor of a leaf on each set of problems, and its bound."""
    if len(rows) < FEWEST_TOGETHER:
        return
    u = UNIT_ROUNDOFF[dtype]
    floor = SCALED[dtype] * u
    plain, lost = (np.array([getattr(row, name) for _, row in rows]) for name in ("plain", "lost"))
    sigma = np.sqrt((plain**2).mean(axis=1) + (lost**2).mean(axis=1) + floor**2)
    error = np.array([row.error for _, row in rows])
    for some in _sets([shape for shape, _ in rows], sigma.tolist()):
        if len(some) < FEWEST_TOGETHER:
            continue
        level = _levelled(1 / sigma[some])
        weights = level / sigma[some]
        total = float(weights.sum())
        preferred, far = 0.0, np.full(len(some), floor)
        for runs in (plain[some], lost[some]):
            means = np.abs(weights @ runs) / total
            preferred += float(means.max())
            far += np.abs(runs[:, means.argmax()])
        most = np.maximum(CUT * sigma[some], EXCESS * far)
        mean = float(weights @ np.clip(error[some], -most, most)) / total
        bound = max(EXCESS * max(preferred, floor), DEVIATIONS * float(np.sqrt(level @ level)) / total)
        yield Scaled(leaf, mean, bound, len(some))


def _levelled(weights: Any) -> Any:
    """The weights, cut down so that no square is more than a tenth of the sum of the squares."""
    squares = np.sort(weights**2)[::-1]
    tails = squares[::-1].cumsum()[::-1]
    # If the j largest are cut down to c, then j·c² + tails[j] is FEWEST_TOGETHER·c².
    cut = next(j for j in range(FEWEST_TOGETHER) if squares[j] * (FEWEST_TOGETHER - j) <= tails[j])
    return np.minimum(weights, math.sqrt(tails[cut] / (FEWEST_TOGETHER - cut)))
