"""When do two gradients agree in floats? The rule of equality, and its constants.

Whether a method computes the gradient's formula is decided in sixty digits (`gradgate.suites.exact`), where no
tolerance is needed. Here floats are judged: how many digits does the method lose beyond plain backprop? Let g* be a
leaf of the true gradient, g the method's in the dtype under test, u the dtype's unit roundoff.

1. *Noise.* ν is the largest ‖g_s − g*‖ over `oracle.NOISE_SAMPLES` runs of plain backprop in the dtype under test. g*
   is known to sixty digits, so ν is measured and not predicted. In all but the first run the parameters are moved by at
   most 2u, another upstream cotangent is used and divided out again, and the problem is computed in another way, or
   other inputs are moved too, if it has such (`Problem.rerounded`). So forward and backward pass round differently. A
   method that is as good as backprop solves the exact problem for inputs about an ulp away, so its error is about as
   large as ν. How large that is depends on the conditioning of the problem, which no fixed rtol reflects. The runs are
   one vectorised call. An error above EXCESS times that is judged again by the largest error of those runs and of as
   many single calls, because a kernel may round otherwise than its vectorised form (`Reference.call_by_call`).
2. *The bound* is KAPPA · max(ν, c·u·‖g*‖). KAPPA = 16 allows for an order of operations that differs from backprop's:
   `gradgate calibrate` measures the largest error over noise. c = 4 is the floor for problems so well conditioned that
   no run is off by more than a few roundings.
3. *What a method may lose knowingly is added.* A method that rebuilds states by subtraction loses digits that backprop
   keeps. It names a loss that rounds as it does (`Method.rounding`); λ is the error of plain backprop of that loss. If
   this error takes more than half of the dtype's digits, the problem says nothing about the leaf. A method without such
   a loss has λ = ν. The bound grows by (κ − KAPPA)·λ, κ the method's own (`Method.kappa`). The floor does not grow.
   A function that is approximate by design declares an error (`Reference.declared`). It is taken off the distance, and
   the bound stays as it is.
   In bfloat16 and float16 plain backprop itself may be far off: sums in them stop to grow. So a second yardstick stands
   beside it, plain backprop in float32 whose result is rounded once (`Reference.inside`). It takes the place of the
   noise if a function promises to accumulate in float32 (`sharper`), and is reported in any case (`beside`).
   Numbers below the smallest normal one of a dtype may be zero in it (`FLUSHED`). By so much every number of a leaf may
   be off, and that is taken off the distance, too.
4. *A zero leaf*, ‖g*‖ ≤ u·‖whole g*‖, is compared with the whole gradient: ‖whole g*‖ takes the place of ‖g*‖. If the
   whole gradient is zero, 1 takes the place of its norm. A method's own gradient of a zero leaf is a rounding error. So
   if a result is compared with the method's own gradient, it is still the true leaf that decides (`own_truth`).

Problems of one claim are also judged together (`gradgate.suites.judging.population`). Two figures measure how good the
rules are: false alarms over many problems, and the smallest relative error planted in one leaf that is refuted
(`gradgate calibrate`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gradgate.references.backends import UNIT_ROUNDOFF
from gradgate.references.oracle import Reference

GROWTH = 4.0
"""c: unit roundoffs of a leaf's norm that are always allowed."""
KAPPA = 16.0
"""The error of every method may be this many times the noise."""
EXCESS = 2.0
"""On most problems, a leaf's error may be this many times its allowance (`gradgate.suites.judging.population`)."""
FLUSHED = {"float64": 2.0**-1022, "float32": 2.0**-126, "float16": 2.0**-25, "bfloat16": 2.0**-126}
"""What may be zero in a dtype: below the smallest normal number, because XLA flushes it. No hardware flushes numbers of
float16, so there it is half of the smallest one."""
ADVICE = (
    "it promises accumulates='float32', so this noise is that of plain backprop in float32, rounded once: convert what "
    "it reads to float32, compute and sum in float32, and round only its results"
)
"""What is added to a refutation by the sharper yardstick."""
INFORMATIVE = {"float64": 1e-6, "float32": 1e-2, "float16": 0.1, "bfloat16": 0.2}
"""From this relative bound on, a problem says nothing about a leaf in this dtype."""
BINDS = {"float64": KAPPA, "float32": KAPPA, "float16": KAPPA, "bfloat16": EXCESS}
"""The bound that decides about a leaf, in multiples of its allowance. In bfloat16 it is the bound of all problems
together, because the bound of one problem is about as large as the leaf."""


