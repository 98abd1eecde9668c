"""The gradient that a PyTorch program's own forward pass has, from nothing but its values.

Let φ be the program's scalar, ⟨cotangents, outputs⟩, g what the program says is its gradient, and e random. Then

    D = (φ(x + he) − φ(x − he)) / 2h

is the derivative of φ along e, but for h²φ'''/6. With h = 10⁻⁸⁰ and 240 digits, D has more right digits than anything
that it is compared with. No operation needs a rule for its derivative, because only forward passes run, and these run
through custom Functions and kernels. Every decision is taken at the numbers that are evaluated.

If g is the gradient, ⟨g, e⟩ = D. If it is not, the two differ but for directions of probability zero. This is looked at
for all leaves at once and, if they differ, leaf by leaf. The gradient nearest to g for which they agree,

    g + (D − ⟨g, e⟩) e / ‖e‖²,

then takes the place of the reference's gradient. It is not the true gradient, which would take one direction for each
number. But g is at least as far from the true gradient as it is from this one.

Where the derivatives from the two sides differ, φ has none: one of its decisions is a tie, and nothing is judged there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from flint import arb

from gradgate.references.contract import Problem, Tree
from gradgate.suites.exact import balls

STEP = 80
"""h is ten to the minus this, for results of 60 digits."""
TIE = STEP // 2
"""Up to ten to the minus this, the derivatives from the two sides are one. They differ by hφ'', and half of the digits
of h are left for φ''."""
SURE = 1e-45
"""Largest difference, relative to the smallest leaf, that counts as none for all leaves at once."""

NUDGE = 2.0**-20
"""Relative change of the numbers that a program reads out of tensors, to see whether its result depends on them."""

Scalar = Callable[[Problem], Any]
"""φ: a tensor of no dimensions."""


def gradient(problem: Problem, found: Mapping[str, Any], scalar: Scalar, digits: int) -> dict[str, Any]:
    """The gradient nearest to a given one that agrees with the derivative of the forward pass along random directions.

    Args:
        problem: a float64 Problem whose params are leaf -> tensor.
        found: the loss, under "", and leaf -> gradient, in balls; what is judged.
        scalar: the forward pass, whose params require gradients.
        digits: decimal digits of `found`.

    Returns:
        `found` itself where the two agree; else with other balls in every leaf that is wrong.

    Raises:
        Unknown: as `on_torch.evaluate`. Undecided: the derivative does not exist here, or these digits do not tell.

    Cost: three forward passes in four times the digits; if the gradient is wrong, two more for every leaf.
    """
    leaves = {name: leaf for name, leaf in found.items() if name and leaf.size}
    if not leaves:
        return dict(found)
    directions = {name: _direction(problem, place, leaf.shape) for place, (name, leaf) in enumerate(leaves.items())}
    at = functools.partial(_value, problem, scalar, digits)
    middle = at({})
    apart = {name: balls.whole(leaf * directions[name]).sum() for name, leaf in leaves.items()}
    sizes = [size for leaf in leaves.values() if (size := _norm(leaf)) > 0]
    whole = _slope(at, middle, directions, digits) - sum(apart.values(), arb(0))
    if sizes and whole.abs_upper() <= SURE * min(sizes):
        return dict(found)
    nearest = dict(found)
    for name, leaf in leaves.items():
        direction = directions[name]
        missing = _slope(at, middle, {name: direction}, digits) - apart[name]
        nearest[name] = balls.whole(leaf + direction * (missing / balls.whole(direction * direction).sum()))
    return nearest


def pushed(problem: Problem, outputs: Callable[[Any], Mapping[str, Any]], vector: Tree) -> dict[str, Any]:
    """Path of an output -> its derivative along a vector, rounded to float64.

    Raises:
        Unknown, Undecided: as `gradient`.
    """
    moved = {name: balls.exact(leaf.detach().cpu().double().numpy()) for name, leaf in vector.items()}
    names: list[str] = []

    def flat(given: Problem) -> list[Any]:
        found = outputs(given)
        names[:] = found
        return list(found.values())

    low, middle, high = (_values(problem, flat, balls.DIGITS, moved, sign) for sign in (-1, 0, 1))
    with balls.digits(4 * balls.DIGITS):
        slopes = [_between(*parts, balls.DIGITS) for parts in zip(low, middle, high, strict=True)]
    return {name: balls.floats(slope) for name, slope in zip(names, slopes, strict=True)}


def _direction(problem: Problem, place: int, shape: tuple[int, ...]) -> Any:
    """Normal numbers, exact balls: an error that they do not show has probability zero."""
    seed = getattr(problem.spec, "seed", 0)
    drawn = np.random.Generator(np.random.PCG64([seed, 7000 + place])).standard_normal(shape)
    return balls.elementwise(arb, drawn)  # not `balls.exact`: these are no constants of the program


def _slope(at: Callable[..., Any], middle: Any, directions: Mapping[str, Any], digits: int) -> Any:
    """D along some directions at once."""
    low, high = at(directions, -1), at(directions, 1)
    with balls.digits(4 * digits):
        return _between(low, middle, high, digits)[()]


def _between(low: Any, middle: Any, high: Any, digits: int) -> Any:
    """The derivative from three values, elementwise.

    Raises:
        Undecided: those from the two sides differ.
    """
    step = _step(digits)
    before, after = (middle - low) / step, (high - middle) / step
    if not np.asarray(balls.elementwise(functools.partial(_alike, digits), before, after), bool).all():
        one, other = next(
            (one, other)
            for one, other in zip(balls.whole(before).ravel(), balls.whole(after).ravel(), strict=True)
            if not _alike(digits, one, other)
        )
        said = " and ".join(str(each.mid().str(6, radius=False)) for each in (one, other))
        raise balls.Undecided(f"a tie: the forward pass has no derivative here, from the two sides it is {said}")
    return balls.whole((high - low) / (2 * step))


def _alike(digits: int, one: Any, other: Any) -> bool:
    if not (one.is_finite() and other.is_finite()):
        return True  # the value says so itself
    largest = max(1.0, float(one.abs_upper().mid()), float(other.abs_upper().mid()))
    return bool((one - other).abs_upper() <= largest * arb(10) ** -(TIE * digits // balls.DIGITS))


def _step(digits: int) -> Any:
    return arb(10) ** -(STEP * digits // balls.DIGITS)


def _value(problem: Problem, scalar: Scalar, digits: int, directions: Mapping[str, Any], sign: int = 0) -> Any:
    """φ at x + sign·h·e, in four times the digits."""
    return _values(problem, lambda given: [scalar(given)], digits, directions, sign)[0]


def _values(
    problem: Problem, forward: Callable[[Problem], list[Any]], digits: int, directions: Mapping[str, Any], sign: int
) -> list[Any]:
    """What a forward pass returns at x + sign·h·e, in balls; its parameters require gradients, as a user's do."""
    from gradgate.suites.exact import on_torch

    params = {name: leaf.detach().clone().requires_grad_() for name, leaf in problem.params.items()}
    given = []
    with balls.digits(4 * digits):
        for name, direction in directions.items() if sign else ():
            start = balls.exact(params[name].detach().double().numpy())
            given.append((params[name], balls.whole(start + direction * (sign * _step(digits)))))
    run = functools.partial(forward, problem.with_params(params))
    evaluate = functools.partial(on_torch.evaluate, run, digits=4 * digits, given=given)
    found = evaluate()
    if found.exits and given:  # the numbers that leave do not move with x, so their derivative would be missing
        with balls.digits(4 * digits):
            pairs = zip(found.outputs, evaluate(nudge=NUDGE).outputs, strict=True)
            if not all(
                np.asarray(balls.elementwise(functools.partial(_alike, digits), *pair), bool).all() for pair in pairs
            ):
                raise balls.Unknown(f"its result depends on a number that it reads out of a tensor, {found.exits[0]}")
    return found.outputs


def _norm(leaf: Any) -> float:
    return float(np.linalg.norm(balls.floats(leaf).ravel()))
