"""Generic operators: bugs that any method can have, made from outside, by changing its inputs or its results.

An operator is a function of (method, problem, options) that returns (loss, grads). It is written for both frameworks
and runs under `jax.jit`. Whether it is active depends on shapes and options; it depends on numbers only through
`where`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from gradgate.references.backends import named_leaves, precision, stop_gradient, tree_map
from gradgate.references.contract import Problem, Tree
from gradgate.suites.bugs.mutant import Answer, Function

Operator = Callable[[Function, Any, Mapping[str, Any]], Answer]
Chosen = Callable[[str], bool]
"""Leaf path -> whether the bug is in this leaf."""


def wrapped(function: Function, operator: Operator) -> Function:
    """The method with an operator around it."""
    return lambda problem, **options: operator(function, problem, options)


def every(_: str) -> bool:
    """All leaves."""
    return True


def on_leaves(change: Callable[[Problem, Any], Any], chosen: Chosen = every) -> Operator:
    """Leaves of the gradient are changed; in a list of layers, each layer's leaves have their own paths."""

    def operator(method: Function, problem: Any, options: Mapping[str, Any]) -> Answer:
        loss, grads = method(problem, **options)
        paths = iter(named_leaves(grads))
        return loss, _mapped(grads, lambda leaf: change(problem, leaf) if chosen(next(paths)) else leaf)

    return operator


def _mapped(tree: Tree, change: Callable[[Any], Any]) -> Tree:
    """`tree_map` in the order of `named_leaves`."""
    if isinstance(tree, dict):
        done = {key: _mapped(tree[key], change) for key in sorted(tree, key=str)}
        return {key: done[key] for key in tree}
    if isinstance(tree, (list, tuple)):
        return type(tree)([_mapped(item, change) for item in tree])
    return change(tree)


def scaled(factor: float, chosen: Chosen = every) -> Operator:
    """Leaves are multiplied by a factor: a flipped sign, a term counted twice, a relative error."""
    return on_leaves(lambda problem, leaf: leaf * factor, chosen)


def added(share: float, chosen: Chosen = every) -> Operator:
    """A share of a leaf is added to it; below half a unit in the last place, floats give the same bits."""
    return on_leaves(lambda problem, leaf: leaf + share * leaf, chosen)


def elsewhere_only(dtype: str, change: Callable[[Problem, Any], Any]) -> Operator:
    """All leaves are changed, in one dtype only."""
    return on_leaves(lambda problem, leaf: change(problem, leaf) if problem.dtype == dtype else leaf)


def zeroed(chosen: Chosen = every) -> Operator:
    """Leaves are zero, as for an input that was detached."""
    return on_leaves(lambda problem, leaf: problem.xp.zeros_like(leaf), chosen)


def transposed(chosen: Chosen = every) -> Operator:
    """The last two axes are exchanged if they have equal length; other leaves are unchanged."""

    def change(problem: Problem, leaf: Any) -> Any:
        square = len(leaf.shape) >= 2 and leaf.shape[-1] == leaf.shape[-2]
        return problem.xp.matrix_transpose(leaf) if square else leaf

    return on_leaves(change, chosen)


