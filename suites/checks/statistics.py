"""Statistics: a random estimator is right if its mean is right, within a confidence interval of a stated error rate."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradgate.references.contract import Problem
from gradgate.references.oracle import split
from gradgate.suites.checks.base import Case
from gradgate.suites.judging.subject import Fault, Refuted

DRAWS = 400
"""Independent estimates per problem, seeds 0, 1, …"""
ERROR_RATE = 1e-6
"""Chance that an unbiased estimator is refuted on one problem, over all its leaves together (Bonferroni)."""


def unbiased(case: Case) -> None:
    """The mean of many draws equals the oracle, leaf by leaf, projected on a fixed direction.

    Settings: ``seed_option``, the method's option that seeds it. Each leaf's estimates are projected on a random unit
    vector; the mean of DRAWS projections is compared with the oracle's by Student's t at ERROR_RATE, with Bonferroni's
    correction over leaves.
    """
    reference = case.reference("float64")
    problem = case.problem()
    rng = np.random.default_rng(case.spec.seed)
    directions = {name: _unit(rng, leaf.shape) for name, leaf in reference.grads.items()}
    draws: dict[str, list[float]] = {name: [] for name in directions}
    estimate = _estimator(case, problem)
    for seed in range(DRAWS):
        grads = estimate(seed)
        for name, direction in directions.items():
            draws[name].append(float(np.sum(grads[name] * direction)))
    limit = _t_limit(ERROR_RATE / len(draws))
    for name, found in draws.items():
        exact = float(np.sum(reference.grads[name] * directions[name]))
        spread = float(np.std(found, ddof=1)) / math.sqrt(DRAWS)
        floor = 1e-12 * (abs(exact) + float(np.abs(found).max()))  # a leaf without variance is compared as it is
        if abs(float(np.mean(found)) - exact) > limit * spread + floor:
            raise Refuted(
                f"the mean of {DRAWS} draws of {name} is {np.mean(found):.4g} ± {limit * spread:.2g}, the oracle's "
                f"{exact:.4g}: biased (error rate {ERROR_RATE:g})",
                name,
            )


def _estimator(case: Case, problem: Problem) -> Callable[[int], dict[str, Any]]:
    """Seed -> judged leaves. In JAX the seed is an argument, because otherwise each draw would be compiled anew."""
    name = case.settings["seed_option"]
    if problem.backend == "jax":
        import jax

        jitted = jax.jit(lambda problem, seed: case.subject.function(problem, **{**case.options, name: seed}))

        def draw(seed: int) -> dict[str, Any]:
            return split(problem, case.subject.guard(problem, case.options, jitted, problem, np.uint32(seed))[1])

        try:
            draw(0)
        except Fault:  # the method needs a plain integer
            pass
        else:
            return draw
    return lambda seed: case.subject.gradient(problem, {**case.options, name: seed})[1]


def _unit(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    vector = rng.standard_normal(shape)
    return vector / (np.linalg.norm(vector) or 1.0)


def _t_limit(rate: float) -> float:
    """Two-sided quantile of Student's t with DRAWS − 1 degrees of freedom, by Cornish and Fisher's expansion."""
    from statistics import NormalDist

    z, n = NormalDist().inv_cdf(1 - rate / 2), DRAWS - 1
    return z + (z**3 + z) / (4 * n) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
