"""The rule for all problems of a claim together: exchangeable errors pass, a consistent excess is refuted."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from math import comb
from typing import Any

import numpy as np
import pytest

from gradgate.references import registry
from gradgate.references.backends import UNIT_ROUNDOFF
from gradgate.references.oracle import NOISE_SAMPLES, Reference
from gradgate.suites.engine.search import judge
from gradgate.suites.judging.population import (
    ALARM,
    CHANCE,
    CUT,
    DEVIATIONS,
    FEWEST_TOGETHER,
    Population,
    Scaled,
    _levelled,
    kind_of,
    least,
)
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.subject import Subject
from gradgate.suites.judging.tolerance import EXCESS, INFORMATIVE, KAPPA, Along, Comparison, compare
from gradgate.suites.judging.verdict import Task

NOISE = 0.01


def population(
    ratios: Any, noise: float = NOISE, dtype: str = "bfloat16", leaf: str = "w", shape: str = "a"
) -> Population:
    found = Population()
    for ratio in ratios:
        found.add(Comparison(dtype, {leaf: (ratio * noise, noise, ratio)}), shape)
    return found


@pytest.mark.parametrize("problems", [1, 9, 10, 11, 33, 100, 500])
def test_the_count_that_refutes_is_the_smallest_with_less_than_the_stated_chance(problems: int) -> None:
    p = Fraction(1, NOISE_SAMPLES + 1)

    def tail(count: int) -> Fraction:
        return sum(
            (comb(problems, k) * p**k * (1 - p) ** (problems - k) for k in range(count, problems + 1)), Fraction(0)
        )

    assert pytest.approx(float(p)) == CHANCE
    assert tail(least(problems)) <= ALARM < tail(least(problems) - 1)


def test_fewer_than_ten_problems_refute_nothing() -> None:
    assert population([15.0] * (FEWEST_TOGETHER - 1)).excess() is None
    assert population([15.0] * FEWEST_TOGETHER).excess() is not None


def test_an_error_just_within_twice_the_noise_is_upheld_however_often() -> None:
    assert population([EXCESS] * 100).excess() is None


def test_a_consistent_excess_is_refuted_though_every_problem_is_in_bounds() -> None:
    found = population([0.5] * 40 + [1.01 * EXCESS] * 60).excess()
    assert found is not None
    assert (found.leaf, found.above, found.problems) == ("w", 60, 100)
    assert "in bounds on each problem" in str(found)
    assert population([1.01 * EXCESS if i % 3 == 0 else 0.5 for i in range(100)]).excess() is None


def test_an_excess_on_one_shape_of_five_is_seen() -> None:
    found = Population()
    for i in range(100):
        ratio = 3.0 if i % 5 == 4 else 0.3
        found.add(Comparison("bfloat16", {"w": (ratio * NOISE, NOISE, ratio)}), str(i % 5))
    assert found.excess() is not None


def test_an_error_of_constant_size_is_seen_where_the_noise_is_small() -> None:
    found = Population()
    for i in range(100):
        noise = 0.01 if i % 9 == 0 else 0.09
        found.add(Comparison("bfloat16", {"w": (0.05, noise, 0.05 / noise)}), "a")
    assert found.excess() is not None


def test_errors_that_are_exchangeable_with_plain_backprop_raise_no_alarm() -> None:
    rng = np.random.default_rng(20261)
    for _ in range(200):
        spread = np.exp(rng.normal(size=(100, 1)))  # problems differ by powers of ten, and the tails are heavy
        runs = spread * np.abs(rng.standard_t(2, size=(100, NOISE_SAMPLES + 1)))
        noise = runs[:, 1:].max(axis=1)
        found = Population()
        for error, allowed in zip(runs[:, 0], 1e-3 * noise / noise.max(), strict=True):
            ratio = error / (1e3 * allowed * noise.max())
            found.add(Comparison("float32", {"w": (ratio * allowed, allowed, ratio)}), "a")
        assert found.excess() is None


def scalings(rows: int, error: float, spread: float = 0.02, seed: int = 20262) -> Population:
    """Problems on which plain backprop's scaling is random, and the method's scaling is random plus `error`."""
    rng = np.random.default_rng(seed)
    found = Population()
    for _ in range(rows):
        runs = spread * rng.normal(size=NOISE_SAMPLES + 1)
        along = Along(float(runs[0]) + error, runs[1:], np.zeros(NOISE_SAMPLES))
        found.add(Comparison("bfloat16", {"w": (0.0, 0.05, 0.0)}, along={"w": along}), "a")
    return found


@pytest.mark.parametrize("seed", range(20))
def test_a_common_factor_is_refuted_where_the_errors_of_single_problems_hide_it(seed: int) -> None:
    found = scalings(80, 0.04, seed=seed).refuted()
    assert isinstance(found, Scaled)
    assert found.leaf == "w"
    assert "on average" in str(found)
    assert scalings(80, 0.0, seed=seed).refuted() is None


@pytest.mark.parametrize("freedom", [3, 4, 1000])
def test_the_bound_on_the_chance_of_a_false_alarm_is_the_stated_one(freedom: int) -> None:
    rng = np.random.default_rng([20263, freedom])
    shares = np.zeros(2000)
    for _ in range(10):  # the distribution of |t|; it has no scale
        runs = rng.standard_t(freedom, size=(200_000, NOISE_SAMPLES + 1))
        sigma = np.sqrt((runs[:, 1:] ** 2).mean(axis=1))
        most = np.maximum(CUT, EXCESS * np.abs(runs[:, 1]) / sigma)
        found, edges = np.histogram(np.minimum(np.abs(runs[:, 0]) / sigma, most), len(shares), (0, 8))
        shares += found / runs.shape[0] / 10
    middles = (edges[1:] + edges[:-1]) / 2
    bounds = []
    for tilt in np.linspace(1, 20, 100):
        rises = [n * np.log(shares @ np.cosh(tilt / np.sqrt(n) * middles)) for n in (10, 11, 12, 15, 20, 40, 100, 1000)]
        bounds.append(2 * float(np.exp(max(rises) - tilt * DEVIATIONS)))
    assert min(bounds) <= ALARM / NOISE_SAMPLES


@pytest.mark.parametrize("spread", [0.0, 1.0, 3.0])
def test_no_problem_has_more_than_a_tenth_of_the_weight(spread: float) -> None:
    given = np.exp(spread * np.random.default_rng(20266).normal(size=30))
    found = _levelled(given)
    assert (found**2).max() <= (found**2).sum() / FEWEST_TOGETHER * (1 + 1e-12)
    assert (found <= given).all()
    assert spread or (found == given).all()
    assert _levelled(given[:FEWEST_TOGETHER]) == pytest.approx(np.full(FEWEST_TOGETHER, given[:FEWEST_TOGETHER].min()))


def test_right_methods_of_problems_of_any_scale_raise_no_alarm() -> None:
    rng = np.random.default_rng(20264)
    for _ in range(500):
        runs = 0.02 * np.exp(rng.normal(size=(40, 1))) * rng.standard_t(3, size=(40, NOISE_SAMPLES + 1))
        rows = [(str(i % 3), Along(run[0], run[1:], np.zeros(NOISE_SAMPLES))) for i, run in enumerate(runs)]
        assert Population(along={("bfloat16", "w"): rows}).scaled() is None


@pytest.mark.parametrize("dtype", INFORMATIVE)
def test_a_common_factor_shows_where_few_problems_are_well_conditioned(dtype: str) -> None:
    rng, u = np.random.default_rng(20265), UNIT_ROUNDOFF[dtype]
    spread = u * np.geomspace(0.3, 3e3, 40)[:, None]
    runs = spread * rng.normal(size=(40, NOISE_SAMPLES + 1))
    rows = [("a", Along(run[0] + 40 * u, run[1:], np.zeros(NOISE_SAMPLES))) for run in runs]
    assert Population(along={(dtype, "w"): rows}).scaled() is not None
    rows = [("a", Along(run[0], run[1:], np.zeros(NOISE_SAMPLES))) for run in runs]
    assert Population(along={(dtype, "w"): rows}).scaled() is None


def test_an_error_with_a_preferred_sign_is_allowed_to_twice_that_of_plain_backprop() -> None:
    found = Population()
    for _ in range(50):
        along = Along(0.019, np.full(NOISE_SAMPLES, 0.01), np.zeros(NOISE_SAMPLES))
        found.add(Comparison("bfloat16", {"w": (0.0, 0.05, 0.0)}, along={"w": along}), "a")
    assert found.scaled() is None


def test_one_problem_with_a_heavy_tail_does_not_decide() -> None:
    found = scalings(40, 0.0)
    wild = Along(1e6, np.full(NOISE_SAMPLES, 0.001), np.zeros(NOISE_SAMPLES))
    found.along["bfloat16", "w"].append(("a", wild))
    assert found.scaled() is None


def test_problems_whose_bound_is_too_wide_do_not_count() -> None:
    wide = INFORMATIVE["bfloat16"] / EXCESS
    assert population([5.0] * 50, noise=wide).excess() is None
    informed = population([0.5] * 50, noise=wide).informed()
    assert informed is not None
    assert (informed.problems, informed.judged, informed.enough) == (0, 50, False)
    assert "too few informative problems: 0 of 50" in str(informed)


def test_each_kind_of_leaf_needs_informative_problems_of_its_own() -> None:
    found = Population()
    for _ in range(20):
        found.add(Comparison("float32", {"layers[0].w": (0.0, 1e-6, 0.0), "head": (0.0, 1.0, 0.0)}), "a")
    informed = found.informed()
    assert informed is not None
    assert (informed.kind, informed.enough) == ("head", False)
    assert kind_of("layers[12].A.w") == "layers[].A.w"


def plugged(kappa: float) -> tuple[Task, Subject]:
    """Plain backprop of state_space with a declared `kappa`, even one that the decorator would refuse."""
    declared = registry.methods("state_space", "backprop", "torch")[0]
    declared = dataclasses.replace(declared, kappa=kappa)
    return Task.of(declared, declared.claim("gradient_float32")), Subject.load(declared)


def test_no_verdict_is_upheld_with_a_bound_of_one() -> None:
    task, subject = plugged(1e8)
    verdict = judge(task, subject, Run(examples=12))
    assert (verdict.verdict, verdict.informative) == ("inapplicable", 0)
    assert "allows itself too much" in verdict.reason


def test_an_upheld_verdict_shows_its_bound_and_its_informative_problems() -> None:
    task, subject = plugged(KAPPA)
    verdict = judge(task, subject, Run(examples=12))
    assert verdict.verdict == "upheld"
    assert verdict.bound is not None
    assert verdict.bound < INFORMATIVE["float32"]
    assert verdict.informative is not None
    assert verdict.informative <= verdict.examples == 12


def test_a_refutation_by_all_problems_is_reproduced_by_all_of_them() -> None:
    declared = registry.methods("state_space", "backprop", "torch")[0]
    subject = Subject.load(declared)
    plain = subject.function
    subject.function = lambda problem, **options: _scaled(plain(problem, **options), 1.08)
    verdict = judge(Task.of(declared, declared.claim("gradient_bfloat16")), subject, Run(examples=60, seed=3))
    assert verdict.verdict == "refuted"
    assert verdict.spec is None
    assert "--examples 60 --seed 3" in verdict.reproduce


def _scaled(answer: Any, factor: float) -> Any:
    loss, grads = answer
    return loss, {**grads, "embedding": grads["embedding"] * factor}


def test_a_comparison_prefers_a_leaf_that_says_something() -> None:
    truth = Reference(1.0, {"vague": np.ones(1), "clear": np.ones(1)}, {"": 0.0, "vague": 1.0, "clear": 1e-7})
    found = compare({"vague": np.array([2.0]), "clear": np.array([1 + 1e-8])}, truth, "float32")
    assert (found.leaf, found.informs) == ("clear", True)
