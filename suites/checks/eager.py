"""Checks of a pair in eager PyTorch: memory layouts, inputs that need no gradient, and the protocol of autograd."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from gradgate.references import oracle
from gradgate.references.backends import to_numpy
from gradgate.references.contract import Problem
from gradgate.suites.checks.base import Case, farthest
from gradgate.suites.exact import balls, forward
from gradgate.suites.judging.subject import Inapplicable, Refuted, first_line
from gradgate.suites.pairs.approximate import Convergence
from gradgate.suites.pairs.modules_pair import AFTER
from gradgate.suites.pairs.pair import Pair


def layouts(case: Case) -> None:
    """With inputs and cotangents that are not contiguous, the gradient equals the gradient with contiguous ones."""
    import torch

    problem = case.problem(case.widest)
    own = _own(case, problem)
    for name, change in _LAYOUTS.items():
        given = problem.with_params({path: change(leaf) for path, leaf in problem.params.items()})
        grads = oracle.split(given, _gradient(case, given))
        try:
            case.judge(grads, own, case.widest, what=f"{name} inputs: ")
        except Refuted as why:
            alone = _alone_to_blame(case, problem, own, change)
            more = f"; {alone} alone makes it so" if alone else ""
            raise Refuted(f"{why}{more}", why.leaf, why.error, why.noise) from None
        cotangents = {path: change(leaf) for path, leaf in problem.data["cotangents"].items()}
        given = problem._replace(data={**problem.data, "cotangents": cotangents})
        grads = oracle.split(given, _gradient(case, given))
        case.judge(grads, own, case.widest, what=f"{name} cotangents: ")
    ones = {path: torch.ones_like(leaf) for path, leaf in problem.data["cotangents"].items()}
    plain = problem._replace(data={**problem.data, "cotangents": ones})
    expanded = {path: torch.ones((), dtype=leaf.dtype).expand(leaf.shape) for path, leaf in ones.items()}
    given = plain._replace(data={**problem.data, "cotangents": expanded})
    grads = oracle.split(given, _gradient(case, given))
    case.judge(grads, _own(case, plain), case.widest, what="expanded cotangents, as of a sum: ")


def _alone_to_blame(case: Case, problem: Problem, own: oracle.Reference, change: Callable[[Any], Any]) -> str:
    """The first of several inputs whose layout makes a gradient wrong, the others as usual; "" if there is none."""
    for path, leaf in problem.params.items() if len(problem.params) > 1 else ():
        given = problem.with_params({**problem.params, path: change(leaf)})
        if not case.compared(oracle.split(given, _gradient(case, given)), own, case.widest).equal:
            return path
    return ""


def each_leaf_alone(case: Case) -> None:
    """If one input alone requires a gradient, it gets the same gradient as when all inputs require one."""
    problem = case.problem(case.widest)
    own = _own(case, problem)
    for path in problem.params if len(problem.params) > 1 else ():
        grads = _gradient(case, problem, (path,))
        if grads[path] is None:
            if (own.grads[path] != 0).any():
                raise Refuted(f"if only {path} requires a gradient, it gets none", path)
            continue
        case.judge(oracle.split(problem, grads), own, case.widest, what=f"{path} alone requires a gradient: ")


def autograd(case: Case) -> None:
    """Whatever a user may do between forward and backward, the gradient is right or an error is raised.

    Raises:
        Refuted: a gradient is silently wrong; the message names the hazard.
    """
    problem = case.problem(case.widest)
    own = _own(case, problem)
    for name, hazard in _HAZARDS.items():
        try:
            grads = case.subject.guard(
                problem, case.options, _quiet, hazard, case.subject.function, problem, case.options
            )
        except Exception as fault:
            if not isinstance(fault.__cause__, RefusedInWords):
                raise
            continue
        case.judge(oracle.split(problem, grads), own, case.widest, what=f"{name}: ")
    _outputs_changed(case, problem, own)
    _freed(case, problem)
    _differentiated_twice(case, problem)


def _outputs_changed(case: Case, problem: Problem, own: oracle.Reference) -> None:
    """One output changed in place before the backward pass, without autograd's knowledge of the change, and with it.

    A backward pass that reads an output sees the change, wherever it keeps the output: on ``ctx``, in a closure, as a
    view. If it was kept by ``save_for_backward``, autograd counts the change and raises.
    """
    pair: Any = case.subject.function
    kept = _kinds(pair, problem, case.options)
    ways = [(path, False) for path in kept] + [(path, True) for path, floating in kept.items() if floating]
    for path, recorded in ways:
        try:
            grads = case.subject.guard(
                problem, case.options, _quiet, _changed, pair, problem, case.options, path, recorded
            )
        except Exception as fault:
            if not isinstance(fault.__cause__, RefusedInWords):
                raise
            continue
        how = ", which autograd records, " if recorded else " "
        what = f"output {path} overwritten{how}before the backward pass: "
        case.judge(oracle.split(problem, grads), own, case.widest, what=what)


def _kinds(pair: Pair, problem: Any, options: Mapping[str, Any]) -> dict[str, bool]:
    """Path -> whether it is floating, of the outputs that are tensors; not of a module's buffers after the call."""
    import torch

    with torch.no_grad():
        found = pair.all_outputs("function", problem, problem.params, options)
    tensors = {path: out for path, out in found.items() if isinstance(out, torch.Tensor) and not path.endswith(AFTER)}
    return {path: out.is_floating_point() for path, out in tensors.items()}


