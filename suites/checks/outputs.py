"""Checks of a pair: its outputs, its cotangents, and inputs that are not finite."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from gradgate.references import oracle
from gradgate.references.backends import jitted, precision, to_backend, to_numpy
from gradgate.references.contract import Problem, Tree
from gradgate.suites.checks.base import Case, Rejected, describe, element, farthest, judgeable
from gradgate.suites.exact import balls, forward, programs, truth
from gradgate.suites.judging.subject import Inapplicable, Refuted, first_line, no_kernel
from gradgate.suites.pairs.matching import check_outputs
from gradgate.suites.pairs.pair import Pair
from gradgate.suites.pairs.spec import ONLY, ZERO


def outputs(case: Case) -> None:
    """Every output equals the reference's, in every dtype that the pair supports.

    Floating-point outputs are compared by the rule of equality. Their noise is that of the reference in the dtype under
    test, at inputs moved by at most 2u. Every other output must have a value that the reference gives at such inputs.
    A dtype narrower than the widest in which the function cannot run here, as in an interpreter, is left out.
    """
    pair: Pair = case.subject.function  # type: ignore[assignment]
    for dtype in case.subject.declared.dtypes:
        try:
            _outputs_in(case, pair, dtype)
        except Exception as error:
            why = str(error) if isinstance(error, Inapplicable) else no_kernel(error)
            if not why or dtype == case.widest:
                raise
            case.remark = (1.0, f"not judged in {dtype}: {why}")


def _outputs_in(case: Case, pair: Pair, dtype: str) -> None:
    problem = case.problem(dtype)
    samples = _samples(pair, problem, dtype)
    known = _true_outputs(case, pair, dtype)
    got = case.subject.guard(problem, case.options, all_outputs, pair, "function", problem, case.options)
    _same_places(got, samples[0])
    floats = {path: leaf for path, leaf in got.items() if leaf.dtype.kind == "f"}
    exact = {path: known.get(path, samples[0][path]) for path in floats}
    if not all(np.isfinite(leaf).all() for leaf in exact.values()):
        raise Rejected
    for path in got.keys() - floats.keys():
        if not functools.reduce(np.logical_or, [got[path] == run[path] for run in samples]).all():
            raise Refuted(f"output {path}, of integers, is not the reference's in {dtype}", path)
    reference = oracle.Reference(0.0, exact, farthest(samples, exact), declared=case.declared_error)
    found = case.compared(floats, reference, dtype)
    if dtype == case.widest:  # other dtypes are judged, but not recorded
        case.record(found)
    if not found.equal:
        shown = element(found.leaf, floats, exact)
        said = f"another function: in {dtype}, wrong {describe(found, floats)}{shown}"
        raise Refuted(said, found.leaf, found.error, found.noise)


def known_outputs(case: Case, pair: Pair, dtype: str) -> dict[str, tuple[Any, float]]:
    """Path -> true output, float64, and the noise of the reference, of every floating output."""
    samples = _samples(pair, case.problem(dtype), dtype)
    exact = _true_outputs(case, pair, dtype)
    noise = farthest(samples, exact)
    return {path: (leaf, noise[path]) for path, leaf in exact.items()}


def cotangents(case: Case) -> None:
    """With a cotangent for one output alone, and with zeros for all outputs, the gradient equals the reference's."""
    pair: Pair = case.subject.function  # type: ignore[assignment]
    paths = list(pair.output_shapes(case.spec))  # type: ignore[arg-type]
    dtype = case.widest
    for mode in [ONLY + path for path in paths] if len(paths) > 1 else []:
        one = dataclasses.replace(case, spec=dataclasses.replace(case.spec, cotangents=mode))  # type: ignore[call-arg]
        with contextlib.suppress(Rejected):
            reference = one.reference(dtype)
            _, grads = one.subject.gradient(one.problem(dtype), one.options)
            case.judge(grads, reference, dtype, what=f"a cotangent for {mode}: ")
    problem = case.problem(dtype, cotangents=ZERO)
    expected = _plain_gradient(problem)
    if not all(np.isfinite(leaf).all() for leaf in expected.values()):
        raise Rejected  # 0·NaN is NaN in the reference as well
    _, grads = case.subject.gradient(problem, case.options)
    for name, leaf in grads.items():
        if not (expected[name] != 0).any() and not (leaf == 0).all():
            raise Refuted(f"cotangents of zeros give {name} a gradient that is not zero; the reference's is zero", name)
    if any((leaf != 0).any() for leaf in expected.values()):  # the reference's backward pass adds something of its own
        zero = dataclasses.replace(case, spec=dataclasses.replace(case.spec, cotangents=ZERO))  # type: ignore[call-arg]
        case.judge(grads, zero.reference(dtype), dtype, what="cotangents of zeros: ")


