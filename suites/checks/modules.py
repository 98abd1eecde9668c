"""Checks of a pair of modules in PyTorch: what a user may do to a module between its calls and its backward pass."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from gradgate.references import oracle
from gradgate.references.backends import UNIT_ROUNDOFF, to_numpy
from gradgate.references.contract import Problem, UsageError
from gradgate.suites.checks.base import Case, require
from gradgate.suites.checks.eager import RefusedInWords, _filled, _own, _quiet
from gradgate.suites.judging.subject import Refuted
from gradgate.suites.judging.tolerance import compare
from gradgate.suites.pairs.modules_pair import ModulePair

SAMPLES = 8
"""Runs of the reference under autocast, at parameters moved by a unit in the last place of bfloat16 at most."""


def module_protocol(case: Case) -> None:
    """Whatever a user may do to a module, the gradient is right or an error is raised.

    Raises:
        Refuted: a gradient is silently wrong; the message names the hazard.
    """
    problem: Any = case.problem(case.widest)
    own = _own(case, problem)
    pair: Any = case.subject.function
    for name, hazard in _hazards(case, problem):
        grads = _tried(case, problem, functools.partial(hazard, pair, problem, case.options))
        if grads is not None:
            case.judge(oracle.split(problem, grads), own, case.widest, what=f"{name}: ")
    _state_after_backward(case, problem)
    _both_in_flight(case, problem, own)
    _autocast(case)


def hazards() -> Iterator[str]:
    """The names of the hazards that `module_protocol` tries."""
    yield from (*_HAZARDS, PARAMETER, STATE, TOGETHER, AUTOCAST)


PARAMETER = "a parameter overwritten before the backward pass"
STATE = "buffers after the backward pass"
TOGETHER = "two forward passes and then both backward passes"
AUTOCAST = "under autocast"


def _hazards(case: Case, problem: Any) -> Iterator[tuple[str, Callable[..., dict[str, Any]]]]:
    yield from _HAZARDS.items()
    pair: Any = case.subject.function
    for path in sorted(_names(pair, problem, case.options)):
        if path in problem.params:
            yield f"{PARAMETER} ({path})", functools.partial(_overwritten, path)


def _tried(case: Case, problem: Problem, run: Callable[[], Any]) -> Any:
    """The result of a call; None if it raises, which is allowed."""
    try:
        return case.subject.guard(problem, case.options, _quiet, run)
    except Exception as fault:
        if not isinstance(fault.__cause__, RefusedInWords):
            raise
        return None


class Called:
    """A module that was called: itself, its inputs and what it returned.

    Attributes:
        module: the module of the function or of the reference; it holds the problem's parameters.
        leaves: path -> tensor that gets a gradient: an input, or a parameter of the module.
    """

    def __init__(
        self, pair: ModulePair, role: str, problem: Any, options: Mapping[str, Any], module: Any = None
    ) -> None:
        self.pair, self.problem = pair, problem
        self.module, self.names = pair.module(role, problem, options)
        self.module = self.module if module is None else module
        given = {**problem.data["given"], **problem.params}
        for path in pair.leaves:
            leaf = given[path].detach().clone()
            given[path] = leaf.requires_grad_() if path in problem.params else leaf
        held = dict(self.module.named_parameters())
        self.leaves = {path: held[self.names[path]] if path in self.names else given[path] for path in problem.params}
        self._arguments = pair.arguments(pair.widened(problem, given))
        self._keywords = pair.keywords(role, problem.spec.fields, options)

    def forward(self) -> dict[str, Any]:
        """Path -> floating-point output of a call, with its autograd graph."""
        import torch

        with torch.enable_grad(), self.pair.seeded(self.problem.spec):
            answer = self.module(*self._arguments, **self._keywords)
        return self.pair.floating(answer)

    def backward(self, found: Mapping[str, Any], scale: float = 1.0) -> None:
        """A call of `backward` as users write it, with an upstream gradient of that size."""
        import torch

        paths = [path for path, out in found.items() if out.requires_grad]
        cotangents = [(scale * self.problem.data["cotangents"][path]).to(found[path].dtype) for path in paths]
        torch.autograd.backward([found[path] for path in paths], cotangents)

    def gradient(self, found: Mapping[str, Any], scale: float = 1.0) -> dict[str, Any]:
        """Path of every leaf -> its gradient, by `backward`."""
        self.backward(found, scale)
        return _filled({path: leaf.grad for path, leaf in self.leaves.items()}, self.leaves)


def _names(pair: ModulePair, problem: Any, options: Mapping[str, Any]) -> dict[str, str]:
    return pair.module("function", problem, options)[1]


def _switched(pair: ModulePair, problem: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """The module is switched to the other mode after the forward pass."""
    called = Called(pair, "function", problem, options)
    found = called.forward()
    called.module.train(not called.module.training)
    return called.gradient(found)


def _overwritten(path: str, pair: ModulePair, problem: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """One parameter changed in place after the forward pass, as by an optimiser's step."""
    import torch

    called = Called(pair, "function", problem, options)
    found = called.forward()
    with torch.no_grad():
        called.leaves[path].mul_(3.0).add_(1.0)
    return called.gradient(found)


