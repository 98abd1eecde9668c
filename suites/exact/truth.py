"""The true gradient of a problem for the float checks: computed in sixty digits, rounded to two float64 numbers."""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradgate.references import oracle, registry
from gradgate.references.backends import NARROW
from gradgate.references.contract import Problem, Spec, Tree, installed
from gradgate.suites.exact import balls
from gradgate.suites.exact.parting import Watch
from gradgate.suites.exact.programs import Evaluator, Recordings, Result, backprop, direction, scalar

WIDEST = 1e-25
"""Largest radius, relative to the largest number of its leaf, of a truth that is precise enough to judge float64."""
AFFORDABLE = 1e5
"""Most multiplications of a loss whose gradient is evaluated in sixty digits to judge floats: about a tenth of a
second. Above, float64 is the truth; only pairs have such losses."""
FEW = 3
"""Number of truths in PyTorch before JAX is loaded for them: what is judged on fewer problems does not wait for it."""
ZERO = 1e-17
"""Size of a leaf, relative to the largest number of the gradient, below which it counts as zero."""


@functools.lru_cache(maxsize=20_000)
def of_spec(
    spec: Spec, backend: str, rounded: str, loss: str, options: tuple[tuple[str, Any], ...]
) -> oracle.Truth | None:
    """`of_problem` for a float64 Spec, with its numbers `rounded` to a narrow dtype if one is named.

    Returns:
        None above `AFFORDABLE`.

    Raises:
        Unknown, Undecided: as `of_problem`.
    """
    if spec.work() > AFFORDABLE:
        if getattr(spec, "against_itself", False):
            raise balls.Undecided("the problem is too large for sixty digits")
        return None
    problem = oracle.in_widest(spec, backend, rounded)
    return of_problem(problem, loss, dict(options))


def reference(
    spec: Spec, backend: str, dtype: str, loss: str = "loss", rounding: str = "", **options: Any
) -> oracle.Reference:
    """The truth on the problem of one Spec, and the error of plain backprop in `dtype`.

    Arguments as for `oracle.measure`. Cost: that of `of_problem` and of `oracle.measure`.

    Raises:
        Unknown, Undecided: as `of_problem`.

    A truth is the same in both frameworks, and in JAX it takes a fifth of the time. So JAX evaluates the loss for both
    frameworks where it is loaded, or pays (`_in_jax`), if the claim `oracles_agree` compares the gradients of the two.
    """
    wide = spec if spec.dtype == "float64" else dataclasses.replace(spec, dtype="float64")
    asked = dtype if dtype in NARROW else "", loss, tuple(sorted(options.items()))
    alike = backend == "torch" and asked[1:] == ("loss", ()) and _in_jax() and _held_together(_place(type(spec)))
    known = of_spec(wide, "jax" if alike else backend, *asked)
    problem = oracle.in_widest(wide, backend, dtype)
    return oracle.measure(problem, dtype, loss, None, rounding, known, _inside(spec, dtype), **options)


def _inside(spec: Spec, dtype: str) -> str:
    """The dtype in which the reference of a pair is run, too, to judge a narrow dtype; "" for any other problem.

    Random numbers of PyTorch are other ones in a wider dtype, so a reference that draws some is not run.
    """
    pair = getattr(spec, "pair", None)
    if pair is None or dtype not in NARROW or pair.random:
        return ""
    return "float32" if "float32" in pair.dtypes else "float64"


def _in_jax() -> bool:
    """Whether JAX is loaded, or to load it pays: in a worker, where it is on the CPU, after `FEW` truths."""
    if "jax" in sys.modules:
        return True
    return of_spec.cache_info().misses >= FEW and os.environ.get("JAX_PLATFORMS") == "cpu" and installed("jax")


def _place(cls: type[Spec]) -> str:
    """What a family of gradgate names its class by."""
    return f"{cls.__module__}:{cls.__qualname__}"


@functools.cache
def _held_together(place: str) -> bool:
    """Whether a claim compares the plain gradients of a class of gradgate in JAX and PyTorch."""
    return any(
        one.framework == "jax" and claim.check == "oracles_agree"
        for family in registry.families().values()
        if family.spec == place
        for one in family.methods
        for claim in one.claims
    )