def one_head_only(chosen: Chosen = every) -> Operator:
    """The first half of the last axis is right, and the rest is 0."""

    def change(problem: Problem, leaf: Any) -> Any:
        width = leaf.shape[-1] if leaf.shape else 1
        first = problem.xp.arange(width) < max(1, width // 2)
        return problem.xp.where(first, leaf, problem.xp.zeros_like(leaf))

    return on_leaves(change, chosen)


def row_dropped(chosen: Chosen = every) -> Operator:
    """The last row of the second-to-last axis is 0, as if a term of a sum were left out."""

    def change(problem: Problem, leaf: Any) -> Any:
        if len(leaf.shape) < 2 or leaf.shape[-2] < 2:
            return leaf
        kept = problem.xp.arange(leaf.shape[-2]) < leaf.shape[-2] - 1
        return problem.xp.where(kept[:, None], leaf, problem.xp.zeros_like(leaf))

    return on_leaves(change, chosen)


def layers_reversed(method: Function, problem: Any, options: Mapping[str, Any]) -> Answer:
    """The layers' gradients are in reversed order, along axis 0 or in a list of layers with equal shapes."""
    loss, grads = method(problem, **options)
    stacked = {
        key: tree_map(lambda leaf: problem.xp.flip(leaf, axis=0), part) if key in problem.stacked else part
        for key, part in grads.items()
    }
    if isinstance(grads.get("layers"), list):
        stacked["layers"] = _reversed_where_alike(grads["layers"])
    return loss, stacked


def _reversed_where_alike(layers: list[Tree]) -> list[Tree]:
    """Among layers with equal shapes, the gradients in reversed order."""
    kinds: dict[Any, list[int]] = {}
    for number, layer in enumerate(layers):
        shape = tuple((name, tuple(leaf.shape)) for name, leaf in named_leaves(layer).items())
        kinds.setdefault(shape, []).append(number)
    turned = {a: b for group in kinds.values() for a, b in zip(group, reversed(group), strict=True)}
    return [layers[turned[number]] for number in range(len(layers))]


def narrow(problem: Problem, leaf: Any) -> Any:
    """A leaf is cast to the next lower precision and back."""
    xp, lower = problem.xp, {"float64": "float32", "float32": "bfloat16"}.get(problem.dtype)
    return leaf if lower is None else xp.astype(xp.astype(leaf, getattr(xp, lower)), leaf.dtype)


def downcast(chosen: Chosen = every) -> Operator:
    """Leaves are cast to a lower precision and back."""
    return on_leaves(narrow, chosen)


def when(condition: Callable[[Any, Mapping[str, Any]], Any], factor: float, chosen: Chosen = every) -> Operator:
    """Leaves are multiplied by a factor if a condition on problem and options holds; it may be a traced value."""

    def operator(method: Function, problem: Any, options: Mapping[str, Any]) -> Answer:
        met = condition(problem, options)
        if met is False:
            return method(problem, **options)
        if met is True:
            return scaled(factor, chosen)(method, problem, options)
        xp = problem.xp
        return on_leaves(lambda problem, leaf: xp.where(met, leaf * factor, leaf), chosen)(method, problem, options)

    return operator


def single(fields: tuple[str, ...]) -> Callable[[Any, Mapping[str, Any]], bool]:
    """Whether one of these sizes of the problem is 1."""
    return lambda problem, options: any(getattr(problem.spec, name) == 1 for name in fields)


def largest(path: str, threshold: float) -> Callable[[Any, Mapping[str, Any]], Any]:
    """Whether a parameter in the leaves whose path contains `path` is above a threshold, such as a large decay."""

    def condition(problem: Any, options: Mapping[str, Any]) -> Any:
        tops = [problem.xp.max(leaf) for name, leaf in named_leaves(problem.params).items() if path in name]
        return problem.xp.max(problem.xp.stack(tops)) > threshold

    return condition


def on_data(change: Callable[[Any, dict[str, Any]], dict[str, Any]]) -> Operator:
    """The loss of the problem, and the gradient of the same problem with other data."""

    def operator(method: Function, problem: Any, options: Mapping[str, Any]) -> Answer:
        other = problem._replace(data=change(problem, dict(problem.data)))
        return method(problem, **options)[0], method(other, **options)[1]

    return operator


def shifted(key: str) -> Operator:
    """Off by one: each position or sample has its neighbour's target; the key may be in nested data."""

    def change(problem: Any, data: dict[str, Any]) -> dict[str, Any]:
        if key in data:
            return data | {key: problem.xp.roll(data[key], 1, axis=0)}
        return {name: change(problem, part) if isinstance(part, dict) else part for name, part in data.items()}

    return on_data(change)


def constant(key: str, value: float) -> Operator:
    """The gradient of the problem with one entry of its data set to a fixed value."""
    return on_data(lambda problem, data: data | {key: problem.xp.ones_like(data[key]) * value})


def stale(step: float) -> Operator:
    """The gradient at the parameters of the previous step."""

    def operator(method: Function, problem: Any, options: Mapping[str, Any]) -> Answer:
        before = problem.with_params(tree_map(lambda leaf: leaf * (1.0 - step), problem.params))
        return method(problem, **options)[0], method(before, **options)[1]

    return operator


def detached(method: Function, problem: Any, options: Mapping[str, Any]) -> Answer:
    """First order only: differentiated again, the gradient is a constant."""
    loss, grads = method(problem, **options)
    return loss, tree_map(lambda leaf: stop_gradient(problem.backend, leaf), grads)


def loss_off(factor: float) -> Operator:
    """The returned loss is multiplied by a factor; the gradient is right."""

    def operator(method: Function, problem: Any, options: Mapping[str, Any]) -> Answer:
        loss, grads = method(problem, **options)
        return loss * factor, grads

    return operator


def input_changed(key: str) -> Operator:
    """State is updated once too often: the gradient is right, but an input is changed."""

    def operator(method: Function, problem: Any, options: Mapping[str, Any]) -> Answer:
        answer = method(problem, **options)
        with precision(problem.backend, problem.dtype):
            problem.data[key] = problem.data[key] * 2
        return answer

    return operator


def reseeded(method: Function, problem: Any, options: Mapping[str, Any]) -> Answer:
    """The global generators are left at a fixed seed."""
    import random

    import numpy as np

    random.seed(0)
    np.random.seed(0)
    return method(problem, **options)


def chatty(method: Function, problem: Any, options: Mapping[str, Any]) -> Answer:
    """Something is printed."""
    print("gradient computed")
    return method(problem, **options)


def racing(step: float) -> Operator:
    """Every other call has a small relative difference, as with sums in the order of arrival."""
    calls = [0]

    def operator(method: Function, problem: Any, options: Mapping[str, Any]) -> Answer:
        calls[0] += 1
        return scaled(1.0 + step * (calls[0] % 2))(method, problem, options)

    return operator


def a_leaf_is_none(method: Function, problem: Any, options: Mapping[str, Any]) -> Answer:
    """One leaf of the gradient is None."""
    loss, grads = method(problem, **options)
    last = len(named_leaves(grads)) - 1
    numbers = iter(range(last + 1))
    return loss, _mapped(grads, lambda leaf: None if next(numbers) == last else leaf)


def a_wrong_shape(method: Function, problem: Any, options: Mapping[str, Any]) -> Answer:
    """One leaf is flat."""
    loss, grads = method(problem, **options)
    first = next(iter(named_leaves(grads)))
    paths = iter(named_leaves(grads))
    return loss, _mapped(
        grads, lambda leaf: leaf.reshape(math.prod(leaf.shape), 1, 1, 1) if next(paths) == first else leaf
    )


def a_wrong_dtype(method: Function, problem: Any, options: Mapping[str, Any]) -> Answer:
    """The gradient of a float64 problem comes back in float32."""
    loss, grads = method(problem, **options)
    xp = problem.xp
    return loss, tree_map(lambda leaf: xp.astype(leaf, xp.float32), grads)
