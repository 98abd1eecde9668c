"""A loss that rounds as `momentum_inversion` does: it measures how many digits that method may lose (App. A.2).

The formula of the inversion is written again here and shares no function with the method, so that a bug of the method
cannot widen the method's own tolerance.
"""

from __future__ import annotations

from typing import Any

from gradgate.references.backends import scan, stop_gradient, tree_map
from gradgate.references.bilevel.inner.gradient import gradient
from gradgate.references.contract import Tree, UsageError

Carry = tuple[Tree, Tree]
"""θ_i and υ_i."""


def loss_by_inversion(problem: Any, params: Tree, amount: Any) -> Any:
    """The loss at `params`, along states rebuilt from the last one; equal to ``problem.loss`` except for rounding.

    The steps υ_{i+1} = μυ_i + ∇L_i and θ_{i+1} = θ_i − α ⊙ υ_{i+1} run forward. They are taken back from θ_T and υ_T:
    θ_i = θ_{i+1} + α ⊙ υ_{i+1}, then υ_i = (υ_{i+1} − ∇L_i)/μ. Then they run forward again, each from the rebuilt θ_i
    and υ_i, and backprop goes through them. What was rebuilt differs from what the steps compute by rounding only,
    so the difference is a constant, and value and derivatives are those of the loss.

    Args:
        problem: a BilevelProblem with the optimiser momentum.
        params: η.
        amount: a () array, in [0, 1). States are scaled by 1 + amount while they are taken back, so that each amount
            rounds differently.

    Raises:
        UsageError: the optimiser is not momentum.

    Cost: three times the inner steps of ``problem.loss``; backprop keeps the states of one of the three.
    """
    if problem.spec.optimiser != "momentum":
        raise UsageError(
            f"loss_by_inversion takes steps of momentum back: optimiser must be momentum, not {problem.spec.optimiser}"
        )

    def constant(tree: Tree) -> Tree:
        return tree_map(lambda leaf: stop_gradient(problem.backend, leaf), tree)

    def placed(tree: Tree, there: Tree) -> Tree:
        """The numbers of `there` with the derivatives of `tree`."""
        return tree_map(lambda a, b: b + (a - stop_gradient(problem.backend, a)), tree, there)

    def step(carry: Carry, x: Tree) -> tuple[Carry, Tree]:
        return _step(problem, fixed, carry, x), ()

    def again(carry: Carry, inputs: tuple[Tree, Carry]) -> tuple[Carry, Tree]:
        x, (theta, velocity) = inputs
        return _step(problem, params, (placed(carry[0], theta), placed(carry[1], velocity)), x), ()

    fixed = constant(params)
    end, _ = scan(problem.backend, step, constant(problem.init(params)), problem.xs)
    rebuilt = _rebuilt(problem, fixed, end, 1 + amount)
    (theta, _), _ = scan(problem.backend, again, problem.init(params), (problem.xs, rebuilt))
    return problem.outer_loss(placed(theta, end[0]), problem.y)


def _step(problem: Any, eta: Tree, carry: Carry, x: Tree) -> Carry:
    theta, velocity = carry
    grad = gradient(problem.backend, lambda theta: problem.inner_loss(theta, eta, x), theta)
    return problem.update(grad, theta, velocity, eta, x)


def _rebuilt(problem: Any, eta: Tree, end: Carry, scale: Any) -> Carry:
    """θ_i and υ_i of i = 0 … T−1, stacked on axis 0, from θ_T and υ_T; the computation keeps them times `scale`."""
    momentum, rates = problem.data["momentum"], problem.rates(end[0], eta)

    def back(carry: Carry, x: Tree) -> tuple[Carry, Carry]:
        theta, velocity = carry
        theta = tree_map(lambda p, a, v: p + a * v, theta, rates, velocity)
        there = tree_map(lambda p: p / scale, theta)
        grad = gradient(problem.backend, lambda theta: problem.inner_loss(theta, eta, x), there)
        velocity = tree_map(lambda v, g: (v - scale * g) / momentum, velocity, grad)
        return (theta, velocity), (there, tree_map(lambda v: v / scale, velocity))

    def flipped(leaf: Any) -> Any:
        return problem.xp.flip(leaf, axis=0)

    last = tree_map(lambda leaf: scale * leaf, end)
    _, found = scan(problem.backend, back, last, tree_map(flipped, problem.xs))
    rebuilt: Carry = tree_map(flipped, found)
    return rebuilt
