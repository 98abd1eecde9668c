"""The hardest problem for a pair in floats that is found, and not merely the hardest that was drawn.

A coordinate search from the worst problem that was drawn: one input after another is multiplied by a power of two, then
the shape is changed, and what makes error over noise larger is kept. Only drawn shapes are tried, as each is a program
to compile. Every problem has its own noise and its own truth. The number of problems is bounded, and not
the time, so that a run repeats.

It is reported, and refutes nothing: most inputs are then larger or smaller than any that the pair draws, and right
functions may lose more digits there than plain backprop does. Attention that keeps no matrix does with keys of 32 times
the usual size. Who wants to promise more declares a regime.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gradgate.references.contract import Claim, Spec
from gradgate.suites.exact import truth
from gradgate.suites.judging.tolerance import KAPPA, Comparison
from gradgate.suites.judging.verdict import finite
from gradgate.suites.pairs import unseen
from gradgate.suites.pairs.pair import Pair
from gradgate.suites.pairs.spec import PairSpec

TRIES = 12
"""Most problems of one search."""
SHAPES = 4
"""How many of these have another shape, if there are so many."""
POWERS = (3, -3, 6, -6)
"""Powers of two by which an input is multiplied, in this order; exp of 64 times a normal number is still finite."""
DTYPES = ("float64", "float32")
Judge = Callable[[PairSpec], Comparison | None]
"""Judges a problem by a claim: what it found in floats, or None if nothing can be said there."""


@dataclass
class Hardest:
    """The state of one search.

    Attributes:
        spec: the hardest problem so far; `ratio` is its error over noise, and `drawn` that of the first problem.
        shapes: other sizes and shared options than those of the first problem.
        powers: input -> the power of two by which it is multiplied in `spec`.
    """

    pair: Pair
    spec: PairSpec
    ratio: float
    drawn: float
    shapes: Sequence[Mapping[str, Any]] = ()
    tries: int = 0
    powers: dict[str, int] = field(default_factory=dict)

    def search(self, judge: Judge) -> None:
        """Search.

        Cost: at most TRIES problems.
        """
        shapes = self.shapes[:SHAPES]
        for power, leaf in itertools.product(POWERS, unseen.free(self.pair)):
            if self.tries < TRIES - len(shapes):
                self._try({**self.powers, leaf: power}, self.spec.fields, judge)
        for shape in shapes:
            self._try(self.powers, shape, judge)

    def summary(self) -> dict[str, Any]:
        """As `Verdict.worst`; {} if no problem was tried."""
        if not self.tries:
            return {}
        return {
            "noises": finite(self.ratio),
            "drawn": finite(self.drawn),
            "scales": {leaf: 2.0**power for leaf, power in self.powers.items() if power},
            **({"shape": dict(self.spec.fields)} if self.spec.fields in self.shapes else {}),
            "spec": dataclasses.asdict(self.spec),
            "tries": self.tries,
        }

    def _try(self, powers: dict[str, int], shape: Mapping[str, Any], judge: Judge) -> None:
        """Go on from these powers and this shape, without a regime of the pair's own, if the ratio is larger there."""
        self.tries += 1
        spec = dataclasses.replace(self.spec, **shape, regime=unseen.scaled(powers))
        found = judge(spec)
        if found is not None and found.informs and found.ratio > self.ratio:
            self.powers, self.spec, self.ratio = powers, spec, found.ratio


def worded(worst: Mapping[str, Any]) -> str:
    """What a search found, in words; "" if nothing was tried.

    >>> worded({"noises": 3.21, "drawn": 1.9, "scales": {"x": 8.0}, "tries": 12})
    'at worst 3.2 times the noise, with x × 8 (1.9 times on what is drawn; 12 further problems tried)'
    >>> worded({"noises": 3.21, "drawn": 1.9, "scales": {}, "shape": {"N": 7}, "tries": 12})
    'at worst 3.2 times the noise, with N=7 (1.9 times on what is drawn; 12 further problems tried)'
    """
    if not worst:
        return ""
    most, drawn = ("not finite" if n is None else f"{n:.2g} times the noise" for n in (worst["noises"], worst["drawn"]))
    parts = [f"{leaf} × {factor:g}" for leaf, factor in worst["scales"].items()]
    scales = " and ".join(parts + [f"{name}={value}" for name, value in worst.get("shape", {}).items()])
    if not scales:
        return f"at worst {most}; {worst['tries']} further problems are no worse"
    said = f"{drawn.removesuffix(' the noise')} on what is drawn; {worst['tries']} further problems tried"
    beyond = worst["noises"] is None or worst["noises"] > KAPPA
    bound = f"; a drawn problem may have {KAPPA:g}, so a regime with such inputs would be refuted" if beyond else ""
    return f"at worst {most}, with {scales} ({said}){bound}"


def begin(claim: Claim, function: Any, spec: Any, ratio: float, drawn: Iterable[Spec] = ()) -> Hardest | None:
    """The search for one claim from the worst problem that was drawn; None for claims that it is not for.

    Args:
        claim, function: what is judged.
        spec, ratio: the worst problem and its error over noise.
        drawn: all problems.

    Nothing is searched from a problem that is too large for sixty digits: a dozen of these would be expensive.
    """
    floats = claim.check == "gradient" and claim.settings.get("dtype") in DTYPES
    if not floats or not isinstance(function, Pair) or not spec:
        return None
    if function.approximates is not None or not math.isfinite(ratio) or spec.work() > truth.AFFORDABLE:
        return None
    others = [one for one in drawn if isinstance(one, PairSpec) and one.work() <= truth.AFFORDABLE]
    shapes = list({repr(one.fields): one.fields for one in others if one.fields != spec.fields}.values())
    return Hardest(function, spec, ratio, ratio, shapes[::-1])