def of_problem(
    problem: Problem, loss: str, options: Mapping[str, Any], vector: Tree | None = None
) -> oracle.Truth | None:
    """Loss and gradient of a float64 Problem, or with a `vector` H·v; None if they cannot be evaluated in balls.

    None has one of three reasons: an operation without a rule, a comparison that is a tie, or balls that stay too wide.

    Raises:
        Unknown, Undecided: these reasons for a function that is judged against itself, whose floats say nothing else.

    Cost: 0.02 to 0.3 s at the sizes of the vocabularies.
    """
    alone = getattr(problem, "against_itself", False)
    tie = balls.Undecided("the balls stay too wide")
    run = evaluator(loss, tuple(sorted(options.items())), problem.backend)
    trees = () if vector is None else (vector,)
    for digits in (60, 120, 240):
        try:
            with balls.digits(digits):
                found = _in_floats(run(problem, digits, *trees))
        except balls.Undecided as why:
            tie = why
            continue
        except balls.Unknown:
            if alone:
                raise
            return None
        if found is not None:
            return found
    if alone:
        raise tie
    return None


@functools.lru_cache(maxsize=512)
def narrowed(shape: Spec, backend: str, loss: str, options: tuple[tuple[str, Any], ...]) -> frozenset[str]:
    """The dtypes, narrower than float64, to which a loss casts; none if it cannot be evaluated in sixty digits.

    Args:
        shape: a Spec with default values (`Spec.static`).
    """
    if shape.work() > AFFORDABLE:
        return frozenset()
    try:
        with balls.digits(60):
            found = evaluator(loss, options, backend)(oracle.in_widest(shape, backend, shape.widest), 60)
            return frozenset(found.narrowed)
    except (balls.Undecided, balls.Unknown):
        return frozenset()


@functools.lru_cache(maxsize=512)
def evaluator(loss: str, options: tuple[tuple[str, Any], ...], backend: str) -> Evaluator:
    """The plain program of a loss; kept, because a JAX program is traced once for all problems of a shape."""
    return _Plain(backprop(loss, dict(options), backend), loss=loss, options=dict(options))


@functools.lru_cache(maxsize=1024)
def result(
    spec: Spec, backend: str, loss: str, options: tuple[tuple[str, Any], ...], digits: int, twice: bool
) -> Result:
    """What the plain program of a loss gives on the problem of a float64 Spec; with `twice`, H·v of `direction`.

    All methods of a class are judged on the same problems, so most results are computed once for a process. The balls
    must not be changed.

    Raises:
        Unknown, Undecided: as `Evaluator`.
    """
    problem = oracle.in_widest(spec, backend, "float64")
    trees = (direction(problem, 0),) if twice else ()
    return evaluator(loss, options, backend)(problem, digits, *trees)


@dataclass
class _Plain(Evaluator):
    """Plain backprop. Of a function that is judged against itself: the gradient of its own forward pass (`forward`)."""

    loss: str = "loss"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(
        self,
        problem: Problem,
        digits: int,
        *trees: Tree,
        watch: Watch | None = None,
        nudge: float = 0.0,
        recordings: Recordings | None = None,
    ) -> Result:
        """`Evaluator.__call__`."""
        found = super().__call__(problem, digits, *trees, watch=watch, nudge=nudge, recordings=recordings)
        if not getattr(problem, "against_itself", False):
            return found
        from gradgate.suites.exact import forward

        def value(given: Problem) -> Any:
            return scalar(given, self.loss, self.options, *(trees or (None,)))(given.params)

        return dataclasses.replace(found, values=forward.gradient(problem, found.values, value, digits))


def _in_floats(result: Result) -> oracle.Truth | None:
    """Midpoints as two float64 numbers each; None if a ball is too wide to judge float64."""
    flat = [leaf.reshape(-1) for leaf in result.values.values()]
    highs = [balls.floats(leaf) for leaf in flat]
    sizes = [float(np.abs(high).max(initial=0.0)) for high in highs]
    whole = max(sizes[1:], default=0.0) or 1.0
    lows = []
    for leaf, high, size in zip(flat, highs, sizes, strict=True):
        radii = np.array([float(ball.rad()) for ball in leaf])
        if not (np.isfinite(high).all() and (radii <= WIDEST * max(size, ZERO * whole)).all()):
            return None
        lows.append(np.array([float(ball.mid() - top) for ball, top in zip(leaf, high.tolist(), strict=True)]))
    return oracle.Truth(np.concatenate(highs), np.concatenate(lows))
