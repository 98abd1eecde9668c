"""The inner optimisers Υ (Eq. 4), written once for NumPy, JAX and PyTorch, as pure functions leaf by leaf.

Each is elementwise, so it may be applied to any part of the parameters if the gradient, the state and the learning
rates are cut in the same way. `learning_rate` is one number, or a tree like the parameters.

The second-derivative trap of Adam: √v̂ has no derivative at v̂ = 0. This happens if a parameter never had a gradient,
such as the embedding of a token that did not occur. Backprop of √ makes ∞·0 = NaN there. But v̂ = 0 means that all
gradients so far are 0, hence m̂ = 0. If the gradients are moved by ε, m̂ and √v̂ are both O(ε), and the step m̂/(√v̂ +
ϵ) is m̂/ϵ + O(ε²): its derivative there is dm̂/ϵ. `safe_root` gives √ the derivative 0 at 0, which yields exactly this
derivative. A second derivative of the step does not exist at v̂ = 0 unless `epsilon_root` is positive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gradgate.references.backends import tree_map
from gradgate.references.contract import Tree


@dataclass(frozen=True)
class Optimiser:
    """An inner optimiser.

    Attributes:
        init: ``(xp, theta) -> state``; trees of zeros like theta, or the empty tuple.
        update: ``(xp, h, rate, step, grad, theta, state) -> (theta, state)``; h holds the hyperparameters, () arrays
            ``momentum``, ``decay``, ``epsilon`` and ``epsilon_root``; rate is a tree like theta; step counts from 1.
    """

    init: Callable[..., Tree]
    update: Callable[..., tuple[Tree, Tree]]


def _zeros(xp: Any, theta: Tree) -> Tree:
    return tree_map(xp.zeros_like, theta)


def _descend(rate: Tree, direction: Tree, theta: Tree) -> Tree:
    return tree_map(lambda a, d, p: p - a * d, rate, direction, theta)


def sgd_update(
    xp: Any, h: dict[str, Any], rate: Tree, step: Any, grad: Tree, theta: Tree, state: Tree
) -> tuple[Tree, Tree]:
    """θ − α ⊙ g; there is no state."""
    return _descend(rate, grad, theta), state


def momentum_update(
    xp: Any, h: dict[str, Any], rate: Tree, step: Any, grad: Tree, theta: Tree, state: Tree
) -> tuple[Tree, Tree]:
    """υ' = μυ + g; θ − α ⊙ υ' (Polyak, 1964), as in `torch.optim.SGD` and ``optax.sgd``."""
    velocity = tree_map(lambda v, g: h["momentum"] * v + g, state, grad)
    return _descend(rate, velocity, theta), velocity


def momentum_theta_before(rate: Tree, theta: Tree, velocity: Tree) -> Tree:
    """The parameters before a step of `momentum_update`, from parameters and velocity after it (Maclaurin, 2015)."""
    return tree_map(lambda a, v, p: p + a * v, rate, velocity, theta)


def momentum_velocity_before(momentum: Any, grad: Tree, velocity: Tree) -> Tree:
    """The velocity before a step, from the one after it and the gradient at the parameters before it.

    Cost in digits: dividing by μ magnifies the velocity's rounding errors by 1/μ per step taken back.
    """
    return tree_map(lambda v, g: (v - g) / momentum, velocity, grad)


def adam_update(
    xp: Any, h: dict[str, Any], rate: Tree, step: Any, grad: Tree, theta: Tree, state: dict[str, Tree]
) -> tuple[Tree, dict[str, Tree]]:
    """Adam (Kingma & Ba, 2014, Algorithm 1), α per parameter: θ − α ⊙ m̂ / (√(v̂ + epsilon_root) + epsilon)."""
    b1, b2 = h["momentum"], h["decay"]
    m = tree_map(lambda m, g: b1 * m + (1 - b1) * g, state["m"], grad)
    v = tree_map(lambda v, g: b2 * v + (1 - b2) * g * g, state["v"], grad)
    state = {"m": m, "v": v}
    return _descend(rate, adam_direction(xp, h, step, state), theta), state


def adam_direction(xp: Any, h: dict[str, Any], step: Any, state: dict[str, Tree]) -> Tree:
    """m̂ / (√(v̂ + epsilon_root) + epsilon) of the state after a step, which the step multiplies by α."""
    t = xp.astype(step, h["momentum"].dtype)
    first, second = 1 - h["momentum"] ** t, 1 - h["decay"] ** t

    def one(m: Any, v: Any) -> Any:
        return m / first / (safe_root(xp, v / second + h["epsilon_root"]) + h["epsilon"])

    return tree_map(one, state["m"], state["v"])


def safe_root(xp: Any, x: Any) -> Any:
    """√x for x ≥ 0, with the derivative 0 at 0 in place of ∞."""
    positive = x > 0
    return xp.where(positive, xp.sqrt(xp.where(positive, x, xp.ones_like(x))), xp.zeros_like(x))


OPTIMISERS = {
    "sgd": Optimiser(lambda xp, theta: (), sgd_update),
    "momentum": Optimiser(_zeros, momentum_update),
    "adam": Optimiser(lambda xp, theta: {"m": _zeros(xp, theta), "v": _zeros(xp, theta)}, adam_update),
}
"""Name -> inner optimiser."""
DIRECTIONS: dict[str, Callable[..., Tree]] = {"momentum": lambda xp, h, step, state: state, "adam": adam_direction}
"""Name -> what the rates multiply, ``(xp, h, step, state after the step) -> tree``, of steps that read no gradient."""
