"""Calling a pair's function in JAX: outputs, and the gradient by its own backward pass."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from gradgate.references.backends import untraceable
from gradgate.references.contract import Tree
from gradgate.suites.pairs.matching import check_outputs
from gradgate.suites.pairs.pair import Pair
from gradgate.suites.pairs.spec import PairProblem, PairSpec

STEPS = 100
"""Assumed steps of a while loop whose number of steps depends on its numbers, such as a solver's."""


def gradient(pair: Pair, problem: PairProblem, options: Mapping[str, Any], role: str = "function") -> tuple[Any, Tree]:
    """⟨cotangents, outputs⟩ and its gradient, by `jax.vjp` of the function, or of the reference.

    Raises:
        Refuted: the outputs are not those of the reference.
    """
    import jax

    cotangents = problem.data["cotangents"]

    def outputs(params: Tree) -> dict[str, Any]:
        found = pair.outputs(role, problem, params, options)
        check_outputs(found, cotangents)
        return found

    with pair.seeded(problem.spec):  # a backward pass may draw the mask of the forward pass again
        found, pull = jax.vjp(outputs, problem.params)
        [grads] = pull({path: cotangents[path].astype(out.dtype) for path, out in found.items()})
    return problem.inner(found), grads


def residual_bytes(pair: Pair, spec: PairSpec, options: Mapping[str, Any], role: str) -> int:
    """The bytes kept between the forward and the backward pass, computed from shapes alone."""
    from gradgate.hw_profiles.residuals import of_jax
    from gradgate.references.draws import shapes

    problem = shapes(spec)
    return of_jax(
        lambda params: pair.outputs(role, _holding(problem), params, options), (problem.params,),
        x64=spec.dtype == "float64",
    )  # fmt: skip


def _holding(problem: Any) -> Any:
    """The Problem with zeros in place of the shapes of its data, which a trace of the parameters closes over."""
    import jax
    import jax.numpy as jnp

    return problem._replace(data=jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), problem.data))


def flops(pair: Pair, spec: PairSpec) -> float:
    """FLOPs of the reference, counted in its jaxpr; infinitely many if JAX cannot trace it.

    A loop whose length depends on numbers counts `STEPS` steps.
    """
    from gradgate.hw_profiles import work
    from gradgate.references.draws import shapes

    problem = shapes(dataclasses.replace(spec, dtype=spec.widest))

    def outputs(given: PairProblem) -> Any:
        return pair.outputs("reference", given, given.params)

    try:
        return float(work.of(outputs, (problem,), x64=spec.widest == "float64", trips=STEPS).flops)
    except Exception as error:
        if not untraceable(error):
            raise
        return math.inf