def not_finite(case: Case) -> None:
    """A NaN in an input reaches every output that it reaches in the reference, and the gradients too.

    An element of an output must not be finite where the reference's is not. If an output of the reference is not
    finite, a gradient must have such an element if the reference's has one; if a guard keeps every output finite, a
    gradient may be finite, too. Elements that do not depend on the input are not judged: a reference may spread a NaN
    to them, as 0·NaN does in a product with a matrix of zeros and ones. If the reference raises, as a factorization
    does, nothing is judged.
    """
    pair: Pair = case.subject.function  # type: ignore[assignment]
    problem = case.problem(case.widest)
    for path, leaf in problem.params.items():
        if not np.prod(leaf.shape):
            continue
        given = _with_first(problem, path, np.nan)
        try:
            plain = all_outputs(pair, "reference", given, {})
        except Exception as error:
            why = f"{type(error).__name__}: {first_line(error)}"
            raise Inapplicable(f"with NaN in {path}[0], the reference raises {why}") from None
        outs, grads = _reached(pair, problem, path)
        got = case.subject.guard(given, case.options, all_outputs, pair, "function", given, case.options)
        check_outputs(got, plain)
        for name, out in plain.items():
            if out.dtype.kind == "f" and (np.isfinite(got[name]) & ~np.isfinite(out) & outs[name]).any():
                raise Refuted(f"with NaN in {path}[0], {name} is finite where the reference's is not", path)
        if all(np.isfinite(out).all() for out in plain.values()):
            continue  # plain backprop of a guard such as `where` may be NaN all the same: that is no better than a 0
        expected = _plain_gradient(given)
        _, own = case.subject.gradient(given, case.options)
        for name, grad in expected.items():
            if (~np.isfinite(grad) & grads[name]).any() and np.isfinite(own[name]).all():
                raise Refuted(f"with NaN in {path}[0], the gradient of {name} is finite; the reference's is not", name)


def through_cotangents(case: Case, vector: Tree) -> None:
    """The gradient of ⟨gradient, v⟩ by the cotangents equals the reference's. A penalty on gradients needs it.

    Args:
        case: the case of a pair that claims a second derivative.
        vector: v, a tree like params.

    Raises:
        Refuted: it differs for the cotangent of an output; the message names the output.
    """
    pair: Pair = case.subject.function  # type: ignore[assignment]
    problem = case.problem(case.widest)
    moved = oracle.jittered(problem)
    runs = []
    for i in range(oracle.NOISE_SAMPLES):
        given = problem.with_params({path: leaf[i] for path, leaf in moved.items()})
        with precision(problem.backend, problem.dtype):
            runs.append(_by_cotangents(pair, "reference", given, vector, {}))
    got = case.subject.guard(problem, case.options, _by_cotangents, pair, "function", problem, vector, case.options)
    exact = runs[0]
    if pair.against_itself:
        with judgeable():
            exact = forward.pushed(problem, lambda given: pair.outputs("reference", given, given.params), vector)
    known = oracle.Reference(0.0, exact, farthest(runs, runs[0]), declared=case.declared_error)
    case.judge(got, known, case.widest, what="by the cotangents: ")


def _by_cotangents(pair: Pair, role: str, problem: Any, vector: Tree, options: Mapping[str, Any]) -> dict[str, Any]:
    """Path of an output -> the gradient of ⟨gradient, v⟩ by its cotangent."""
    cotangents = problem.data["cotangents"]
    if pair.where == "jax":
        import jax

        def product(cotangents: Tree) -> Any:
            found, pull = jax.vjp(lambda params: pair.outputs(role, problem, params, options), problem.params)
            [grads] = pull({path: cotangents[path].astype(out.dtype) for path, out in found.items()})
            return sum((grads[path] * leaf).sum() for path, leaf in vector.items())

        return {path: to_numpy(leaf) for path, leaf in jax.grad(product)(cotangents).items()}
    import torch

    params = {path: leaf.detach().clone().requires_grad_() for path, leaf in problem.params.items()}
    given = {path: leaf.detach().clone().requires_grad_() for path, leaf in cotangents.items()}
    with torch.enable_grad():
        found = pair.outputs(role, problem, params, options)
        outs = [found[path] for path in given]
        pulled = torch.autograd.grad(
            outs, list(params.values()), list(given.values()), create_graph=True, materialize_grads=True
        )
        product_ = sum((grad * vector[path]).sum() for path, grad in zip(params, pulled, strict=True))
        twice = torch.autograd.grad(product_, list(given.values()), materialize_grads=True)
    return {path: to_numpy(leaf) for path, leaf in zip(given, twice, strict=True)}


