"""How small a mistake verify detects: the smallest relative error, planted in one leaf, that a claim refutes.

A method is judged on the problems of one of its gradient claims, as verify draws them. In one leaf at a time its
gradient g is replaced by (1 + δ)·g on every problem, and both rules judge: each problem alone (`tolerance`) and all
together (`population`). The figure of a leaf is the smallest δ of a grid such that it and every larger δ are refuted.
The figure of a kind of leaf is that of its worst leaf.

Floats detect a coherent error from this size on. A wrong formula is refuted in sixty digits, however small its error.

The limit is what plain backprop does itself. The rule of the population refutes a common factor 1 + δ only if δ is
above EXCESS·|bias of plain backprop| and above DEVIATIONS standard deviations of its mean (`population`). Where plain
backprop has a bias of 2%, no method can be refuted for 4%, because right methods in another order of sums have twice
that bias. So the record holds this bound beside the figure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradgate.references import registry
from gradgate.references.backends import UNIT_ROUNDOFF
from gradgate.references.claims import GRADIENT_CLAIMS
from gradgate.references.contract import Spec
from gradgate.suites.checks import CHECKS, Case
from gradgate.suites.checks.base import Rejected
from gradgate.suites.engine.given import Judging
from gradgate.suites.engine.search import draw
from gradgate.suites.judging.population import Population, kind_of, scalings
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.subject import Subject
from gradgate.suites.judging.tolerance import Along, Comparison, compare
from gradgate.suites.workers.worker import relieve


def _grid(low: int, high: int) -> tuple[float, ...]:
    """1, 2 and 5 times the powers of ten from 10^low to 10^high, the smallest first."""
    return (*(float(f"{step}e{k}") for k in range(low, high) for step in (1, 2, 5)), 10.0**high)


FINE = (0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.045, 0.05, 0.055, 0.06, 0.07, 0.08, 0.09)
"""Relative errors between 0.01 and 0.1, for bfloat16."""
PLANTED = {
    "float64": _grid(-15, -6),
    "float32": _grid(-7, -1),
    "bfloat16": (*_grid(-3, -2)[:-1], *FINE, *_grid(-1, 0)),
}
"""Relative errors that are planted. In bfloat16 they are close to each other around 0.05, which is near the limit."""


@dataclass(frozen=True)
class Smallest:
    """The smallest planted error that is refuted in a kind of leaf; a larger one is more.

    Attributes:
        delta: the error; infinite if nothing of the grid is refuted.
        leaf: the worst leaf of the kind.
        bound: the smallest bound on a common factor in that leaf; None if too few problems have the leaf.
    """

    delta: float
    leaf: str
    bound: float | None = None

    def to_list(self) -> list[str]:
        """As the record holds it."""
        return [f"{self.delta:g}", self.leaf, *([] if self.bound is None else [f"{self.bound:.2g}"])]


@dataclass(frozen=True)
class Planted:
    """One leaf on one problem. For the gradient (1 + δ)·g, error / noise is √(a + 2bδ + cδ²) / noise.

    Attributes:
        shape: the shape of the problem, as JSON.
        noise: relative to the leaf, as in `Comparison.leaves`.
        parts: (a, b, c), relative to the square of the leaf's scale.
        along: as in `Comparison.along`, with nothing planted.
        length: ⟨g, g*⟩/‖g*‖².
    """

    shape: str
    noise: float
    parts: tuple[float, float, float]
    along: Along | None
    length: float

    def ratio(self, delta: float) -> float:
        """Error over noise with δ planted."""
        a, b, c = self.parts
        return float(np.sqrt(max(0.0, a + 2 * b * delta + c * delta * delta))) / self.noise

    def comparison(self, leaf: str, dtype: str, delta: float) -> Comparison:
        """The comparison of this leaf with δ planted."""
        ratio = self.ratio(delta)
        along = {}
        if self.along is not None:
            along = {leaf: dataclasses.replace(self.along, error=self.along.error + delta * self.length)}
        return Comparison(dtype, {leaf: (ratio * self.noise, self.noise, ratio)}, along=along)


def of_method(family: str, method: str, framework: str, examples: int, seed: int) -> dict[str, dict[str, list[str]]]:
    """Dtype -> kind of leaf -> `Smallest.to_list`, for every dtype that the method supports."""
    subject = Subject.load(registry.methods(family, method, framework)[0])
    names = {claim.name for claim in subject.declared.claims}
    return {
        dtype: {kind: found.to_list() for kind, found in smallest(subject, dtype, Run(examples, seed)).items()}
        for dtype in PLANTED
        if GRADIENT_CLAIMS[dtype] in names
    }


def smallest(subject: Subject, dtype: str, run: Run) -> dict[str, Smallest]:
    """Kind of leaf -> the smallest planted error that is refuted in `dtype` in its worst leaf.

    Leaves that are zero on every problem are left out.

    Cost: the time of one claim's problems, and as much again for the planted errors.
    """
    claim = subject.declared.claim(GRADIENT_CLAIMS[dtype])
    search, leaves = Judging(), dict[str, list[Planted]]()

    def put(spec: Spec, options: Mapping[str, Any]) -> None:
        key = spec.to_json() + repr(options)
        if key in search.judged:
            return
        case = Case(subject, claim, spec, options)
        reference = case.reference(dtype)
        _, grads = subject.gradient(case.problem(dtype), options)
        found = compare(grads, reference, dtype, claim.settings.get("kappa", subject.declared.kappa))
        for leaf, one in _plant(found, grads, reference, spec.static().to_json()).items():
            leaves.setdefault(leaf, []).append(one)
        search.judged[key] = None
        if len(search.judged) % 10 == 0:
            relieve()

    def unless_rejected(spec: Spec, options: Mapping[str, Any]) -> None:
        try:
            put(spec, options)
        except Rejected:
            search.judged[spec.to_json()] = None

    draw(search, unless_rejected, subject.declared, claim, CHECKS[claim.check], run)
    kinds: dict[str, list[Smallest]] = {}
    for leaf, rows in leaves.items():
        along = [(row.shape, row.along) for row in rows if row.along]
        bound = min((one.bound for one in scalings(dtype, leaf, along)), default=None)
        kinds.setdefault(kind_of(leaf), []).append(Smallest(_smallest(leaf, rows, dtype), leaf, bound))
    return {kind: max(found, key=lambda one: (one.delta, one.leaf)) for kind, found in kinds.items()}


def _plant(found: Comparison, grads: Mapping[str, Any], reference: Any, shape: str) -> dict[str, Planted]:
    sizes = {name: float(np.linalg.norm(leaf)) for name, leaf in reference.grads.items()}
    whole = float(np.sqrt(sum(size * size for size in sizes.values())))
    planted = {}
    for leaf, (_, noise, _) in found.leaves.items():
        size = sizes[leaf]
        if size <= UNIT_ROUNDOFF[found.dtype] * whole or not np.isfinite(noise):
            continue
        got = np.asarray(grads[leaf], float).ravel()
        apart = got - (reference.grads[leaf] + reference.rest.get(leaf, 0.0)).ravel()
        parts = (apart @ apart / size**2, apart @ got / size**2, got @ got / size**2)
        length = float(got @ reference.grads[leaf].ravel()) / size**2
        planted[leaf] = Planted(shape, noise, tuple(map(float, parts)), found.along.get(leaf), length)  # type: ignore[arg-type]
    return planted


def _smallest(leaf: str, rows: list[Planted], dtype: str) -> float:
    best = float("inf")
    for delta in reversed(PLANTED[dtype]):
        if not _refuted(leaf, rows, dtype, delta):
            break
        best = delta
    return best


def _refuted(leaf: str, rows: list[Planted], dtype: str, delta: float) -> bool:
    together = Population()
    for row in rows:
        found = row.comparison(leaf, dtype, delta)
        if not found.equal:
            return True
        together.add(found, row.shape)
    return together.refuted() is not None