@dataclass(frozen=True)
class Along:
    """⟨g − g*, g*⟩/‖g*‖² of one leaf on one problem.

    Attributes:
        error: that of the method.
        plain: that of each run of plain backprop.
        lost: that of each run of the loss whose rounding is allowed, as far as it is allowed; zeros if none is.
    """

    error: float
    plain: Any
    lost: Any


@dataclass(frozen=True)
class Comparison:
    """A method's gradient compared with the truth.

    Attributes:
        dtype: the dtype under test.
        leaves: leaf -> (error, noise, error / noise): the error relative to the norm of the true leaf, and as noise its
            bound over KAPPA on the same scale. The loss is the leaf "".
        beyond: the largest error of a leaf over what plain backprop itself may have, max(ν, c·u·‖g*‖), so without what
            this method may lose knowingly.
        along: leaf -> the common scaling in its error and in the errors of plain backprop, of leaves that are not zero.
    """

    dtype: str
    leaves: dict[str, tuple[float, float, float]]
    beyond: float = 0.0
    along: dict[str, Along] = field(default_factory=dict)

    @property
    def wrong(self) -> dict[str, float]:
        """Leaf -> relative error, of every leaf out of bounds."""
        return {leaf: error for leaf, (error, _, ratio) in self.leaves.items() if not ratio <= KAPPA}

    @property
    def equal(self) -> bool:
        """Whether every leaf is within its bound."""
        return not self.wrong

    @functools.cached_property
    def leaf(self) -> str:
        """The leaf with the largest error in proportion to its bound.

        A leaf that is in bounds, and about which this problem says nothing, comes after all other leaves.
        """

        def order(leaf: str) -> tuple[bool, float]:
            _, noise, ratio = self.leaves[leaf]
            return not ratio <= KAPPA or informs(noise, self.dtype), ratio if ratio == ratio else math.inf

        return max(self.leaves, key=order)

    @property
    def error(self) -> float:
        """The error of `leaf`."""
        return self.leaves[self.leaf][0]

    @property
    def noise(self) -> float:
        """The noise of `leaf`."""
        return self.leaves[self.leaf][1]

    @property
    def ratio(self) -> float:
        """Error / noise of `leaf`, infinite for NaN; the leaf is in bounds while this is at most KAPPA."""
        ratio = self.leaves[self.leaf][2]
        return ratio if ratio == ratio else math.inf

    @property
    def informs(self) -> bool:
        """Whether this problem says anything about `leaf`."""
        return informs(self.noise, self.dtype)


def informs(noise: float, dtype: str) -> bool:
    """Whether a problem with this noise, relative to a leaf, says anything about the leaf."""
    return BINDS[dtype] * noise < INFORMATIVE[dtype]


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
    return _twice(lambda known: _compared(grads, known, dtype, kappa, factor), reference)


def _twice(judge: Callable[[Reference], Comparison], reference: Reference) -> Comparison:
    """A comparison; if a leaf is above EXCESS, one by the larger noise of vectorised runs and of single calls."""
    found = judge(reference)
    beyond = {leaf for leaf, (_, _, ratio) in found.leaves.items() if not ratio <= EXCESS}
    if not beyond or reference.call_by_call is None:
        return found
    single = reference.call_by_call()
    noise = {name: max(known, single[name]) for name, known in reference.noise.items()}
    # The common scaling of the vectorised runs is no yardstick for a leaf for which their noise is none.
    along = {name: parts for name, parts in reference.along.items() if name not in beyond}
    return judge(replace(reference, noise=noise, along=along))


def _compared(grads: Mapping[str, Any], reference: Reference, dtype: str, kappa: float, factor: float) -> Comparison:
    sizes = {name: _norm(leaf) for name, leaf in reference.grads.items()}
    whole = abs(factor) * math.sqrt(sum(size * size for size in sizes.values()))
    leaves, beyond, along = {}, 0.0, {}
    for name, got in grads.items():
        exact, rest = reference.grads[name], reference.rest.get(name, 0.0)
        apart = got - exact - rest if factor == 1.0 else got - factor * exact - factor * rest
        noise, more = (abs(factor) * part for part in _strays(reference, name, kappa))
        size = abs(factor) * sizes[name]
        norm = max(0.0, far - FLUSHED[dtype] * math.sqrt(apart.size)) if (far := _norm(apart)) == far else far
        distance = _undeclared(norm, size, whole, reference.declared, dtype)
        leaves[name] = _relative(distance, size, whole, noise, more, dtype)
        plain = _relative(distance, size, whole, noise, 0.0, dtype) if more else leaves[name]
        beyond = max(beyond, plain[2])
        judged_along = name in reference.along and not any(reference.declared)
        if judged_along and size > UNIT_ROUNDOFF[dtype] * whole and math.isfinite(noise + more):
            along[name] = _along(apart, exact, reference, name, kappa)
    return Comparison(dtype, leaves, beyond, along)


