"""The figures that judge claims: they measure what their names say, and they show a fault if there is one."""

from __future__ import annotations

import importlib
import math

import pytest

from gradgate.references.chain.paper import extra_work, figures
from gradgate.references.chain.schedules import classic
from gradgate.references.chain.schedules.costs import Costs
from gradgate.references.chain.schedules.schedule import Schedule


def test_uniform_draws_are_chains_of_equal_stages_of_every_length() -> None:
    drawn = [figures.random_uniform_costs(seed) for seed in range(60)]
    assert {costs.stages for costs in drawn} == set(range(1, 8))
    for costs in drawn:
        assert all(len(set(each)) == 1 for each in (costs.forward, costs.output, costs.saved, costs.save_peak))


def test_the_solver_is_as_good_as_the_search_on_some_of_the_drawn_chains() -> None:
    assert figures.lazy_gap(drawn=40) == figures.uniform_gap(drawn=40) == 1.0


def _instead(monkeypatch: pytest.MonkeyPatch, other: Schedule) -> None:
    monkeypatch.setattr(figures, "precise_dp", lambda costs, budget, slot: other)


def test_a_solver_that_computes_more_or_takes_more_bytes_than_it_may_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = Costs.uniform(4)
    assert figures.gap(costs, 30, "lazy") == 1.0
    _instead(monkeypatch, classic.recompute_all(4))
    assert figures.gap(costs, 30, "lazy") == (4 + 6 + 4) / 8
    _instead(monkeypatch, classic.save_all(4))
    assert figures.gap(costs, 6, "lazy") == math.inf


def test_bytes_of_the_hosts_programs_are_no_schedules() -> None:
    pytest.importorskip("jax")
    with pytest.raises(LookupError, match="cpu: XLA for CPUs"):
        figures.precise_share("cpu", lambda problem, budget: None)


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_a_method_that_runs_more_than_it_must_is_found_by_its_own_forwards(
    framework: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(framework)
    methods = importlib.import_module(f"gradgate.references.chain.in_{framework}.methods")
    measured = {"jax": figures.gap_in_jax, "torch": figures.gap_in_torch}[framework]
    monkeypatch.setattr(figures, "CALLED", figures.CALLED[2:3])
    assert measured("cpu", methods.precise_dp) == pytest.approx(1.0)
    assert measured("cpu", lambda problem, budget: methods.recompute_all(problem)) > 1.2


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_extra_work_follows_its_own_law_and_no_other(framework: str) -> None:
    pytest.importorskip(framework)
    assert extra_work.spread(framework, "recompute_all", (6, 12), extra_work.pairs) == pytest.approx(1, abs=0.05)
    assert extra_work.spread(framework, "recompute_all", (6, 12), extra_work.n_log_n) > 1.2
    assert extra_work.spread(framework, "recursive", (7, 15), extra_work.pairs) > 1.2
    assert extra_work.spread(framework, "backprop", (6, 12), extra_work.pairs) == math.inf


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_a_method_without_its_schedule_breaks_the_law(framework: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(framework)
    methods = importlib.import_module(f"gradgate.references.chain.in_{framework}.methods")
    monkeypatch.setattr(methods, "recursive", methods.sqrt_n)
    assert extra_work.spread(framework, "recursive", (7, 31), extra_work.n_log_n) > 1.2
