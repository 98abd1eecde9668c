"""Seconds on this machine: of forward with tangents mapped together, of compiling it unrolled, of pure Moonwalk.

Two programs take turns in one process, and the median of their quotients counts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from gradgate.references.invertible.paper import rows
from gradgate.references.invertible.problem import InvertibleSpec


def mapped_over_single(tangents: int = 256, repeats: int = 5) -> float:
    """Seconds of forward with so many tangents mapped together over those with one at a time, 8 layers (§6.2)."""
    problem = _small(8).build("jax")
    method = rows._method("forward")
    return rows.seconds_over(
        lambda problem: method(problem, tangents=tangents), lambda problem: method(problem), problem, repeats
    )


def compile_unrolled_over_mapped(repeats: int = 3) -> float:
    """Seconds of compiling forward with one JVP after the other written out, over those with a map of JVPs (§6.2)."""
    import jax

    from gradgate.references.draws import shapes

    problem = shapes(_small(1))
    mapped = rows._method("forward")

    def seconds(program: Callable[..., Any]) -> float:
        lowered = jax.jit(lambda problem: program(problem)).lower(problem)  # a new function each time: no cache
        start = time.perf_counter()
        lowered.compile()
        return time.perf_counter() - start

    return statistics.median(seconds(unrolled) / seconds(mapped) for _ in range(repeats))


def unrolled(problem: Any) -> tuple[Any, Any]:
    """Loss and gradient by one JVP per parameter, each written out in the program."""
    import jax
    import jax.numpy as jnp
    from jax.flatten_util import ravel_pytree

    flat, unravel = ravel_pytree(problem.params)
    units = jnp.eye(flat.size, dtype=flat.dtype)
    slopes = [jax.jvp(problem.loss, (problem.params,), (unravel(unit),))[1] for unit in units]
    return problem.loss(problem.params), unravel(jnp.stack(slopes))


def over_backprop(method: str, repeats: int = 5) -> float:
    """Seconds of a method over backprop's on `deep` (§1)."""
    return rows.seconds_over(rows._method(method), rows._method("backprop"), deep().build("jax"), repeats)


def deep() -> InvertibleSpec:
    """The Spec of 64 couplings of 2 numbers that are wide inside, with many samples."""
    return InvertibleSpec(
        dtype="float32", layers=64, channels=2, batch=4096, depth=2, hidden=32, activation="relu", classes=10
    )


def _small(layers: int) -> InvertibleSpec:
    return InvertibleSpec(dtype="float32", layers=layers, channels=8, batch=32, activation="relu")
