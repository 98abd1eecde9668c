"""Which sides a program's decisions can take at all: proved by one evaluation whose inputs are wide balls.

Every number of the inputs becomes a ball of its own that holds all numbers it may be. An operation on balls holds every
result, so where the ball of left − right excludes zero, the comparison goes the same way for all inputs. A comparison
that may go both ways gives both: a choice by it gives a ball that holds both of its numbers. A branch, a loop or an
index by it ends the proof, as do operations that are not in `SOUND`, whose rules are for balls that are nearly points.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from flint import arb

from gradgate.references.backends import to_numpy
from gradgate.references.contract import Problem
from gradgate.suites.exact import balls, decisions
from gradgate.suites.exact.decisions import Place
from gradgate.suites.exact.parting import Watch, short_name
from gradgate.suites.exact.programs import Evaluator

SOUND = frozenset(
    (
        *("add", "add_any", "sub", "rsub", "mul", "div", "neg", "reciprocal", "integer_pow", "pow", "square", "sign"),
        "one_minus_square",
        *(
            "exp",
            "exp2",
            "expm1",
            "log",
            "log1p",
            "log2",
            "log10",
            "sqrt",
            "rsqrt",
            "sin",
            "cos",
            "tanh",
            "erf",
            "erfc",
        ),
        *(
            "logistic",
            "sigmoid",
            "lt",
            "le",
            "gt",
            "ge",
            "eq",
            "ne",
            "max",
            "min",
            "maximum",
            "minimum",
            "clamp",
            "sgn",
        ),
        *(
            "clamp_min",
            "clamp_max",
            "hardtanh",
            "relu",
            "threshold",
            "threshold_backward",
            "hardtanh_backward",
            "floor",
        ),
        *("leaky_relu", "leaky_relu_backward", "elu", "elu_backward", "silu", "silu_backward", "tanh_backward", "ceil"),
        *(
            "sigmoid_backward",
            "gelu",
            "gelu_backward",
            "softplus",
            "softplus_backward",
            "select_n",
            "where",
            "masked_fill",
        ),
        *("and", "or", "not", "xor", "logical_and", "logical_or", "logical_not", "logical_xor", "is_finite", "cond"),
        *("while", "scan", "reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or"),
        *("sum", "mean", "prod", "amax", "amin", "dot_general", "mm", "bmm", "matmul", "mv", "dot", "addmm", "addmv"),
        *("addcmul", "addcdiv", "lerp", "broadcast_in_dim", "reshape", "transpose", "squeeze", "expand_dims", "slice"),
        *(
            "concatenate",
            "pad",
            "rev",
            "iota",
            "gather",
            "scatter-add",
            "scatter_add",
            "dynamic_slice",
            "copy",
            "clone",
        ),
        *(
            "dynamic_update_slice",
            "convert_element_type",
            "_to_copy",
            "stack",
            "cat",
            "index",
            "index_select",
            "embedding",
        ),
        *("index_put", "roll", "repeat", "constant_pad_nd", "select_backward", "slice_backward", "diagonal_backward"),
        *("cumsum", "cumprod", "flip", "tril", "triu", "split", "isnan", "isinf", "abs"),
    )
)
"""Operations whose rules hold for balls of any width."""
Range = tuple[float, float]
Ranges = Callable[[str, str], Range | None]
"""``params``, ``given`` or ``cotangents``, and a path -> the least and the largest of its numbers; None if its numbers
are taken as they are."""
Sides = dict[tuple[str, str], dict[float | None, set[int]]]
"""Operation and line -> right operand, as in `decisions.Place` -> the sides that its comparisons may take."""


def sides(program: Evaluator, problem: Problem, ranges: Ranges, digits: int = balls.DIGITS) -> Sides:
    """The sides that each decision may take for any inputs within ranges.

    Args:
        problem: a float64 Problem of a pair, whose integers and shapes are taken as they are.
        ranges: of its floating inputs and cotangents.

    Raises:
        Exception: nothing is proved; of Undecided and Unknown the message says why.

    Cost: that of a watched evaluation.
    """
    found: Sides = {}

    def watch(operation: str, line: str, values: Sequence[Any]) -> None:
        compared = list(pending)
        pending.clear()
        if short_name(operation) not in SOUND:
            raise balls.Undecided(f"{operation}, for all inputs")
        if not all(map(_usable, values)):
            raise balls.Undecided(f"whether the result of {operation} is a number, for all inputs")
        if compared:
            known = [other for _, other, _ in compared]
            exact = all(other is not None and other.is_exact() for other in known)
            right = decisions._constant(compared) if exact else None
            add(found, {(operation, line): {right: {side for *_, side in compared}}})

    with balls.digits(digits), balls.comparing() as pending:
        trees = {"params": problem.params, **problem.data}
        arrays = {name: _wide(name, tree, ranges) for name, tree in trees.items()}
        with balls.wide():
            _run(program, problem, arrays, digits, watch)
    return found


def add(into: Sides, found: Sides) -> None:
    """Add what another evaluation found."""
    for place, known in found.items():
        for right, taken in known.items():
            into.setdefault(place, {}).setdefault(right, set()).update(taken)


def reachable(found: Sides, place: Place) -> set[int] | None:
    """The sides that a decision may take; None if it was not met."""
    known = found.get(place[:2], {})
    those = [taken for right, taken in known.items() if place[2] is None or right in (None, place[2])]
    return set().union(*those) if those else None


def _run(program: Evaluator, problem: Problem, arrays: Mapping[str, Any], digits: int, watch: Watch) -> None:
    if problem.backend == "jax":
        data = {name: {**tree, **arrays[name]} for name, tree in problem.data.items()}
        given = dataclasses.replace(problem, params={**problem.params, **arrays["params"]}, data=data)
        done = Evaluator.__call__(program, given, digits, watch=watch)
        if done.tiles or done.notes:
            raise balls.Undecided("what a kernel does, for all inputs")
        return
    from gradgate.suites.exact import on_torch

    trees = {"params": problem.params, **problem.data}
    pairs = [(trees[name][path], array) for name, tree in arrays.items() for path, array in tree.items()]
    ran = on_torch.evaluate(
        lambda: program.function(problem),
        digits=digits,
        watch=lambda operation, line, value: watch(operation, line, [value]),
        given=pairs,
    )
    if ran.exits or ran.tiles or ran.notes:
        raise balls.Undecided("a number that is read out of a tensor, for all inputs")


def _wide(name: str, tree: Mapping[str, Any], ranges: Ranges) -> dict[str, Any]:
    """Path -> array of balls, each another object, because an object compared with itself is equal."""
    made = {}
    for path, leaf in tree.items():
        array = to_numpy(leaf)
        ends = ranges(name, path) if array.dtype.kind == "f" else None
        if ends is not None:
            made[path] = balls.elementwise(lambda _, ends=ends: balls.between(*ends), array)
    return made


def _usable(values: Any) -> bool:
    """Whether the balls among a result are numbers, or infinities that are known."""
    if not balls.is_balls(values) or not values.size or not isinstance(values.flat[0], arb):
        return not balls.is_balls(values) or not values.size or balls.is_truth(values)
    return all(not ball.is_nan() and (ball.is_finite() or ball.is_exact()) for ball in np.ravel(values).tolist())
