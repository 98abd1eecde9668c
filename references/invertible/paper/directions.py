"""Projections along directions that are not drawn at random: at a known angle to the gradient, and past gradients."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from gradgate.references.backends import leaves, to_numpy
from gradgate.references.invertible.paper import digits
from gradgate.references.invertible.problem import InvertibleProblem, InvertibleSpec

ANGLES = (0.1, 0.5, 1.4)
"""Radians between direction and gradient."""


def _flat(tree: Any) -> Any:
    return np.concatenate([to_numpy(leaf).ravel() for leaf in leaves(tree)])


def error_over_sine(angle: float, seeds: int = 5) -> float:
    """Relative error of the projection along a unit direction, over the sine of its angle to the gradient (§6.7).

    The direction turns the gradient towards a drawn one. The largest of several draws.
    """
    import jax
    from jax.flatten_util import ravel_pytree

    from gradgate.references.invertible.in_jax import methods

    worst = 0.0
    with jax.enable_x64(True):
        problem: Any = InvertibleSpec(layers=3, channels=6).build("jax")
        exact = _flat(methods.backprop(problem)[1])
        _, unravel = ravel_pytree(problem.params)
        ahead = exact / np.linalg.norm(exact)
        for seed in range(seeds):
            aside = np.random.default_rng(seed).standard_normal(exact.size)
            aside -= (aside @ ahead) * ahead
            u = math.cos(angle) * ahead + math.sin(angle) * aside / np.linalg.norm(aside)
            estimate = _flat(methods.along(problem, unravel(jax.numpy.asarray(u)))[1])
            worst = max(worst, float(np.linalg.norm(estimate - exact) / np.linalg.norm(exact)))
    return worst / math.sin(angle)


@functools.cache
def past_share(steps: int = 60) -> float:
    """The share of ‖∇J‖ that the last step's gradient keeps as a direction, times √P: a normal u keeps 1/√P (§3.3).

    The median over the steps of one training on the digits, from the second step on; Adam, a batch of its own per step.
    """
    import jax

    from gradgate.references.backends import precision, to_backend
    from gradgate.references.invertible.in_jax import methods
    from gradgate.references.invertible.paper.steps import adam, adam_state

    xs, classes = digits.digits(4)
    spec, rng = digits.network(0, 0.3), np.random.default_rng(7)

    def step(problem: InvertibleProblem, state: Any, number: Any) -> Any:
        _, grads = methods.backprop(problem)
        visit = adam(1e-3, number)
        moved = {key: visit(problem.params[key], grads[key], state[key]) for key in grads}
        return grads, {key: p for key, (p, _) in moved.items()}, {key: left for key, (_, left) in moved.items()}

    shares, last = [], None
    with precision("jax", spec.dtype):
        problem: Any = spec.build("jax")
        state, stepped = adam_state(problem.params), jax.jit(step)
        for number in range(steps):
            chosen = rng.integers(0, len(xs), spec.batch)
            data = {"x": to_backend("jax", xs[chosen], spec.dtype), "targets": to_backend("jax", classes[chosen])}
            problem = problem._replace(data={**problem.data, **data})
            grads, params, state = stepped(problem, state, float(number + 1))
            now = _flat(grads)
            if last is not None:
                shares.append(abs(float(now @ last)) / float(np.linalg.norm(now) * np.linalg.norm(last)))
            last, problem = now, problem.with_params(params)
    return float(np.median(shares)) * math.sqrt(now.size)