OTHERS = (1.0, -30.0, 30.0)
"""Added to an element to see what depends on it. Both signs occur, because many functions are flat on one side."""


def _with_first(problem: Problem, path: str, value: float) -> Problem:
    """The problem with another number in the first place of one input."""
    changed = to_numpy(problem.params[path]).copy()
    changed.reshape(-1)[0] = value
    with precision(problem.backend, problem.dtype):
        return problem.with_params({**problem.params, path: to_backend(problem.backend, changed, problem.dtype)})


def _plain_gradient(problem: Problem) -> dict[str, Any]:
    with precision(problem.backend, problem.dtype):
        return oracle.split(problem, oracle.gradient(problem)[1])


def _reached(pair: Pair, problem: Problem, path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Which elements of the reference's outputs and gradients depend on the first number of an input."""
    first = float(to_numpy(problem.params[path]).reshape(-1)[0])
    plain = (all_outputs(pair, "reference", problem, {}), _plain_gradient(problem))
    found = tuple({name: np.zeros(np.shape(leaf), bool) for name, leaf in part.items()} for part in plain)
    for more in OTHERS:
        other = _with_first(problem, path, first + more)
        for part, before, reached in zip(
            (all_outputs(pair, "reference", other, {}), _plain_gradient(other)), plain, found, strict=True
        ):
            for name, leaf in part.items():
                reached[name] |= leaf != before[name]
    return found  # type: ignore[return-value]


def all_outputs(pair: Pair, role: str, problem: Problem, options: Mapping[str, Any]) -> dict[str, Any]:
    """Path -> NumPy array; in JAX one compiled program for each shape and options."""
    with precision(problem.backend, problem.dtype):
        found = _compiled(pair, role, tuple(sorted(options.items())))(problem)
    return {path: to_numpy(leaf) for path, leaf in found.items() if hasattr(leaf, "dtype")}


@functools.lru_cache(maxsize=64)
def _compiled(pair: Pair, role: str, options: tuple[tuple[str, Any], ...]) -> Any:
    def run(problem: Any) -> dict[str, Any]:
        return pair.all_outputs(role, problem, problem.params, dict(options))

    if pair.where == "jax":
        return jitted(run)
    import torch

    return torch.no_grad()(run)


def _samples(pair: Pair, problem: Problem, dtype: str) -> list[dict[str, Any]]:
    """The reference's outputs in `dtype`, at the inputs and at inputs moved by at most 2u."""
    moved = oracle.jittered(problem)
    found = []
    for i in range(oracle.NOISE_SAMPLES):
        params = {path: leaf[i] for path, leaf in moved.items()}
        with precision(problem.backend, dtype):
            found.append(all_outputs(pair, "reference", problem.with_params(params), {}))
    return found


def _true_outputs(case: Case, pair: Pair, dtype: str) -> dict[str, Any]:
    """Path -> floating-point output of the reference: in float64, or in sixty digits where that is affordable."""
    problem = oracle.in_widest(case.spec, pair.where, dtype)
    with precision(pair.where, problem.dtype):
        found64 = all_outputs(pair, "reference", problem, {})
    found = {path: leaf for path, leaf in found64.items() if leaf.dtype.kind == "f"}
    if case.spec.work() <= truth.AFFORDABLE:
        with contextlib.suppress(balls.Unknown, balls.Undecided):
            found |= _in_sixty_digits(pair, problem)
    return found


def _in_sixty_digits(pair: Pair, problem: Any) -> dict[str, Any]:
    """The reference's outputs, rounded to float64."""
    names = sorted(pair.output_shapes(problem.spec))
    with balls.digits(60):
        if pair.where == "torch":
            from gradgate.suites.exact import on_torch

            flat = on_torch.evaluate(lambda: pair.outputs("reference", problem, problem.params)).outputs
        else:
            flat = _program(pair, problem.spec.static()).evaluate(problem, digits=60)
        return {path: np.asarray(balls.floats(leaf)) for path, leaf in zip(names, flat, strict=True)}


@functools.lru_cache(maxsize=64)
def _program(pair: Pair, shape: Any) -> Any:
    with precision("jax", shape.widest):
        problem = oracle.in_widest(shape, "jax", shape.widest)
        return programs.traced(lambda problem: pair.outputs("reference", problem, problem.params), problem)


def _same_places(got: Mapping[str, Any], like: Mapping[str, Any]) -> None:
    """Refute outputs that are missing, superfluous, of another shape or of another kind."""
    check_outputs(got, like)
    for path, leaf in like.items():
        if (got[path].dtype.kind == "f") != (leaf.dtype.kind == "f"):
            raise Refuted(f"another function: {path} is of {got[path].dtype}, the reference's of {leaf.dtype}", path)