def _changed(pair: Pair, problem: Any, options: Mapping[str, Any], path: str, recorded: bool) -> dict[str, Any]:
    """The gradient after an output was changed in place.

    A change that autograd does not record leaves the gradient as it was. One that it records doubles the output, and
    the output's cotangent is halved.
    """
    import torch

    params = _leaves(problem)
    with torch.enable_grad():
        found = pair.all_outputs("function", problem, params, options)
    outs = {p: out for p, out in found.items() if isinstance(out, torch.Tensor) and out.requires_grad}
    if recorded:
        with torch.enable_grad():
            found[path].mul_(2.0)
    elif found[path].is_floating_point():
        with torch.no_grad():
            found[path].mul_(3.0).add_(1.0)
    elif found[path].dtype == torch.bool:
        found[path].logical_not_()
    else:
        found[path].zero_()  # a legal index, whatever the output counts
    cotangents = [
        problem.data["cotangents"][p].to(out.dtype) * (0.5 if recorded and p == path else 1.0)
        for p, out in outs.items()
    ]
    return _pull(pair, list(outs.values()), cotangents, params)


CALLS = 3
"""Calls without a backward pass. What the first keeps may be a table for later calls; what the second keeps as well,
and still has after the third, is never freed."""


def _freed(case: Case, problem: Problem) -> None:
    """A graph whose backward pass is never called is freed with the outputs, as plain autograd frees it.

    Raises:
        Refuted: memory of the second call is alive after the third; says whether the garbage collector frees it.
    """
    pair: Any = case.subject.function
    alive = case.subject.guard(problem, case.options, _alive, pair, "function", problem, case.options)
    if not alive or (not pair.against_itself and _alive(pair, "reference", problem, {})):
        return
    raise Refuted(f"without a backward pass its graph is not freed: {alive}")


CYCLE = "a reference cycle holds it, as with an output kept on ctx; save_for_backward keeps an output without a cycle"
FOR_GOOD = "something that outlives the call, such as a list, holds it"


def _alive(pair: Pair, role: str, problem: Any, options: Mapping[str, Any]) -> str:
    """What holds the memory of a call whose outputs are gone; "" if it is free."""
    import gc

    import torch
    from torch.multiprocessing.reductions import StorageWeakRef

    def call() -> list[Any]:
        """Weak references to the memory of the outputs, and of the leaves, which a graph holds while it lives."""
        params = _leaves(problem)
        with torch.enable_grad():
            found = pair.outputs(role, problem, params, options)
        held = [tensor for tensor in (*params.values(), *found.values()) if tensor.layout == torch.strided]
        references = [StorageWeakRef(tensor.untyped_storage()) for tensor in held]
        return [each for each in references if each.cdata not in ours]

    ours = {leaf.untyped_storage()._cdata for leaf in (*problem.params.values(), *problem.data["given"].values())}
    was = gc.isenabled()
    gc.disable()
    try:
        calls = [call() for _ in range(CALLS)]
        if all(each.expired() for each in calls[1]):
            return ""
        gc.collect()
        return CYCLE if all(each.expired() for each in calls[1]) else FOR_GOOD
    finally:
        if was:
            gc.enable()