def _copied(pair: ModulePair, problem: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the module, made after a call of the original. Then the original's parameters change."""
    import torch

    first = Called(pair, "function", problem, options)
    first.forward()
    again = Called(pair, "function", problem, options, copy.deepcopy(first.module))
    fresh, _ = pair.module("function", problem, options)
    _restore(again.module, fresh)
    with torch.no_grad():
        for leaf in first.module.parameters():
            leaf.mul_(3.0).add_(1.0)
    return again.gradient(again.forward())


def _after_larger(pair: ModulePair, problem: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """One module, called on larger inputs first. Then its state is restored."""
    called = Called(pair, "function", problem, options)
    larger = _larger(pair, problem)
    if larger is None:
        return called.gradient(called.forward())
    fresh, _ = pair.module("function", problem, options)
    before = Called(pair, "function", larger, options, called.module)
    before.gradient(before.forward())
    _restore(called.module, fresh)
    called.module.zero_grad(set_to_none=True)
    return called.gradient(called.forward())


def _restore(module: Any, fresh: Any) -> None:
    """Copy parameters and buffers of a new module into a module that has been used, in place."""
    import torch

    held = dict(module.named_parameters()) | dict(module.named_buffers())
    with torch.no_grad():
        for name, leaf in (*fresh.named_parameters(), *fresh.named_buffers()):
            if name in held and held[name].shape == leaf.shape:
                held[name].copy_(leaf)


def _larger(pair: ModulePair, problem: Any) -> Any:
    """The problem with a larger size in every dim on which the modules do not depend; None if that is not possible."""
    spec = problem.spec
    free = [name for name in pair.dims if name not in pair.of_builders]
    sizes = {name: 2 * getattr(spec, name) + 1 for name in free}
    if not sizes or (pair.valid is not None and not pair.valid(**{**spec.sizes, **sizes})):
        return None
    try:
        return dataclasses.replace(spec, **sizes, seed=spec.seed + 1).build("torch")
    except (UsageError, RuntimeError, ValueError):
        return None


def _twice(pair: ModulePair, problem: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Two steps with one module. In between, its parameters are restored and its gradients are dropped."""
    called = Called(pair, "function", problem, options)
    fresh, _ = pair.module("function", problem, options)
    called.gradient(called.forward())
    again = Called(pair, "function", problem, options, called.module)
    _restore(called.module, fresh)
    called.module.zero_grad(set_to_none=True)
    return again.gradient(again.forward())


_HAZARDS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "the other mode, train or eval, before the backward pass": _switched,
    "a deep copy after a call": _copied,
    "a smaller batch after a larger one": _after_larger,
    "a second step": _twice,
}


def _state_after_backward(case: Case, problem: Any) -> None:
    """A backward pass changes no buffer."""
    pair: Any = case.subject.function

    def state(role: str, options: Mapping[str, Any], backward: bool) -> dict[str, Any]:
        called = Called(pair, role, problem, options)
        found = called.forward()
        if backward:
            called.gradient(found)
        held = dict(called.module.named_buffers())
        return {path: to_numpy(held[own]) for path, own in called.names.items() if own in held}

    before = _tried(case, problem, functools.partial(state, "function", case.options, False))
    after = _tried(case, problem, functools.partial(state, "function", case.options, True))
    if before is None or after is None:
        return
    for path, leaf in after.items():
        if not np.array_equal(leaf, before[path], equal_nan=leaf.dtype.kind == "f"):
            raise Refuted(f"{STATE}: the backward pass changes {path} of the module once more", path)


ORDERS: Mapping[str, tuple[int, ...]] = {"in their order": (0, 1), "in the other order": (1, 0)}
"""The orders of two backward passes."""


def _both_in_flight(case: Case, problem: Any, own: oracle.Reference) -> None:
    """Two forward passes of one module, as D(real) and D(fake), then both backward passes, in either order.

    The first call may change buffers that the second one reads. Each backward pass belongs to its own call, so the sum
    of the gradients is that of a call and its backward pass, and then the other call and its backward pass.
    """
    pair: Any = case.subject.function
    other = _other(case, problem)

    def run(order: tuple[int, ...] | None) -> dict[str, Any]:
        first = Called(pair, "function", problem, case.options)
        second = Called(pair, "function", other, case.options, first.module)
        calls = (first, second)
        if order is None:
            for called in calls:
                called.backward(called.forward())
        else:
            outputs = [called.forward() for called in calls]
            for place in order:
                calls[place].backward(outputs[place])
        inputs = {
            f"{path}, {name}": leaf
            for name, called in zip(CALLS, calls, strict=True)
            for path, leaf in called.leaves.items()
            if path not in called.names
        }
        parameters = {path: leaf for path, leaf in first.leaves.items() if path in first.names}
        leaves = {**inputs, **parameters}
        return {path: to_numpy(leaf) for path, leaf in _filled({p: t.grad for p, t in leaves.items()}, leaves).items()}

    apart = _tried(case, problem, functools.partial(run, None))
    if apart is None or not all(np.isfinite(leaf).all() for leaf in apart.values()):
        return
    noise = {path: 2 * own.noise[path.partition(",")[0]] for path in apart}
    for name, order in ORDERS.items():
        together = _tried(case, problem, functools.partial(run, order))
        if together is not None:
            found = case.compared(together, oracle.Reference(0.0, apart, noise), case.widest)
            require(found, together, f"{TOGETHER}, {name}: ")


CALLS = ("first call", "second call")


def _other(case: Case, problem: Any) -> Any:
    """The same module with other inputs."""
    pair: Any = case.subject.function
    drawn: Any = case.problem(seed=(case.spec.seed + 1) % 2**31)
    params = {path: drawn.params[path] if path in pair.leaves else leaf for path, leaf in problem.params.items()}
    given = {
        path: drawn.data["given"][path] if path in pair.leaves else leaf for path, leaf in problem.data["given"].items()
    }
    return problem.with_params(params)._replace(data={**drawn.data, "given": given})


SCALES = (1.0, 1e6, 1e-8)
"""Sizes of the upstream gradient under autocast, as a loss scaler gives them: float16 holds neither 1e6 nor 1e-8."""


def _autocast(case: Case) -> None:
    """Under autocast to bfloat16, gradients have the dtype of their leaves, and their errors are within the bound.

    The noise is the error of the reference under autocast; the bound is κ times the noise. A large or a small upstream
    gradient multiplies the gradient; where the reference's is not multiplied, nothing is judged.
    """
    pair: Any = case.subject.function
    if "float32" not in case.subject.declared.dtypes or pair.reference is None:  # its own error would be the noise
        return
    problem: Any = case.problem("float32")

    def run(role: str, options: Mapping[str, Any], given: Any, scale: float = 1.0) -> dict[str, Any]:
        import torch

        called = Called(pair, role, given, options)
        with torch.autocast("cpu", torch.bfloat16):
            found = called.forward()
        return called.gradient(found, scale)

    found = []
    for i in range(SAMPLES):
        given = problem.with_params(_moved(problem.params, i))
        with contextlib.suppress(Exception):  # where the reference fails under autocast, there is no noise to measure
            found.append(oracle.split(problem, run("reference", {}, given)))
    if not found:
        return
    truth = case.reference("float32").grads
    noise = {
        path: max(float(np.linalg.norm((sample[path] - leaf).ravel())) for sample in found)
        for path, leaf in truth.items()
    }
    known = oracle.Reference(0.0, truth, noise, declared=case.declared_error)
    for scale in SCALES:
        what = AUTOCAST if scale == 1 else f"{AUTOCAST}, with an upstream gradient of the size {scale:g}"
        if scale != 1 and not _scales(run, problem, known, scale):
            continue
        grads = _tried(case, problem, functools.partial(run, "function", case.options, problem, scale))
        if grads is None:
            continue
        for path, leaf in problem.params.items():
            if grads[path].dtype != leaf.dtype:
                raise Refuted(f"{what}: the gradient of {path} is of {grads[path].dtype}", path)
        got = oracle.split(problem, grads)
        compared = compare(got, known, "bfloat16", case.subject.declared.kappa, scale)
        require(compared, got, f"{what}: ")


def _scales(run: Callable[..., Any], problem: Any, known: oracle.Reference, scale: float) -> bool:
    """Whether the reference's gradient is in bounds with a scaled upstream gradient."""
    try:
        got = oracle.split(problem, run("reference", {}, problem, scale))
    except Exception:  # what the reference cannot do, the function need not do
        return False
    return compare(got, known, "bfloat16", factor=scale).equal


def _moved(params: Mapping[str, Any], sample: int) -> dict[str, Any]:
    """Parameters as they are; from the second sample on, each number is moved by at most 2u of bfloat16."""
    import torch

    generator = torch.Generator().manual_seed(20261 + sample)
    step = 2 * UNIT_ROUNDOFF["bfloat16"] if sample else 0.0
    signs = {path: torch.randint(-1, 2, leaf.shape, generator=generator) for path, leaf in params.items()}
    return {path: leaf * (1 + step * signs[path].to(leaf.dtype)) for path, leaf in params.items()}
