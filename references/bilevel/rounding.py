"""The same function with other roundings: for the oracle's noise, and for digits that a method may lose (App. A.2).

The formulas of methods are written again here and share no function with the methods, so that a bug of a method cannot
widen the method's own tolerance.
"""

from __future__ import annotations

import math
from typing import Any

from gradgate.references.backends import UNIT_ROUNDOFF, scan, stop_gradient, tree_map
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
    _check_momentum(problem, "loss_by_inversion")

    def step(carry: Carry, x: Tree) -> tuple[Carry, Tree]:
        return _step(problem, fixed, carry, x), ()

    def again(carry: Carry, inputs: tuple[Tree, Carry]) -> tuple[Carry, Tree]:
        x, (theta, velocity) = inputs
        there = _placed(problem, carry[0], theta), _placed(problem, carry[1], velocity)
        return _step(problem, params, there, x), ()

    fixed = _constant(problem, params)
    end, _ = scan(problem.backend, step, _constant(problem, problem.init(params)), problem.xs)
    rebuilt = _rebuilt(problem, fixed, end, 1 + amount)
    (theta, _), _ = scan(problem.backend, again, problem.init(params), (problem.xs, rebuilt))
    return problem.outer_loss(_placed(problem, theta, end[0]), problem.y)


def loss_on_a_grid(problem: Any, params: Tree, amount: Any) -> Any:
    """The loss at `params`, with every υ_i rounded to a grid; equal to ``problem.loss`` except for rounding.

    A number is rounded by a roundoff or two of the largest number of its leaf in all steps: twice that number is added
    to it and subtracted again. The steps are run once before, to find the largest.

    Args, raises:
        As `loss_by_inversion`; each υ_i is scaled by 1 + amount while it is rounded.

    Cost: twice the inner steps of ``problem.loss``.
    """
    _check_momentum(problem, "loss_on_a_grid")
    backend, xp, scale = problem.backend, problem.xp, 1 + amount
    momentum, rates = problem.data["momentum"], problem.rates(problem.init(params)[0], params)

    def plain(carry: tuple[Carry, Tree], x: Tree) -> tuple[tuple[Carry, Tree], Tree]:
        state, most = carry
        state = _step(problem, fixed, state, x)
        return (state, tree_map(lambda top, v: xp.maximum(top, xp.max(xp.abs(v))), most, state[1])), ()

    def step(carry: Carry, x: Tree) -> tuple[Carry, Tree]:
        theta, velocity = carry
        grad = gradient(backend, lambda theta: problem.inner_loss(theta, params, x), theta)
        velocity = tree_map(lambda v, g: momentum * v + g, velocity, grad)
        rounded = tree_map(lambda v, top: ((scale * v + 2 * top) - 2 * top) / scale, velocity, tops)
        velocity = _placed(problem, velocity, _constant(problem, rounded))
        return (tree_map(lambda p, a, v: p - a * v, theta, rates, velocity), velocity), ()

    fixed = _constant(problem, params)
    start = _constant(problem, problem.init(params))
    (_, tops), _ = scan(backend, plain, (start, tree_map(lambda v: xp.max(xp.abs(v)), start[1])), problem.xs)
    (theta, _), _ = scan(backend, step, problem.init(params), problem.xs)
    return problem.outer_loss(theta, problem.y)


def nudged(xp: Any, tree: Tree, amount: Any, dtype: str) -> Tree:
    """`tree` with one floating number of twelve moved by 2u, up or down; which, depends on its place and on `amount`.

    This has the mean square of a rounding error, (2u)²/12.

    Args:
        amount: a () array, in [0, 1); 0 moves nothing.
        dtype: the dtype of the numbers, with unit roundoff u.
    """

    def one(leaf: Any) -> Any:
        if not xp.isdtype(leaf.dtype, "real floating"):
            return leaf
        places = xp.reshape(xp.arange(1, math.prod(leaf.shape) + 1, dtype=xp.float32), tuple(leaf.shape))
        wave = xp.sin(1000 * places * xp.astype(amount, xp.float32))
        signs = xp.round(0.5 * wave / math.cos(math.pi / 24))  # ±1 near the tops of the wave, for a twelfth of it
        return leaf * (1 + 2 * UNIT_ROUNDOFF[dtype] * xp.astype(signs, leaf.dtype))

    return tree_map(one, tree)


def _check_momentum(problem: Any, loss: str) -> None:
    optimiser = problem.spec.optimiser
    if optimiser != "momentum":
        raise UsageError(f"{loss} takes steps of momentum back: optimiser must be momentum, not {optimiser}")


def _constant(problem: Any, tree: Tree) -> Tree:
    return tree_map(lambda leaf: stop_gradient(problem.backend, leaf), tree)


def _placed(problem: Any, tree: Tree, there: Tree) -> Tree:
    """The numbers of `there` with the derivatives of `tree`."""
    return tree_map(lambda a, b: b + (a - stop_gradient(problem.backend, a)), tree, there)


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
