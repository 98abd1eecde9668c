"""A method, and plain backprop of the same problem, as programs that are evaluated in balls."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradgate.references.backends import (
    leaves,
    named_leaves,
    precision,
    reverse_mode,
    to_numpy,
    transforms,
    tree_map,
    untraceable,
)
from gradgate.references.contract import Problem, Tree
from gradgate.suites.exact import balls, tiles
from gradgate.suites.exact.parting import Watch
from gradgate.suites.exact.tiles import Tiles

Function = Callable[..., Tree]
"""(Problem, *trees) -> (loss, grads like params)."""
Recordings = dict[int, Any]
"""Digits -> `on_torch.recording.Recording` of a PyTorch program, or None if it cannot be recorded."""


@dataclass(frozen=True)
class Result:
    """What a program computes of one problem.

    Attributes:
        values: judged leaf -> array of balls, stacked leaves split; the loss is "".
        narrowed: dtype narrower than float64 to which the program casts -> the line of a cast, "" if it is not known.
            In this evaluation a cast changes nothing.
        exits: places where a PyTorch program reads a number out of a tensor, so that it goes on as a float.
        notes: outputs of kernels that depend on memory that nobody wrote.
        tiles: how the masks, branches and loops of Triton kernels went, and how the blocks of Pallas kernels lay.
    """

    values: dict[str, Any]
    narrowed: Mapping[str, str] = field(default_factory=dict)
    exits: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    tiles: Tiles = field(default_factory=dict)


@dataclass
class Evaluator:
    """Evaluates one function on problems; a JAX function is traced once for all problems of one shape.

    Args:
        function: (Problem, *trees) -> (loss, grads). Under JAX it is only traced, on abstract values.

    Attributes:
        tiles: those of all evaluations that nobody watched.
    """

    function: Function
    tiles: Tiles = field(default_factory=dict)
    _programs: dict[Any, Any] = field(default_factory=dict)

    def __call__(
        self,
        problem: Problem,
        digits: int,
        *trees: Tree,
        watch: Watch | None = None,
        nudge: float = 0.0,
        recordings: Recordings | None = None,
    ) -> Result:
        """Evaluate at a float64 problem.

        Args:
            trees: further arguments of the function.
            watch: is called with every intermediate value, and may replace it.
            nudge: relative change of every number that a PyTorch program reads out of a tensor.
            recordings: of this program, at problems that differ in the numbers of their tensors alone. A PyTorch
                program is then called once, as a JAX one is traced once, if that can be; nothing is nudged.

        Raises:
            Unknown: an operation has no rule; it is named.
            Undecided: a comparison is a tie in these digits.

        Cost: about 0.3 µs per multiplication and a few µs per operation, plus tracing; no compilation.
        """
        if problem.backend == "torch":
            found = self._torch(problem, digits, trees, watch, nudge, recordings)
        else:
            found = self._jax(problem, digits, trees, watch)
        if watch is None:  # the search for unseen sides watches, at inputs that may not be judged
            tiles.add(self.tiles, found.tiles)
        return found

    def _torch(
        self,
        problem: Problem,
        digits: int,
        trees: tuple[Tree, ...],
        watch: Watch | None,
        nudge: float,
        recordings: Recordings | None,
    ) -> Result:
        from gradgate.suites.exact import on_torch

        one = watch and (lambda operation, line, value: (watch(operation, line, [value]) or [None])[0])
        run = functools.partial(self.function, problem, *trees)
        if recordings is None:
            found = on_torch.evaluate(run, digits=digits, watch=one, nudge=nudge)
        else:
            inputs = [leaf for leaf in leaves([problem.params, problem.data, *trees]) if leaf is not None]
            found = on_torch.evaluate_again(run, inputs, recordings, digits, one)
        return Result(judged(problem, found.outputs), found.narrowed, found.exits, found.notes, found.tiles)

    def _jax(self, problem: Problem, digits: int, trees: tuple[Tree, ...], watch: Watch | None) -> Result:
        key = problem.spec.static(), len(trees)
        if key not in self._programs:
            with precision("jax", problem.dtype):
                self._programs[key] = traced(self.function, problem, *trees)
        program = self._programs[key]
        values = judged(problem, program.evaluate(problem, *trees, digits=digits, watch=watch))
        return Result(values, program.narrowed, notes=tuple(dict.fromkeys(program.notes)), tiles=program.tiles)


def traced(function: Function, *args: Any) -> Any:
    """A function of JAX, traced.

    Raises:
        Unknown: it needs a number while it is traced.
    """
    from gradgate.suites.exact import on_jax

    try:
        return on_jax.trace(function, *args)
    except Exception as error:
        if not untraceable(error):
            raise
        said = (str(error).strip().splitlines() or ["(no message)"])[0][:300]
        raise balls.Unknown(f"JAX cannot trace it: {said}") from None


def judged(problem: Problem, flat: list[Any]) -> dict[str, Any]:
    """Flat outputs (loss, gradient leaves in order) as judged leaves, "" the loss."""
    loss, *grads = flat
    found = {"": loss}
    for path, leaf in zip(named_leaves(problem.params), grads, strict=True):
        top, dot, rest = path.partition(".")
        if top in problem.stacked:
            found |= {f"{top}[{k}]{dot}{rest}": _array(leaf[k]) for k in range(len(leaf))}
        else:
            found[path] = leaf
    return found


def _array(element: Any) -> Any:
    if isinstance(element, np.ndarray):
        return element
    boxed = np.empty((), object)
    boxed[()] = element
    return boxed


def backprop(loss: str, options: Mapping[str, Any], backend: str) -> Function:
    """Value and gradient of ``problem.<loss>(params, **options)`` by the framework's own reverse mode.

    With a vector v as a second argument: value and gradient of ⟨gradient, v⟩; this gradient is H·v.
    """
    vjp = reverse_mode(backend)[1]

    def run(problem: Problem, vector: Tree | None = None) -> Tree:
        value, pull = vjp(scalar(problem, loss, options, vector), problem.params)
        return value, pull(problem.xp.ones_like(value))[0]

    return run


def scalar(problem: Problem, loss: str, options: Mapping[str, Any], vector: Tree | None) -> Callable[[Tree], Any]:
    """A function of params, ``problem.<loss>(params, **options)``; with a vector, ⟨its gradient, v⟩."""
    plain = functools.partial(getattr(problem, loss), **options)
    if vector is None:
        return plain
    grad = reverse_mode(problem.backend)[0]
    return lambda params: inner(grad(plain)(params), vector)


def differentiated(function: Callable[..., Any], backend: str) -> Function:
    """(Problem, v) -> value and gradient of ⟨a method's gradient, v⟩, by reverse mode through the method."""
    made = transforms(backend)

    def run(problem: Problem, vector: Tree) -> Tree:
        def product(params: Tree) -> Any:
            return inner(function(problem.with_params(params))[1], vector)

        value, pull = made.vjp(product, problem.params)
        return value, pull(problem.xp.ones_like(value))[0]

    return run


def inner(grads: Tree, vector: Tree) -> Any:
    """⟨gradient, v⟩ over all leaves."""
    return sum(leaves(tree_map(lambda g, v: (g * v).sum(), grads, vector)))


def direction(problem: Problem, seed: int) -> Tree:
    """A tree like params of small whole numbers, −3 … 3 and not 0: exact in every dtype."""
    rng = np.random.Generator(np.random.PCG64(seed))

    def drawn(leaf: Any) -> Any:
        numbers = rng.integers(1, 4, tuple(leaf.shape)) * rng.choice([-1.0, 1.0], tuple(leaf.shape))
        return problem.xp.asarray(np.asarray(numbers, to_numpy(leaf).dtype))

    with precision(problem.backend, problem.dtype):
        return tree_map(drawn, problem.params)
