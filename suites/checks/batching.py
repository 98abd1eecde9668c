"""vmap of a pair's function, and of its gradient, with every choice of the inputs that are batched."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gradgate.references import oracle
from gradgate.references.backends import named_leaves, precision, tree_map
from gradgate.references.contract import Problem, Tree
from gradgate.suites.checks.base import QUICK_COMPILER, Case, measured, require
from gradgate.suites.judging.subject import Fault, Refuted, check_form
from gradgate.suites.judging.tolerance import compare, compare_value
from gradgate.suites.pairs.declared import EVERY_CHOICE
from gradgate.suites.pairs.modules_pair import MODULE, ModulePair
from gradgate.suites.pairs.pair import Pair

LANES = (1.0, 0.5, 0.25)
"""vmap runs on these multiples of the parameters. They are powers of two, so that float32 represents them exactly.
None is larger than 1, because κ is known only for problems within the vocabulary."""
MOST_PAIRS = 24
"""Of more than `EVERY_CHOICE` inputs, so many pairs are batched alone."""


def judge_vmap(case: Case) -> None:
    """Under vmap, the function and its gradient give for each lane what they give for that lane alone.

    Raises:
        Refuted: they do not, or the function raises; the message names the inputs that are batched.
    """
    pair: Pair = case.subject.function  # type: ignore[assignment]
    lanes = _lanes(case)
    groups = _groups(pair, lanes[0])
    subsets = list(choices(list(groups)))
    answers = _run(case, pair, lanes, groups, subsets)
    alone: dict[Any, Any] = {}
    for names, (plain, (losses, grads)) in zip(subsets, answers, strict=True):
        batched = oracle.split_stack(lanes[0], grads)
        paths = {path for name in names for path in groups[name]}
        for k in range(len(lanes)):
            single = _mixed(lanes, paths, k)
            key = (names, k) if k else k
            if key not in alone:
                value, own = case.subject.call(single, case.options)
                alone[key] = float(value), oracle.split(single, own)
            what = f"vmap over {' and '.join(names)}, the other inputs not batched, lane {k}: "
            if len(names) == len(groups):
                what = f"vmap over all inputs, lane {k}: "
            found = {name: leaf[k] for name, leaf in batched.items()}
            values = {"the function's value": float(plain[k]), "the value": float(losses[k])}
            _compare(case, single, alone[key], values, found, what, record=len(names) == len(groups))


def choices(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The choices of batched inputs: every one; of many inputs all, each left out, each alone, and a sample of pairs.

    >>> list(choices(["x", "w"]))
    [('x', 'w'), ('x',), ('w',)]
    >>> len(list(choices("abcdef"))), len(list(choices("abcdefgh")))
    (63, 41)
    """
    every = len(names) <= EVERY_CHOICE
    for size in range(len(names), 0, -1) if every else (len(names), len(names) - 1, 1):
        yield from itertools.combinations(names, size)
    if not every:
        pairs = list(itertools.combinations(names, 2))
        yield from random.Random(0).sample(pairs, min(MOST_PAIRS, len(pairs)))


def _groups(pair: Pair, problem: Any) -> dict[str, tuple[str, ...]]:
    """Argument -> the paths of its leaves. The parameters of a module are one argument; its buffers are not batched."""
    found = {name: tuple(named_leaves(tree, name)) for name, tree in pair.inputs.items()}
    if isinstance(pair, ModulePair):
        parameters = tuple(path for path in problem.params if path not in pair.leaves)
        found |= {MODULE: parameters} if parameters else {}
    return found


def _lanes(case: Case) -> list[Any]:
    """Problems of one shape: parameters are multiples of the first one's, other inputs are drawn with other seeds."""
    first: Any = case.problem()
    found = []
    for k, factor in enumerate(LANES):
        given = case.problem(seed=(case.spec.seed + k) % 2**31).data["given"] if k else first.data["given"]
        with precision(first.backend, first.dtype):
            params = tree_map(lambda leaf: factor * leaf, first.params)  # noqa: B023 - called at once
        found.append(first.with_params(params)._replace(data={**first.data, "given": given}))
    return found


def _mixed(lanes: Sequence[Any], paths: set[str], k: int) -> Any:
    """The problem of lane k: the leaves at these paths are the lane's, the others are the first lane's."""
    taken = {path: leaf for path, leaf in _leaves(lanes[k]).items() if path in paths}
    return _placed(lanes[0], taken)