def _differentiated_twice(case: Case, problem: Problem) -> None:
    """``create_graph=True``: H·v of the function equals the reference's, or raises. Silent zeros are refuted.

    With an order of convergence nothing is judged: a single step does not say how large the error may be.
    """
    pair: Pair = case.subject.function  # type: ignore[assignment]
    if isinstance(pair.approximates, Convergence):
        return
    vector = oracle.random_direction(problem, case.spec.seed)
    moved, runs = oracle.jittered(problem), []
    try:
        for i in range(oracle.NOISE_SAMPLES):
            given = problem.with_params({path: leaf[i] for path, leaf in moved.items()})
            runs.append(_twice(pair, "reference", given, vector, {}))
    except RuntimeError:  # the plain function itself has no second derivative
        return
    if not all(np.isfinite(leaf).all() for run in runs for leaf in run.values()):
        return
    try:
        got = case.subject.guard(problem, case.options, _quiet, _twice, pair, "function", problem, vector, case.options)
    except Exception as fault:
        if not isinstance(fault.__cause__, RefusedInWords):
            raise
        return

    def nearest(answer: Mapping[str, Any]) -> dict[str, Any]:
        return _by_values(pair, problem, vector, answer)

    try:
        exact = nearest(runs[0]) if pair.against_itself else runs[0]
    except (balls.Unknown, balls.Undecided):  # nothing says what is right
        return
    known = oracle.Reference(0.0, exact, farthest(runs, runs[0]), declared=case.declared_error)

    def again(given: Any, along: Any) -> dict[str, Any]:
        return _tensors_of_twice(pair, "function", given, along, case.options)

    try:
        case.judge_derived(
            got, known, again, problem, vector, "differentiated again: ", nearest if pair.against_itself else None
        )
    except Refuted as why:
        constant = [
            path for path, grad in _pulled(pair, "function", problem, case.options).items() if _is_constant(grad)
        ]
        plain = _pulled(pair, "reference", problem, {})
        constant = [path for path in constant if not _is_constant(plain[path])]
        more = (
            f"; the gradient of {' and '.join(constant)} has no graph, so it counts as a constant" if constant else ""
        )
        raise Refuted(f"{why}{more}", why.leaf, why.error, why.noise) from None


