"""Rounding of inverted momentum: a loss with the same rounding sets the allowance, and wrong inverses still fail."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

import numpy as np
import pytest

from gradgate.references import oracle, registry
from gradgate.references.backends import UNIT_ROUNDOFF, leaves, namespace, precision, to_numpy
from gradgate.references.bilevel import rounding
from gradgate.references.bilevel.inner import buffered, optimisers
from gradgate.references.bilevel.problem import BilevelSpec
from gradgate.references.contract import UsageError
from gradgate.suites.bugs.edits import Edit, edited
from gradgate.suites.exact import truth
from gradgate.suites.judging.subject import Subject
from gradgate.suites.judging.tolerance import KAPPA, Comparison, compare

PACKAGE = "gradgate.references.bilevel"
LOSS = "loss_by_inversion"
LOSSES = (LOSS, "loss_on_a_grid")
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
@pytest.mark.parametrize("loss", LOSSES)
def test_in_sixty_digits_the_loss_is_the_plain_one(loss: str, spec: BilevelSpec, framework: str) -> None:
    problem = oracle.in_widest(spec, framework, "float64")
    assert apart(exactly(problem, "loss"), exactly(problem, loss, amount=0.40625)) <= 1e-30


def test_in_sixty_digits_states_that_are_rebuilt_wrongly_are_seen(
    framework: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = rounding._rebuilt

    def wrong(problem: Any, eta: Any, end: Any, scale: Any) -> Any:
        theta, velocity = right(problem, eta, end, scale)
        return {name: leaf + 2.0**-80 * leaf for name, leaf in theta.items()}, velocity

    problem = oracle.in_widest(SPECS[1], framework, "float64")
    plain = exactly(problem, "loss")
    monkeypatch.setattr(rounding, "_rebuilt", wrong)
    monkeypatch.setattr(truth, "evaluator", truth.evaluator.__wrapped__)  # no cache: no trace is reused
    assert 1e-28 < apart(plain, exactly(problem, LOSS, amount=0.25)) < 1e-20


@pytest.mark.parametrize("loss", LOSSES)
def test_each_amount_has_roundings_of_its_own(loss: str, framework: str) -> None:
    with precision(framework, "float64"):
        problem = SPECS[1].build(framework)
        runs = [oracle.split(problem, oracle.gradient(problem, loss, amount=amount)[1]) for amount in (0.0, 0.25, 0.5)]
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


def test_the_losses_share_no_function_with_the_methods(framework: str) -> None:
    static, byte, impl = (
        importlib.import_module(f"{PACKAGE}.in_{framework}.{name}") for name in ("static", "buffered", "methods")
    )

    def functions_of(*modules: Any) -> set[int]:
        """Functions that are defined in one of the modules."""
        return {id(f) for m in modules for f in vars(m).values() if getattr(f, "__module__", "") == m.__name__}

    def used(module: Any) -> set[int]:
        return {id(f) for f in vars(module).values()}

    assert used(static) & functions_of(optimisers)
    assert used(static) & functions_of(impl)
    assert used(byte) & functions_of(impl)
    assert not used(rounding) & functions_of(static, byte, buffered, impl, optimisers)


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_steps_of_another_optimiser_are_not_taken_back(loss: str, optimiser: str, framework: str) -> None:
    problem = BilevelSpec(optimiser=optimiser).build(framework)
    with pytest.raises(UsageError, match=f"{loss} .*: optimiser must be momentum, not {optimiser}"):
        getattr(problem, loss)(problem.params, 0.5)


def ratio(framework: str, name: str, fields: dict[str, Any], **options: Any) -> float:
    """Error over noise of a method on a problem, by the rule of equality and the method's declared allowance."""
    [declared] = registry.methods("bilevel", name, framework)
    spec = BilevelSpec(**fields)
    with precision(framework, spec.dtype):
        _, grads = Subject.load(declared).gradient(spec.build(framework), options)  # type: ignore[arg-type]
    reference = truth.reference(spec, framework, spec.dtype, rounding=declared.rounding)
    return compare(grads, reference, spec.dtype, declared.kappa).ratio


WEIGHED = {
    "task": "loss_weighting",
    "model": "toy",
    "optimiser": "momentum",
    "steps": 5,
    "batch": 3,
    "layers": 2,
    "width": 5,
}
SURE = {
    "task": "learning_lr",
    "model": "mlp",
    "optimiser": "adam",
    "steps": 2,
    "batch": 1,
    "layers": 2,
    "width": 4,
    "vocabulary": 2,
    "activation": "relu",
    "seed": 1859185201,
    "learning_rate": 0.08789,
    "momentum": 0.826,
    "epsilon": 2.845e-07,
    "scale": 0.9489,
}


@pytest.mark.parametrize(
    ("method", "fields", "options"),
    [
        ("buffered_inversion", {"seed": 717400761, "learning_rate": 0.2898, "momentum": 0.8097, "scale": 0.9549}, {}),
        ("buffered_inversion", {"seed": 2573284863, "learning_rate": 0.1979, "momentum": 0.5041, "scale": 0.875}, {}),
        ("truncated_bptt", {"seed": 2396341216, "learning_rate": 0.1477, "momentum": 0.8722, "scale": 0.7902}, {}),
        ("forward_mode", SURE, {"tangents": 1000}),
    ],
)
def test_a_problem_that_refuted_a_right_method_upholds_it(
    method: str, fields: dict[str, Any], options: dict[str, Any], framework: str
) -> None:
    assert ratio(framework, method, {**WEIGHED, **fields}, **options) < 4


def test_one_number_of_twelve_is_moved_by_two_roundoffs_or_less(framework: str) -> None:
    xp = namespace(framework)
    leaf = np.random.default_rng(0).standard_normal((60, 20))
    with precision(framework, "float64"):
        same, moved = (
            to_numpy(rounding.nudged(xp, xp.asarray(leaf), xp.asarray(amount), "float64")) for amount in (0.0, 0.40625)
        )
    assert (same == leaf).all()
    up, down = ((moved > leaf) == (leaf > 0)) & (moved != leaf), ((moved < leaf) == (leaf > 0)) & (moved != leaf)
    assert 0.03 < up.mean() < 0.06
    assert 0.03 < down.mean() < 0.06
    assert np.abs(moved / leaf - 1).max() <= 3 * UNIT_ROUNDOFF["float64"]


@pytest.mark.parametrize(("task", "model"), [("learning_lr", "mlp"), ("loss_weighting", "toy"), ("maml", "mlp")])
def test_samples_of_the_noise_have_states_and_logits_of_their_own(task: str, model: str, framework: str) -> None:
    with precision(framework, "float64"):
        problem = BilevelSpec(task=task, model=model, width=8).build(framework)
        moved = problem.rerounded(problem.xp.asarray(0.40625))
        assert float(moved.loss(moved.params)) == pytest.approx(float(problem.loss(problem.params)), rel=1e-12)
    assert ("shift" in moved.y) is ("shift" in moved.xs) is (model == "mlp")
    if task != "maml":
        pairs = zip(leaves(problem.data["theta"]), leaves(moved.data["theta"]), strict=True)
        assert any((to_numpy(leaf) != to_numpy(other)).any() for leaf, other in pairs)
