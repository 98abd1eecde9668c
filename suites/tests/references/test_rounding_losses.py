"""Losses that model a method's rounding: they equal `loss` in exact arithmetic and share no code with the method.

If such a loss contained a bug of the method, the bug would raise the allowance by which the method is judged. So these
tests run both the loss and the method. The only functions of ours that may run in both are those of `loss` itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gradgate.references import contract, oracle, registry
from gradgate.references.backends import precision, transforms
from gradgate.references.contract import Method
from gradgate.references.invertible import inverse_products, layers
from gradgate.references.invertible.problem import InvertibleProblem, InvertibleSpec
from gradgate.suites.engine.strategies import covering_specs, pick_options
from gradgate.suites.exact import agreement, truth
from gradgate.suites.exact.programs import Evaluator, backprop

FOLDER = Path(contract.__file__).parent
TOOLS = {str(FOLDER / name) for name in ("backends.py", "contract.py", "draws.py")}
"""Code for backends and code that every Problem has; it contains no mathematics of a method."""
WITH_ROUNDING = [method for method in registry.methods() if method.rounding]
PAIRS = sorted({(method.family, method.framework, method.rounding) for method in WITH_ROUNDING})


@contextlib.contextmanager
def watched() -> Iterator[set[types.CodeType]]:
    """The functions of ``references/`` that are called within the context, without those of TOOLS."""
    ran: set[types.CodeType] = set()

    def entered(code: types.CodeType) -> None:
        if code.co_filename.startswith(str(FOLDER)) and code.co_filename not in TOOLS:
            ran.add(code)

    before = sys.getprofile()
    sys.setprofile(lambda frame, event, _: entered(frame.f_code) if event == "call" else None)
    try:
        yield ran
    finally:
        sys.setprofile(before)


def functions_run_by(program: Callable[[Any], Any], problem: Any) -> set[types.CodeType]:
    """The functions that `program(problem)` runs. A JAX program is traced, which runs every function of ours in it."""
    with precision(problem.backend, problem.dtype), watched() as ran:
        if problem.backend == "jax":
            import jax

            jax.clear_caches()  # otherwise a program that is in the cache is not traced again
            jax.make_jaxpr(lambda: program(problem))()
        else:
            program(problem)
    return ran


def gradient_of(loss: str, *amount: float) -> Callable[[Any], Any]:
    """The gradient of a loss of the problem, computed by the framework."""

    def run(problem: Any) -> Any:
        given = [problem.xp.asarray(each) for each in amount]
        grad = transforms(problem.backend).grad
        return grad(lambda params: getattr(problem, loss)(params, *given))(problem.params)

    return run


def _of_loss(problem: Any, loss: str, *amount: float) -> set[types.CodeType]:
    """`functions_run_by` of the gradient of a loss, computed once for all methods of a problem."""
    key = (problem.spec, problem.backend, getattr(type(problem), loss))
    if key not in _KNOWN:
        _KNOWN[key] = functions_run_by(gradient_of(loss, *amount), problem)
    return _KNOWN[key]


_KNOWN: dict[Any, set[types.CodeType]] = {}


def shared(method: Method, spec: Any) -> set[str]:
    """Names of the functions that both the method and the loss of its rounding run, but that `loss` does not run."""
    problem = dataclasses.replace(spec, dtype="float64").build(method.framework)
    options = pick_options(method, spec)
    implementation = registry.load(method.implementation)
    ours = functions_run_by(lambda problem: implementation(problem, **options), problem)
    theirs = _of_loss(problem, method.rounding, 1.0)
    assert ours
    assert theirs
    both = ours & theirs - _of_loss(problem, "loss")
    return {f"{Path(code.co_filename).stem}.{code.co_qualname}" for code in both}


def specs_of(method: Method) -> list[Any]:
    """Specs with every size and every kind of layer or feature that the method supports."""
    claim = method.claim("gradient_float64")
    return covering_specs(registry.family(method.family), claim.where, seed=3)


@pytest.mark.parametrize("method", WITH_ROUNDING, ids=lambda method: method.key)
def test_a_method_and_the_loss_of_its_rounding_share_no_function(method: Method) -> None:
    pytest.importorskip(method.framework)
    specs = specs_of(method)
    assert specs
    for spec in specs:
        assert shared(method, spec) == set()


def test_a_loss_that_calls_what_the_method_calls_is_found(framework: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(self: Any, params: Any, amount: Any) -> Any:
        layer, p = self.chain(params)[0]
        return self.loss(params) + 0 * layer.inverse(p, layer(p, self.x)).sum()

    monkeypatch.setattr(InvertibleProblem, "loss_by_reversing", careless)
    [method] = registry.methods("invertible", "reversible", framework)
    assert "matrices.Linear.inverse" in shared(method, InvertibleSpec(unit="dense", layers=1))


@pytest.mark.parametrize("loss", ["loss_by_reversing", "loss_by_vijp"])
def test_the_losses_work_where_everything_that_the_methods_call_is_broken(
    loss: str, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise AssertionError("the loss of a method's rounding called the method")

    spec = InvertibleSpec(unit="affine dense leaky_relu conv1x1 tanh", layers=2, side=2, channels=3, submersive=1)
    problem = spec.build("torch")
    expected = oracle.gradient(problem)[1]
    kinds = (layers.Layer, layers.Coupling, layers.Elementwise, layers.Linear, layers.Submersion, layers.Downsampling)
    for kind in kinds:
        for name in ("inverse", "advance", "retreat", "_solved", "_parts"):
            if name in vars(kind):
                monkeypatch.setattr(kind, name, broken)
    for module, names in (
        (layers, ("vijp_of_inverse", "vijp_by_solve", "right_solved")),
        (inverse_products, ("advance_by",)),
    ):
        for name in names:
            monkeypatch.setattr(module, name, broken)
    found = gradient_of(loss, 1.0)(problem)
    for name, leaf in oracle.split(problem, found).items():
        assert leaf == pytest.approx(oracle.split(problem, expected)[name], rel=1e-9, abs=1e-12)


def test_a_bug_of_the_method_does_not_raise_what_it_is_allowed(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = InvertibleSpec(unit="additive tanh", layers=3, channels=4, seed=5)
    honest = truth.reference(spec, "torch", "float64", rounding="loss_by_vijp").lost
    advance = layers.Coupling.advance

    def wrong(self: Any, vjp: Any, p: Any, x: Any, h: Any) -> Any:
        y, h, g = advance(self, vjp, p, x, h)
        return y, h * (1 + 1e-6), g

    monkeypatch.setattr(layers.Coupling, "advance", wrong)
    assert truth.reference(spec, "torch", "float64", rounding="loss_by_vijp").lost == honest


@pytest.mark.parametrize(("family", "framework", "loss"), PAIRS)
def test_the_loss_is_the_plain_one_to_forty_digits(family: str, framework: str, loss: str) -> None:
    pytest.importorskip(framework)
    [method, *_] = [m for m in WITH_ROUNDING if (m.family, m.framework, m.rounding) == (family, framework, loss)]
    for spec in specs_of(method):
        problem = oracle.in_widest(spec, framework, "float64")
        found = _settled(problem, loss, {"amount": problem.xp.asarray(1.0)})
        assert not found.wrong, (spec, found.shown)


def test_a_loss_that_is_another_function_is_told_apart(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = InvertibleProblem.loss
    monkeypatch.setattr(InvertibleProblem, "loss_by_vijp", lambda self, p, amount: plain(self, p) * (1 + 1e-14))
    problem = InvertibleSpec(layers=1).build("torch")
    assert _settled(problem, "loss_by_vijp", {"amount": 1.0}).wrong


def _settled(problem: Any, loss: str, options: dict[str, Any]) -> agreement.Agreement:
    """Value and gradient of a loss, compared with those of the plain loss in sixty digits or more."""
    run = Evaluator(backprop(loss, options, problem.backend))
    plain = Evaluator(backprop("loss", {}, problem.backend))
    return agreement.settle(lambda digits: run(problem, digits).values, lambda digits: plain(problem, digits).values)
