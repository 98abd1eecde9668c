"""A training step that applies each gradient as Algorithm 1 hands it out, by gradient descent or by Adam; its bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradgate.references.backends import tree_map
from gradgate.references.contract import Tree, unknown
from gradgate.references.invertible.problem import InvertibleSpec

BETAS, EPSILON = (0.9, 0.999), 1e-8
"""Adam's constants, as in §6.1."""
OPTIMISERS = ("descent", "adam")


def descend(rate: float) -> Callable[[Tree, Tree, Tree], tuple[Tree, Tree]]:
    """(parameters, gradient, state) -> both updated, by gradient descent, which has no state."""
    return lambda p, dp, state: (tree_map(lambda p, g: p - rate * g, p, dp), state)


def adam(rate: float, number: Any) -> Callable[[Tree, Tree, Tree], tuple[Tree, Tree]]:
    """(parameters, gradient, state) -> both updated, by Adam in its step `number`, counted from 1.

    The state is ``{"m": …, "v": …}``, each like the parameters (Kingma and Ba, 2015).
    """
    one, two = BETAS

    def moved(p: Any, m: Any, v: Any) -> Any:
        return p - rate * (m / (1 - one**number)) / ((v / (1 - two**number)) ** 0.5 + EPSILON)

    def visit(p: Tree, dp: Tree, state: Tree) -> tuple[Tree, Tree]:
        m = tree_map(lambda m, g: one * m + (1 - one) * g, state["m"], dp)
        v = tree_map(lambda v, g: two * v + (1 - two) * g * g, state["v"], dp)
        return tree_map(moved, p, m, v), {"m": m, "v": v}

    return visit


def adam_state(params: Tree) -> Tree:
    """Moments of 0, per entry of a problem's parameters."""
    return {key: {name: tree_map(lambda leaf: leaf * 0, part) for name in "mv"} for key, part in params.items()}


def step(method: str, handed_out: bool, optimiser: str = "descent", rate: float = 1e-3) -> Callable[..., Any]:
    """(params, state, data, problem, number) -> (loss, updated params, updated state) in JAX.

    Args:
        method: whose gradient.
        handed_out: each unit's gradient is applied and dropped when `walk` hands it out; if not, all are applied at the
            end.
        optimiser: one of OPTIMISERS. The state of ``descent`` is {}, that of ``adam`` is `adam_state`'s.
        rate: the step size.

    Raises:
        UsageError: no such optimiser.
    """
    import jax

    from gradgate.references.invertible.in_jax import methods, phases

    if optimiser not in OPTIMISERS:
        raise unknown("optimiser", optimiser, OPTIMISERS)

    def stepped(params: Tree, state: Tree, data: Tree, problem: Any, number: Any = 1.0) -> tuple[Any, Tree, Tree]:
        problem = problem._replace(params=params, data=data)
        visit = adam(rate, number) if optimiser == "adam" else descend(rate)
        if handed_out:
            h, handed = phases.input_gradient_reverse(problem)
            return phases.walk(problem, h, visit, handed=handed, state=state)
        loss, grads = getattr(methods, method)(problem)
        grads = jax.lax.optimization_barrier(grads)  # all of them exist before any is applied
        moved = {key: visit(params[key], grads[key], state.get(key, {})) for key in params}
        return loss, {key: p for key, (p, _) in moved.items()}, {key: left for key, (_, left) in moved.items()}

    return stepped


def heavy() -> InvertibleSpec:
    """The Spec of 32 units with 33,000 parameters each, and 4 samples of 64 numbers."""
    return InvertibleSpec(
        dtype="float32", layers=32, channels=64, batch=4, depth=2, hidden=512, activation="relu", classes=10
    )


def step_bytes(method: str, handed_out: bool, profile: str = "nvidia-a4500", optimiser: str = "descent") -> int:
    """Temporary bytes of a step that overwrites its parameters and state, which outweigh activations here.

    Raises:
        LookupError: the profile's compiler gives no bytes; says why.
    """
    import jax

    from gradgate.references.draws import shapes
    from gradgate.references.invertible.paper.compiled import measured

    problem = shapes(heavy())
    state = jax.eval_shape(adam_state, problem.params) if optimiser == "adam" else {}
    found = measured(
        step(method, handed_out, optimiser), (problem.params, state, problem.data, problem), profile, donate=(0, 1)
    )
    return int(found.temp_bytes)
