"""When do two gradients agree in floats? The rule of equality, and its constants.

Whether a method computes the gradient's formula is decided in sixty digits (`gradgate.suites.exact`), where nothing has
to be allowed. Here floats are judged: how many digits does the method lose beyond plain backprop? Let g* be a leaf of
the true gradient, g the method's in the dtype under test, u the dtype's unit roundoff.

1. *Noise.* ν is the largest ‖g_s − g*‖ over `oracle.NOISE_SAMPLES` runs of plain backprop in the dtype under test. g*
   is known to sixty digits, so ν is measured and not predicted. In all but the first run the parameters are moved by 2u
   at most, the upstream cotangent is another, divided out again, and the problem is computed another way where it knows
   one (`Problem.rerounded`). So forward and backward pass round otherwise. A method that is as good as backprop solves
   the exact problem for inputs about an ulp away, so it strays about as far. How far depends on the conditioning of the
   problem, which no fixed rtol knows.
2. *The bound* is KAPPA · max(ν, c·u·‖g*‖). KAPPA = 16 covers that the method's order of operations is not backprop's:
   the largest error over noise of 100,000 problems is in `calibration.json`. c = 4 is the floor for problems so well
   conditioned that no run strays by more than a few roundings.
3. *What a method may lose knowingly is added.* A method that rebuilds states by subtraction loses digits that backprop
   keeps. It names a loss that rounds as it does (`Method.rounding`); λ is how far plain backprop of that loss strays,
   half of the dtype's digits at most. A method without such a loss has λ = ν. The bound grows by (κ − KAPPA)·λ, κ the
   method's own (`Method.kappa`). The floor does not grow.
4. *A zero leaf*, ‖g*‖ ≤ u·‖whole g*‖, has no digits of its own: ‖whole g*‖ takes the place of ‖g*‖. If the whole
   gradient is zero, 1 takes the place of its norm.

Two figures judge the rule, and the project publishes both: false alarms over many problems, and the smallest relative
error planted in one leaf that is still refuted (`gradgate calibrate`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gradgate.references.backends import UNIT_ROUNDOFF
from gradgate.references.oracle import Reference

GROWTH = 4.0
"""c: unit roundoffs of a leaf's norm that are always allowed."""
KAPPA = 16.0
"""Times the noise that every method may stray."""


@dataclass(frozen=True)
class Comparison:
    """A method's gradient beside the truth.

    Attributes:
        equal: every leaf is within its bound.
        leaf: the leaf with the largest error in proportion to its bound; "" is the loss.
        error: its error, relative to the norm of the true leaf.
        noise: its bound over KAPPA, on the same scale.
        wrong: leaf -> relative error, of every leaf out of bounds.
        ratio: error / noise of `leaf`; the leaf is in bounds while this is at most KAPPA.
        beyond: the largest error of a leaf over what plain backprop may stray, max(ν, c·u·‖g*‖), allowances left out.
    """

    equal: bool
    leaf: str
    error: float
    noise: float
    ratio: float
    wrong: dict[str, float]
    beyond: float = 0.0


def digits_lost(beyond: float) -> float:
    """Decimal digits that a method loses beyond plain backprop, of `Comparison.beyond`."""
    return round(math.log10(max(1.0, beyond)), 2)


def compare(
    grads: Mapping[str, Any], reference: Reference, dtype: str, kappa: float = KAPPA, factor: float = 1.0
) -> Comparison:
    """Judge gradient leaves by the rule of equality.

    Args:
        grads: judged leaf -> array, the keys of `reference.grads` or some of them; NaN and infinity are never equal
            to a finite truth.
        dtype: the dtype that the method computed in, and in which the noise was sampled.
        kappa: κ of the method; below KAPPA it is KAPPA.
        factor: truth and noise are multiplied by it first (the upstream cotangent).
    """
    sizes = {name: _norm(leaf) for name, leaf in reference.grads.items()}
    whole = abs(factor) * math.sqrt(sum(size * size for size in sizes.values()))
    worst, wrong, beyond = ("", 0.0, 0.0, -1.0), {}, 0.0
    for name, got in grads.items():
        exact, rest = reference.grads[name], reference.rest.get(name, 0.0)
        apart = got - exact - rest if factor == 1.0 else got - factor * exact - factor * rest
        noise, more = (abs(factor) * part for part in _strays(reference, name, kappa))
        distance, size = _norm(apart), abs(factor) * sizes[name]
        error, allowed, ratio = _relative(distance, size, whole, noise, more, dtype)
        beyond = max(beyond, _relative(distance, size, whole, noise, 0.0, dtype)[2] if more else ratio)
        if not ratio <= KAPPA:
            wrong[name] = error
        if ratio > worst[3] or ratio != ratio:
            worst = (name, error, allowed, ratio if ratio == ratio else float("inf"))
    return Comparison(not wrong, worst[0], worst[1], worst[2], worst[3], wrong, beyond)


def compare_value(value: float, reference: Reference, dtype: str) -> Comparison:
    """Judge the loss by the same rule; nobody may lose more of it than plain evaluation."""
    size, apart = abs(reference.loss), abs(value - reference.loss)
    error, allowed, ratio = _relative(apart, size, size, reference.noise[""], 0.0, dtype)
    equal = ratio <= KAPPA
    return Comparison(
        equal, "", error, allowed, ratio if ratio == ratio else float("inf"), {} if equal else {"": error}
    )


def _strays(reference: Reference, name: str, kappa: float) -> tuple[float, float]:
    """(ν, (κ − KAPPA)/KAPPA · λ): what everybody may stray, and what the method may beyond that, over KAPPA."""
    noise = reference.noise[name]
    lost = reference.lost.get(name, noise)
    return noise, (kappa - KAPPA) / KAPPA * lost if kappa > KAPPA else 0.0


def _norm(leaf: Any) -> float:
    """‖leaf‖ of a float64 array: `numpy.linalg.norm` without what it asks before it computes."""
    flat = leaf.ravel()
    return math.sqrt(flat.dot(flat))


def _relative(
    distance: float, size: float, whole: float, noise: float, more: float, dtype: str
) -> tuple[float, float, float]:
    """(error, bound over KAPPA, their ratio), the first two relative to the leaf's own size where it has one."""
    u = UNIT_ROUNDOFF[dtype]
    whole = whole or 1.0
    scale = size if size > u * whole else whole
    allowed = max(noise, GROWTH * u * scale) + more
    if allowed == float("inf") and distance == distance:
        return distance / scale, allowed, 0.0  # plain backprop overflows here: nothing can be said
    return distance / scale, allowed / scale, distance / allowed
