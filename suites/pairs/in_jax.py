"""Calling a pair's function in JAX: outputs, and the gradient by its own backward pass."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

from gradgate.references.backends import untraceable
from gradgate.references.contract import Tree
from gradgate.suites.judging.subject import first_line
from gradgate.suites.pairs import rules
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
        loss = problem.inner(found)  # before the backward pass: where two programs part is found in this order
        with rules.named(pair, role):
            [grads] = pull({path: cotangents[path].astype(out.dtype) for path, out in found.items()})
    return loss, grads


def residual_bytes(pair: Pair, spec: PairSpec, options: Mapping[str, Any], role: str) -> int:
    """The bytes kept between the forward and the backward pass, computed from shapes alone.

    Raises:
        Refusal: the function reads a number out of an array.
    """
    import jax

    from gradgate.hw_profiles.residuals import of_jax
    from gradgate.hw_profiles.torch_memory import Refusal
    from gradgate.references.draws import shapes

    problem = shapes(spec)
    forward = functools.partial(_outputs, pair, role, problem, options)
    try:
        return of_jax(forward, (problem.params,), x64=spec.dtype == "float64")
    except jax.errors.ConcretizationTypeError as error:
        raise Refusal(f"it reads a number out of an array, and a trace has none: {first_line(error)}") from error


def _outputs(pair: Pair, role: str, problem: Any, options: Mapping[str, Any], params: Tree) -> dict[str, Any]:
    return pair.outputs(role, _holding(problem), params, options)


def _holding(problem: Any) -> Any:
    """The Problem with zeros in place of the shapes of its data, which a trace of the parameters closes over."""
    import jax
    import jax.numpy as jnp

    return problem._replace(data=jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), problem.data))


def copied(leaf: Any) -> Any:
    """A copy of an array for a call that donates it; where only shapes are traced, the array itself."""
    import jax

    inner = leaf
    while isinstance(inner, jax.core.Tracer):
        inner = getattr(inner, "primal", getattr(inner, "val", None))
        if not isinstance(inner, (jax.core.Tracer, jax.Array)):
            return leaf
    return jax.numpy.array(leaf, copy=True)


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