def _twice(pair: Pair, role: str, problem: Any, vector: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Path -> H·v of Σ c·(y + y²/2) by autograd, NumPy: the upstream gradient depends on the leaves, as in training."""
    return {path: to_numpy(leaf) for path, leaf in _tensors_of_twice(pair, role, problem, vector, options).items()}


def _tensors_of_twice(pair: Pair, role: str, problem: Any, vector: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """`_twice`, before its results are NumPy's."""
    import torch

    params = _leaves(problem)
    torch.autograd.backward(_along_gradient(pair, role, problem, vector, options, params))
    # `grad` would miss the error that once_differentiable puts in the graph
    return _filled({p: t.grad for p, t in params.items()}, params)


def _along_gradient(
    pair: Pair, role: str, problem: Any, vector: Any, options: Mapping[str, Any], params: dict[str, Any]
) -> Any:
    """⟨gradient of Σ c·(y + y²/2), v⟩ at leaves."""
    import torch

    with torch.enable_grad():
        pulled = _pulled(pair, role, problem, options, params)
        return sum((grad * vector[path]).sum() for path, grad in _filled(pulled, params).items())


def _pulled(
    pair: Pair, role: str, problem: Any, options: Mapping[str, Any], params: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Path -> gradient of Σ c·(y + y²/2) at leaves, with its graph; None where nothing depends on a leaf."""
    import torch

    from gradgate.suites.pairs import in_torch

    params = _leaves(problem) if params is None else params
    with torch.enable_grad():
        found = pair.outputs(role, problem, params, options)
        paths = [path for path, out in found.items() if out.requires_grad]
        cotangents = [problem.data["cotangents"][path].to(found[path].dtype) * (1 + found[path]) for path in paths]
        return dict(in_torch.pull(pair, [found[path] for path in paths], params, cotangents, create_graph=True))


def _is_constant(grad: Any) -> bool:
    return grad is not None and not grad.requires_grad


def _by_values(pair: Pair, problem: Any, vector: Any, got: Mapping[str, Any]) -> dict[str, Any]:
    """Path -> the H·v nearest to a given one that agrees with values of the gradient (`exact.forward`)."""

    def value(given: Any) -> Any:
        return _along_gradient(pair, "reference", given, vector, {}, given.params)

    found = forward.gradient(problem, {path: balls.exact(leaf) for path, leaf in got.items()}, value, balls.DIGITS)
    return {path: balls.floats(leaf) for path, leaf in found.items()}


class RefusedInWords(Exception):
    """A hazard ended in an exception, which is allowed."""


def _quiet(hazard: Callable[..., Any], *given: Any) -> Any:
    try:
        return hazard(*given)
    except Inapplicable:
        raise
    except Exception as error:
        raise RefusedInWords(first_line(error)) from error


def _own(case: Case, problem: Problem) -> oracle.Reference:
    """The function's own gradient on ordinary tensors, with the noise of the reference."""
    wide = oracle.in_widest(case.spec, "torch", case.widest)._replace(data=problem.data)
    reference = dataclasses.replace(oracle.measure(wide, case.widest), declared=case.declared_error)
    _, grads = case.subject.call(problem, case.options)
    return case.against_own(reference, oracle.split(problem, grads))


def _gradient(case: Case, problem: Problem, alone: tuple[str, ...] = ()) -> dict[str, Any]:
    """Path -> gradient by autograd, at leaves that keep their layout; only those in `alone` require one, or () all."""
    return dict(
        case.subject.guard(problem, case.options, _backward, case.subject.function, problem, case.options, alone)
    )


def _backward(pair: Pair, problem: Any, options: Mapping[str, Any], alone: tuple[str, ...] = ()) -> dict[str, Any]:
    from gradgate.suites.pairs import in_torch

    params = {path: leaf.detach().requires_grad_(not alone or path in alone) for path, leaf in problem.params.items()}
    grads = in_torch.backward(pair, problem, in_torch.forward(pair, "function", problem, params, options), params)
    return grads if alone else _filled(grads, params)


def _filled(grads: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    import torch

    return {path: torch.zeros_like(params[path]) if grad is None else grad for path, grad in grads.items()}


def _transposed(leaf: Any) -> Any:
    """The same numbers, stored column by column."""
    return leaf.mT.contiguous().mT if leaf.ndim >= 2 else _strided(leaf)


def _strided(leaf: Any) -> Any:
    """The same numbers, in every second place of a storage."""
    import torch

    if not leaf.ndim:
        return leaf
    spread = torch.full((*leaf.shape[:-1], 2 * leaf.shape[-1]), float("nan"), dtype=leaf.dtype)
    spread[..., ::2] = leaf
    return spread[..., ::2]


_LAYOUTS: Mapping[str, Callable[[Any], Any]] = {"transposed": _transposed, "strided": _strided}


def _leaves(problem: Any) -> dict[str, Any]:
    return {path: leaf.detach().clone().requires_grad_() for path, leaf in problem.params.items()}


def _forward(pair: Pair, problem: Any, params: Any, options: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """Outputs that depend on a leaf, and their cotangents."""
    import torch

    with torch.enable_grad():
        found = pair.outputs("function", problem, params, options)
    paths = [path for path, out in found.items() if out.requires_grad]
    return [found[p] for p in paths], [problem.data["cotangents"][p].to(found[p].dtype) for p in paths]


def _pull(pair: Pair, outs: list[Any], cotangents: list[Any], params: Any, **how: Any) -> dict[str, Any]:
    from gradgate.suites.pairs import in_torch

    return _filled(in_torch.pull(pair, outs, params, cotangents, **how), params)


def _second_backward(pair: Pair, problem: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    params = _leaves(problem)
    outs, cotangents = _forward(pair, problem, params, options)
    _pull(pair, outs, cotangents, params)
    return _pull(pair, outs, cotangents, params)


def _retained(pair: Pair, problem: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    params = _leaves(problem)
    outs, cotangents = _forward(pair, problem, params, options)
    _pull(pair, outs, cotangents, params, retain_graph=True)
    return _pull(pair, outs, cotangents, params)


def _two_in_flight(pair: Pair, problem: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    params = _leaves(problem)
    outs, cotangents = _forward(pair, problem, params, options)
    # A module has one set of parameters, so the other call differs only in its inputs.
    inputs = {p: (2.0 * leaf).detach().requires_grad_() for p, leaf in params.items() if p in pair.leaves}
    twice = {**params, **inputs}
    _forward(pair, problem, twice, options)
    return _pull(pair, outs, cotangents, params)


def _overwritten(pair: Pair, problem: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs changed in place after the forward pass."""
    import torch

    params = _leaves(problem)
    outs, cotangents = _forward(pair, problem, params, options)
    with torch.no_grad():
        for leaf in params.values():
            leaf.mul_(3.0).add_(1.0)
    return _pull(pair, outs, cotangents, params)


def _accumulated(pair: Pair, problem: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """`backward` twice into the same leaves: twice the gradient."""
    import torch

    params = _leaves(problem)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "grad and param do not obey")  # about leaves without elements
        for _ in range(2):
            outs, cotangents = _forward(pair, problem, params, options)
            torch.autograd.backward(outs, cotangents, inputs=None if pair.by_backward else list(params.values()))
    return _filled({path: None if leaf.grad is None else leaf.grad / 2 for path, leaf in params.items()}, params)


def _after_no_grad(pair: Pair, problem: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """First a call under no_grad and a call under inference mode, then the gradient."""
    import torch

    with torch.no_grad():
        pair.outputs("function", problem, problem.params, options)
    with torch.inference_mode():
        pair.outputs("function", problem, {p: leaf.clone() for p, leaf in problem.params.items()}, options)
    return _backward(pair, problem, options)


_HAZARDS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "a second backward pass": _second_backward,
    "a second backward pass with retain_graph": _retained,
    "another forward pass before the backward pass": _two_in_flight,
    "inputs overwritten before the backward pass": _overwritten,
    "accumulation into .grad": _accumulated,
    "after calls without gradients": _after_no_grad,
}


def hazards() -> Iterator[str]:
    """The names of the hazards that `autograd` tries."""
    yield from _HAZARDS
