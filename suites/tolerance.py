"""When are two gradients equal? The rule of equality, and its constants.

Let g* be a leaf of the float64 oracle's gradient, g the method's in the dtype under test with unit roundoff u.

1. *What is measured.* The noise ν of the leaf: the largest ‖g_s − g*‖ / u_s over runs of plain backprop on the same
   problem, `oracle.NOISE_SAMPLES` in float64 and as many in a lower dtype (float32, or bfloat16 for a test in it); u_s
   is the unit roundoff of the run's dtype. In all but the first run the parameters are moved by 2u at most, the
   upstream cotangent is another, divided out again, and the problem is computed another way where it knows one
   (`Problem.rerounded`), so that forward and backward pass round otherwise. An algorithm that is as good as backprop
   solves the exact problem for inputs that lie about an ulp away, so it strays by about ν·u; how far depends on the
   problem's conditioning, which no fixed rtol knows.
2. *Why two dtypes.* Rounding errors are linear in u as long as any digit is left, so each dtype predicts the other.
   Float64 runs may happen to agree in every bit; float32 runs may have lost every digit and then say no more than that.
   The larger of the two has the lightest tail.
   A method that is allowed to lose digits that backprop keeps, such as one that rebuilds states by subtraction, names a
   loss that rounds as it does (`Method.rounding`), and the noise is how far plain backprop of that strays, in the dtype
   under test alone: where it leaves few digits, its errors are not linear in u. So the allowance is as large as this
   problem makes it, and no larger; and never more than half of float64's digits, because what strays further may be a
   mistake that the loss shares with the method.
3. *The bound* is κ · u · max(ν, c·‖g*‖). GROWTH c = 4 is the floor for problems so well conditioned that the samples
   agree to less than a few roundings. κ belongs to the method (`Method.kappa`, 16 unless it says otherwise): it covers
   that the method's order of operations is not backprop's.
4. *A zero leaf*, ‖g*‖ ≤ u·‖whole g*‖, has no digits of its own: ‖whole g*‖ takes the place of ‖g*‖. If the whole
   gradient is zero, 1 takes the place of its norm.

The rule is judged by two figures that the project publishes: false alarms over many problems, and the smallest relative
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


@dataclass(frozen=True)
class Comparison:
    """A method's gradient beside the oracle's.

    Attributes:
        equal: every leaf is within its bound.
        leaf: the leaf with the largest error in proportion to its bound; "" is the loss.
        error: its error, relative to the norm of the oracle's leaf.
        noise: the noise allowed for it before κ, on the same scale.
        wrong: leaf -> relative error, of every leaf out of bounds.
        ratio: error / noise of `leaf`; the leaf is in bounds while this is at most κ.
    """

    equal: bool
    leaf: str
    error: float
    noise: float
    ratio: float
    wrong: dict[str, float]


def lower_dtype(dtype: str) -> str:
    """The dtype beside float64 in which the noise of a test in `dtype` is sampled."""
    return "float32" if dtype == "float64" else dtype


def compare(
    grads: Mapping[str, Any], reference: Reference, dtype: str, kappa: float, factor: float = 1.0
) -> Comparison:
    """Judge gradient leaves by the rule of equality.

    Args:
        grads: judged leaf -> array, the keys of `reference.grads` or some of them; NaN and infinity are never equal
            to a finite oracle.
        dtype: the dtype that the method computed in.
        kappa: κ of the method.
        factor: the oracle's gradient and noise are multiplied by it first (the upstream cotangent).
    """
    sizes = {name: _norm(leaf) for name, leaf in reference.grads.items()}
    whole = abs(factor) * math.sqrt(sum(size * size for size in sizes.values()))
    worst, wrong = ("", 0.0, 0.0, -1.0), {}
    for name, got in grads.items():
        exact = reference.grads[name] if factor == 1.0 else factor * reference.grads[name]
        noise = abs(factor) * reference.noise[name] * UNIT_ROUNDOFF[dtype]
        distance = _norm(got - exact)
        error, allowed, ratio = _relative(distance, abs(factor) * sizes[name], whole, noise, dtype)
        if not ratio <= kappa:
            wrong[name] = error
        if ratio > worst[3] or ratio != ratio:
            worst = (name, error, allowed, ratio if ratio == ratio else float("inf"))
    return Comparison(not wrong, worst[0], worst[1], worst[2], worst[3], wrong)


def _norm(leaf: Any) -> float:
    """‖leaf‖ of a float64 array: `numpy.linalg.norm` without what it asks before it computes."""
    flat = leaf.ravel()
    return math.sqrt(flat.dot(flat))


def compare_value(value: float, reference: Reference, dtype: str, kappa: float) -> Comparison:
    """Judge the loss by the same rule; its noise is the spread of the oracle's losses."""
    size = abs(reference.loss)
    error, allowed, ratio = _relative(
        abs(value - reference.loss), size, size, reference.noise[""] * UNIT_ROUNDOFF[dtype], dtype
    )
    equal = ratio <= kappa
    return Comparison(
        equal, "", error, allowed, ratio if ratio == ratio else float("inf"), {} if equal else {"": error}
    )


def _relative(distance: float, size: float, whole: float, noise: float, dtype: str) -> tuple[float, float, float]:
    """(error, allowed noise, their ratio), the first two relative to the leaf's own size where it has one."""
    u = UNIT_ROUNDOFF[dtype]
    whole = whole or 1.0
    scale = size if size > u * whole else whole
    allowed = max(noise, GROWTH * u * scale)
    if allowed == float("inf") and distance == distance:
        return distance / scale, allowed, 0.0  # plain backprop overflows here: nothing can be said
    return distance / scale, allowed / scale, distance / allowed