def sharper(reference: Reference) -> Reference:
    """The reference with the noise of plain backprop in a wider dtype, where that was measured."""
    if not reference.inside:
        return reference
    return replace(reference, noise=dict(reference.inside), along=dict(reference.inside_along), call_by_call=None)


def beside(grads: Mapping[str, Any], reference: Reference, dtype: str) -> tuple[float, str]:
    """(how far apart, a sentence with both yardsticks) for the leaf that tells most; the sentence is "" if none does.

    That is the leaf with the largest error of the function, or of plain backprop, in multiples of that of float32
    inside.
    """
    wide, plain = (compare(grads, one, dtype).leaves for one in (sharper(reference), reference))
    said = (0.0, "")
    for leaf, (error, least, _) in wide.items():
        own = plain[leaf][1]
        if all(map(math.isfinite, (error, least, own))) and reference.inside:
            may = f"plain backprop in {dtype} may lose {own:.2g}, and float32 inside {least:.2g}"
            said = max(said, (max(error, own) / least, f"{leaf} is off by {error:.2g}; there {may}"))
    return said


def own_truth(reference: Reference, grads: Mapping[str, Any], dtype: str) -> Reference:
    """The reference with a method's own gradient in place of the true one.

    The noise of a leaf whose true gradient is zero is at least the floor of the whole gradient, because two runs of the
    method may differ there by as much as each may differ from zero.
    """
    u, sizes = UNIT_ROUNDOFF[dtype], {name: _norm(leaf) for name, leaf in reference.grads.items()}
    whole = math.sqrt(sum(size * size for size in sizes.values())) or 1.0
    floors = {name: GROWTH * u * whole for name, size in sizes.items() if size <= u * whole}
    noise = {name: max(known, floors.get(name, 0.0)) for name, known in reference.noise.items()}
    return replace(reference, grads=dict(grads), noise=noise)


def compare_value(value: float, reference: Reference, dtype: str, kappa: float = KAPPA) -> Comparison:
    """Judge the loss by the same rule, with the κ of the claim: few methods compute the loss from rebuilt states."""
    size, apart = abs(reference.loss), abs(value - reference.loss)
    apart = max(0.0, apart - FLUSHED[dtype]) if apart == apart else apart
    apart = _undeclared(apart, size, size, reference.declared, dtype)

    def judge(known: Reference) -> Comparison:
        return Comparison(dtype, {"": _relative(apart, size, size, *_strays(known, "", kappa), dtype)})

    return _twice(judge, reference)


def _strays(reference: Reference, name: str, kappa: float) -> tuple[float, float]:
    """(ν, (κ − KAPPA)/KAPPA · λ): the error that every method may have, and what this one may add to it, over KAPPA."""
    noise = reference.noise[name]
    lost = reference.lost.get(name, noise)
    return noise, (kappa - KAPPA) / KAPPA * lost if kappa > KAPPA else 0.0


def _along(apart: Any, exact: Any, reference: Reference, name: str, kappa: float) -> Along:
    flat, more = exact.ravel(), max(0.0, kappa - KAPPA) / KAPPA
    lost = more * reference.lost_along.get(name, reference.along[name])
    return Along(float(apart.ravel() @ flat) / float(flat @ flat), reference.along[name], lost)


def _norm(leaf: Any) -> float:
    """‖leaf‖ of a float64 array: `numpy.linalg.norm` without its checks of the argument."""
    flat = leaf.ravel()
    return math.sqrt(flat.dot(flat))


def _undeclared(distance: float, size: float, whole: float, declared: tuple[float, float], dtype: str) -> float:
    """The part of a distance that a declared error does not explain; NaN stays NaN."""
    relative, absolute = declared
    scale = size if size > UNIT_ROUNDOFF[dtype] * whole else whole
    explained = relative * scale + absolute
    return 0.0 if distance <= explained else distance - explained if math.isfinite(distance) else distance


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
