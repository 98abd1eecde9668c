"""Calling a pair's function in JAX: outputs, and the gradient by its own backward pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradgate.references.contract import Tree
from gradgate.suites.pairs.matching import check_outputs
from gradgate.suites.pairs.pair import Pair
from gradgate.suites.pairs.spec import PairProblem, PairSpec


def gradient(pair: Pair, problem: PairProblem, options: Mapping[str, Any]) -> tuple[Any, Tree]:
    """⟨cotangents, outputs⟩ and its gradient, by `jax.vjp` of the function.

    Raises:
        Refuted: the outputs are not those of the reference.
    """
    import jax

    cotangents = problem.data["cotangents"]

    def outputs(params: Tree) -> dict[str, Any]:
        found = pair.outputs("function", problem, params, options)
        check_outputs(found, cotangents)
        return found

    found, pull = jax.vjp(outputs, problem.params)
    [grads] = pull({path: cotangents[path].astype(out.dtype) for path, out in found.items()})
    return problem.inner(found), grads


def flops(pair: Pair, spec: PairSpec) -> float:
    """FLOPs of the reference, of its jaxpr."""
    from gradgate.hw_profiles import work
    from gradgate.references.draws import shapes

    problem = shapes(spec)
    return float(work.of(lambda p: pair.outputs("reference", p, p.params), (problem,), x64=True).flops)
