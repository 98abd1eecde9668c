"""Rounding of inverted momentum: a loss with the same rounding sets the allowance, and wrong inverses still fail."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

import numpy as np
import pytest

from gradgate.references import oracle, registry
from gradgate.references.backends import UNIT_ROUNDOFF, precision
from gradgate.references.bilevel import rounding
from gradgate.references.bilevel.inner import optimisers
from gradgate.references.bilevel.problem import BilevelSpec
from gradgate.references.contract import UsageError
from gradgate.suites.bugs.edits import Edit, edited
from gradgate.suites.exact import truth
from gradgate.suites.judging.subject import Subject
from gradgate.suites.judging.tolerance import KAPPA, Comparison, compare

PACKAGE = "gradgate.references.bilevel"
LOSS = "loss_by_inversion"
SPECS = (
    BilevelSpec(model="mlp", optimiser="momentum", steps=1, layers=2, width=2, batch=4, momentum=0.7, seed=5),
    BilevelSpec(
        task="loss_weighting", model="toy", optimiser="momentum", steps=5, batch=3, width=3, momentum=0.6, seed=5
    ),
    BilevelSpec(
        task="learning_lr", model="mlp", optimiser="momentum", steps=3, layers=1, width=2, momentum=0.6, seed=5
    ),
)
TAKEN_BACK = "tree_map(lambda v, g: (v - g) / momentum, velocity, grad)"
WRONG = {
    "decay forgotten": Edit("inner.optimisers", TAKEN_BACK, "tree_map(lambda v, g: v - g, velocity, grad)"),
    "decay of the velocity alone": Edit(
        "inner.optimisers", TAKEN_BACK, "tree_map(lambda v, g: v / momentum - g, velocity, grad)"
    ),
    "step not taken back": Edit("inner.optimisers", "lambda a, v, p: p + a * v", "lambda a, v, p: p + 0 * a * v"),
}


DECLARED = {
    framework: registry.methods("bilevel", "momentum_inversion", framework)[0] for framework in ("jax", "torch")
}


def judged(framework: str, spec: BilevelSpec, *edits: Edit) -> Comparison:
    """Judge inverted momentum, with edits of its source, by the rule of equality and its declared allowance."""
    [declared] = registry.methods("bilevel", "momentum_inversion", framework)
    function = edited(declared.implementation, edits) if edits else Subject.load(declared).function
    with precision(framework, spec.dtype):
        problem = spec.build(framework)
        _, grads = function(problem)
    reference = truth.reference(spec, framework, spec.dtype, rounding=declared.rounding)
    return compare(oracle.split(problem, grads), reference, spec.dtype, declared.kappa)


def lost(framework: str, **fields: Any) -> float:
    """The largest λ/ν of a leaf."""
    spec = BilevelSpec(model="toy", optimiser="momentum", width=2, layers=1, seed=6, **fields)
    found = truth.reference(spec, framework, "float64", rounding=LOSS)
    return max(found.lost[name] / found.noise[name] for name in found.grads)


def exactly(problem: Any, loss: str, **options: Any) -> oracle.Truth:
    """Loss and gradient to sixty digits."""
    found = truth.of_problem(problem, loss, options)
    assert found is not None
    return found


def apart(one: oracle.Truth, other: oracle.Truth) -> float:
    """The largest difference of two truths, divided by the largest number."""
    return float(np.abs((one.high - other.high) + (one.low - other.low)).max() / np.abs(one.high).max())


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.task)
def test_in_sixty_digits_the_loss_along_rebuilt_states_is_the_loss(spec: BilevelSpec, framework: str) -> None:
    problem = oracle.in_float64(spec, framework, "float64")
    assert apart(exactly(problem, "loss"), exactly(problem, LOSS, amount=0.40625)) <= 1e-30


def test_in_sixty_digits_states_that_are_rebuilt_wrongly_are_seen(
    framework: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = rounding._rebuilt

    def wrong(problem: Any, eta: Any, end: Any, scale: Any) -> Any:
        theta, velocity = right(problem, eta, end, scale)
        return {name: leaf + 2.0**-80 * leaf for name, leaf in theta.items()}, velocity

    problem = oracle.in_float64(SPECS[1], framework, "float64")
    plain = exactly(problem, "loss")
    monkeypatch.setattr(rounding, "_rebuilt", wrong)
    monkeypatch.setattr(truth, "evaluator", truth.evaluator.__wrapped__)  # no cache: no trace is reused
    assert 1e-28 < apart(plain, exactly(problem, LOSS, amount=0.25)) < 1e-20


def test_each_amount_has_roundings_of_its_own(framework: str) -> None:
    with precision(framework, "float64"):
        problem = SPECS[1].build(framework)
        runs = [oracle.split(problem, oracle.gradient(problem, LOSS, amount=amount)[1]) for amount in (0.0, 0.25, 0.5)]
        plain = oracle.split(problem, oracle.gradient(problem)[1])
    for name, leaf in plain.items():
        assert all(run[name] == pytest.approx(leaf, rel=1e-10, abs=1e-13) for run in runs)
    assert len({run["weights"].tobytes() for run in runs}) == 3


def test_the_rounding_grows_with_the_bits_that_are_lost_and_with_nothing_else(framework: str) -> None:
    assert lost(framework, steps=1, momentum=0.5) < 8
    assert lost(framework, steps=24, momentum=0.95) < 256
    assert lost(framework, steps=24, momentum=0.5) > 4096


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_momentum_taken_back_is_well_within_its_allowance(dtype: str, framework: str) -> None:
    assert judged(framework, dataclasses.replace(SPECS[1], dtype=dtype)).ratio < KAPPA / 4


@pytest.mark.parametrize(
    ("mistake", "dtype"), [*((mistake, "float64") for mistake in sorted(WRONG)), ("decay forgotten", "float32")]
)
def test_a_wrong_inverse_is_not_excused(mistake: str, dtype: str, framework: str) -> None:
    found = judged(framework, dataclasses.replace(SPECS[1], dtype=dtype), WRONG[mistake])
    assert not found.equal
    assert found.error > 1e3 * UNIT_ROUNDOFF[dtype]


def test_the_loss_shares_no_function_with_the_method(framework: str) -> None:
    static, impl = (importlib.import_module(f"{PACKAGE}.in_{framework}.{name}") for name in ("static", "methods"))

    def own(*modules: Any) -> set[int]:
        """Functions that are defined in one of the modules."""
        return {id(f) for m in modules for f in vars(m).values() if getattr(f, "__module__", "") == m.__name__}

    def used(module: Any) -> set[int]:
        return {id(f) for f in vars(module).values()}

    assert used(static) & own(optimisers)
    assert used(static) & own(impl)
    assert not used(rounding) & own(static, impl, optimisers)


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_the_steps_of_another_optimiser_are_not_taken_back(optimiser: str, framework: str) -> None:
    problem = BilevelSpec(optimiser=optimiser).build(framework)
    with pytest.raises(UsageError, match=f"optimiser must be momentum, not {optimiser}"):
        problem.loss_by_inversion(problem.params, 0.5)