def _leaves(problem: Any) -> dict[str, Any]:
    return {**problem.params, **problem.data["given"]}


def _placed(problem: Any, taken: Mapping[str, Any]) -> Any:
    """The problem with other leaves at some paths."""
    params = {path: taken.get(path, leaf) for path, leaf in problem.params.items()}
    given = {path: taken.get(path, leaf) for path, leaf in problem.data["given"].items()}
    return problem.with_params(params)._replace(data={**problem.data, "given": given})


class _Raised(Exception):
    """The function raised under vmap; its cause is the function's exception."""

    def __init__(self, names: Sequence[str], error: Exception) -> None:
        super().__init__(str(error))
        self.names = names


def _run(
    case: Case, pair: Pair, lanes: list[Any], groups: Mapping[str, tuple[str, ...]], subsets: list[tuple[str, ...]]
) -> list[Any]:
    """For each subset, (the inner products of the outputs, the answers of the method), each with an axis of lanes."""
    problem = lanes[0]
    with precision(problem.backend, problem.dtype):
        stacked = {path: problem.xp.stack([_leaves(lane)[path] for lane in lanes]) for path in _leaves(problem)}

    def both(taken: Tree, problem: Problem) -> Any:
        """The function itself, not differentiated, and its gradient."""
        given: Any = _placed(problem, taken)
        plain = given.inner(pair.outputs("function", given, given.params, case.options))
        answer = pair(given, **case.options)
        check_form(named_leaves(given.params), answer)
        return plain, answer

    def every(stacked: Tree, problem: Any) -> list[Any]:
        """All subsets, in JAX in one program: they share most of what is compiled."""
        found = []
        for names in subsets:
            taken = {path: stacked[path] for name in names for path in groups[name]}
            try:
                found.append(_vmapped(pair, both, taken, problem))
            except Exception as error:
                raise _Raised(names, error) from error
        return found

    run: Callable[..., Any] = every
    if problem.backend == "jax" and "jit" in case.subject.declared.composes:
        import jax

        # This is about JAX's batching rules and not about what XLA makes of them, so XLA may take little time.
        run = case.subject.program("vmap", case.options, lambda: jax.jit(every, compiler_options=QUICK_COMPILER))
    try:
        answers: list[Any] = case.subject.guard(problem, case.options, run, stacked, problem)
    except Fault as fault:
        case.subject.call(problem, case.options, eager=True)  # if it fails, too, its error says more
        names = getattr(fault.__cause__, "names", ())
        cause = getattr(fault.__cause__, "__cause__", None) or fault.__cause__
        told = f"{type(cause).__name__}: {cause}".splitlines()[0][:300]
        raise Refuted(f"vmap over {' and '.join(names) or 'its inputs'}: it raises {told}{fault.at}") from None
    return answers


def _vmapped(pair: Pair, both: Callable[..., Any], taken: Tree, problem: Any) -> Any:
    if problem.backend == "jax":
        import jax

        return jax.vmap(both, in_axes=(0, None))(taken, problem)
    import torch

    randomness = "same" if pair.random else "error"
    return torch.func.vmap(lambda taken: both(taken, problem), randomness=randomness)(taken)


def _compare(
    case: Case,
    single: Problem,
    alone: tuple[float, dict[str, Any]],
    values: Mapping[str, float],
    grads: dict[str, Any],
    what: str,
    record: bool,
) -> None:
    """Compare one lane with the same problem alone.

    What is within the bound of noise zero is within every bound, so the noise is measured only beyond it, or if the
    comparison is recorded for the judgement of all problems together.
    """
    value, own = alone
    if not record:
        still = oracle.Reference(value, own, dict.fromkeys(["", *own], 0.0))
        same = all(compare_value(one, still, case.widest).equal for one in values.values())
        if same and compare(grads, still, case.widest).equal:
            return
    known = case.against_own(measured(case, single), own)
    known = dataclasses.replace(known, loss=value)
    for name, one in values.items():
        found = compare_value(one, known, case.widest)
        if record:
            case.record(found)
        if not found.equal:
            raise Refuted(f"{what}{name} is {one!r}; without vmap it is {value!r}", "", found.error)
    if record:
        case.judge(grads, known, case.widest, what=what)
    else:
        require(case.compared(grads, known, case.widest), grads, what)
