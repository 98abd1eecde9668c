"""What a program may lose because results on its way are too small for its dtype.

In floats a result below the smallest normal number of its dtype, 2⁻¹²⁶ in float32, may be zero: it underflows, or XLA
flushes it to zero, or what it is computed from overflows, as y² does in 1/y². Or it is rounded to a multiple of the
smallest number η, 2⁻¹⁴⁹ in float32. So the float lies between zero and the result, or beyond it by at most η/2. Later
operations may make this loss larger than any rounding: e²ˣ·e⁻ˣ is zero in float32 at x = −60, and eˣ is not. Rounding
is measured (`gradgate.references.oracle`); this loss is computed here. The program is evaluated in balls twice. The
first time nothing is lost, so the answer is that of its formula. The second time each result that is too small becomes
the ball of all these numbers. How far the balls of the second answer reach beyond the first answer is what the loss
explains. It explains no more: every result that a float can hold is exact in both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import arb

from gradgate.references.backends import named_leaves
from gradgate.references.contract import Problem, Tree
from gradgate.suites.exact import balls
from gradgate.suites.exact.parting import Watch
from gradgate.suites.exact.programs import traced

Run = Callable[[Problem, Tree], Tree]
"""A program of a problem and a vector."""


@dataclass(frozen=True)
class Losses:
    """What the formula of a program gives, and what floats may lose of it.

    Attributes:
        formula: path -> float64, the answer if nothing is lost.
        lowest, highest: path -> float64, by how much an answer that has lost small results may differ from it.
    """

    formula: dict[str, Any]
    lowest: dict[str, Any]
    highest: dict[str, Any]

    def unexplained(self, got: Mapping[str, Any], exact: Mapping[str, Any]) -> dict[str, Any]:
        """Path -> the truth, and the part of the error of a float that they do not explain."""
        found = {}
        for path, leaf in got.items():
            error = leaf - exact[path]
            found[path] = exact[path] + error - np.clip(error, self.lowest[path], self.highest[path])
        return found


def losses(run: Run, problem: Problem, vector: Tree) -> Losses:
    """The losses of a program in the dtype of a problem.

    Raises:
        Unknown: an operation has no rule. Undecided: a comparison is not decided, or something is divided by a result
            that may be lost.

    Cost: two evaluations in sixty digits.
    """
    dtype = np.finfo(problem.dtype)
    least, half = float(dtype.tiny), arb(float(dtype.smallest_subnormal)) / 2
    plain = _answer(run, problem, vector, lambda *_: None)
    formula, lowest, highest = {}, {}, {}
    with balls.digits(balls.DIGITS):
        widest = _answer(run, problem, vector, lambda _, __, values: _all_widened(values, least, half))
        for path, array in widest.items():
            if not all(one.is_finite() for one in balls.whole(array).ravel()):
                raise balls.Undecided("something is divided by a result that may be zero")
            formula[path] = balls.floats(plain[path])
            lowest[path], highest[path] = (
                balls.floats(balls.whole(balls.elementwise(end, array) - plain[path])) for end in (arb.lower, arb.upper)
            )
    return Losses(formula, lowest, highest)


def _answer(run: Run, problem: Problem, vector: Tree, watch: Watch) -> dict[str, Any]:
    """Path -> balls of what a program answers, with a watch of its intermediate values."""
    if problem.backend == "jax":
        import jax

        program = traced(run, problem, vector)
        flat = program.evaluate(problem, vector, watch=watch)
        return dict(named_leaves(jax.tree.unflatten(program.structure, flat)))
    from gradgate.suites.exact import on_torch

    def one(operation: str, line: str, value: Any) -> Any:
        return (watch(operation, line, [value]) or [None])[0]

    found = on_torch.evaluate(lambda: run(problem, vector), watch=one)
    return dict(zip(named_leaves(found.answer), found.outputs, strict=True))


def _all_widened(values: Sequence[Any], least: float, half: Any) -> list[Any]:
    """Arrays with the ball from zero to it, and up to `half` beyond, in the place of each number below `least`."""

    def widened(one: Any) -> Any:
        small = isinstance(one, arb) and one.is_finite() and one != 0 and one.abs_upper() < least
        if not small:
            return one
        beyond = half if 2 * one.abs_upper() > half else 0  # a number below half is rounded to zero
        return arb(0).union(one - beyond if one < 0 else one + beyond)

    return [balls.elementwise(widened, value) if balls.is_balls(value) else value for value in values]
