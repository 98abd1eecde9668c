"""The thesis as printed: it is right if every misprint is corrected, and each single misprint is detected."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradgate.references import registry
from gradgate.references.chain import errata as claims
from gradgate.references.chain.counts import least_forwards
from gradgate.references.chain.paper import as_printed, errata, tradeoff


@st.composite
def printed_costs(draw: st.DrawFn) -> as_printed.Printed:
    N = draw(st.integers(1, 5))
    return as_printed.Printed(*(draw(st.lists(st.integers(1, 6), min_size=N + 2, max_size=N + 2)) for _ in range(4)))


@settings(max_examples=80, deadline=None, derandomize=True)
@given(printed_costs(), st.integers(3, 30))
def test_the_printed_algorithm_corrected_is_optimal(costs: as_printed.Printed, budget: int) -> None:
    stated = as_printed.solve(costs, budget)
    assert stated.compute == as_printed.reachable(costs, budget)
    assert stated.peak == stated.walked


def test_corrected_each_statement_holds_on_every_drawn_case() -> None:
    corrected = (errata.solver(), errata.equation_3_4(), errata.algorithm_3_3(), errata.algorithm_2_1())
    assert corrected == (100.0,) * 4


@pytest.mark.parametrize("claim", [*claims.PRECISE, *claims.UNIFORM], ids=lambda claim: claim.name)
def test_as_printed_each_statement_fails_on_some_drawn_case(claim: claims.Claim) -> None:
    assert claim.expected == "refuted"
    assert 0 <= registry.load(claim.law.measured)("cpu") < claim.law.printed


COUNTEREXAMPLES: dict[as_printed.Misprint, tuple[as_printed.Printed, int]] = {
    "compute": (as_printed.Printed([1, 1, 1], [1, 1, 1], [1, 1, 1], [2, 2, 2]), 20),
    "failure": (
        as_printed.Printed([1, 4, 6, 5, 3, 5, 4], [5, 1, 0, 2, 4, 0, 2], [3, 5, 2, 1, 5, 2, 1], [4, 4, 1, 3, 5, 0, 1]),
        14,
    ),
    "m_min": (as_printed.Printed([1] * 5, [1] * 5, [1, 3, 1, 1, 1], [1] * 5), 8),
}


@pytest.mark.parametrize("misprint", sorted(COUNTEREXAMPLES))
def test_a_misprint_alone_gives_a_wrong_cost(misprint: as_printed.Misprint) -> None:
    costs, budget = COUNTEREXAMPLES[misprint]
    assert as_printed.solve(costs, budget).compute == as_printed.reachable(costs, budget)
    assert as_printed.solve(costs, budget, [misprint]).compute != as_printed.reachable(costs, budget)


def test_the_left_peak_read_at_j_states_a_peak_that_the_policy_exceeds() -> None:
    wrong = [as_printed.solve(*pair, ["left"]) for pair in errata.drawn()]
    assert any(math.isfinite(one.peak) and one.walked > one.peak for one in wrong)


def test_the_overwritten_quadratic_cost_changes_nothing_in_the_solver_as_its_case_is_never_reached() -> None:
    assert errata.solver("overwritten") == errata.fallback_unneeded() == 100.0


def test_equation_3_4_counts_the_value_that_its_definition_leaves_out() -> None:
    costs = as_printed.Printed([1] * 3, [1] * 3, [9, 1, 1], [1, 1, 1])
    assert as_printed.recompute_walk(costs, 0, 2) == (3, 3)
    assert as_printed.recompute_peak(costs, 0, 2) == 3
    assert as_printed.recompute_peak(costs, 0, 2, first_counted=True) == 11


def test_equation_3_4_ends_its_sweep_a_step_early() -> None:
    costs = as_printed.Printed([1] * 4, [1] * 4, [1, 5, 4, 1], [1] * 4)
    assert as_printed.recompute_peak(costs, 0, 3) == as_printed.recompute_walk(costs, 0, 3)[1] == 10
    assert as_printed.recompute_peak(costs, 0, 3, short=True) == 7


def test_algorithm_2_1_as_printed_never_reaches_chains_longer_than_its_memory() -> None:
    printed = as_printed.uniform_table(10, 4, bounded=True)
    assert (4, 3) in printed
    assert (10, 3) not in printed
    assert as_printed.uniform_table(10, 4)[10, 3] == least_forwards(10, 3)


@pytest.mark.parametrize("stages", [1, 5, 17])
def test_the_least_compute_of_a_uniform_network_is_what_the_corrected_algorithm_states(stages: int) -> None:
    ones = [1] * (stages + 2)
    stated = as_printed.curve(as_printed.Printed(ones, ones, ones, ones), stages + 6)
    assert stated[4:] == [tradeoff.least(stages, m) for m in range(4, stages + 7)]
    assert stated[:4] == [math.inf] * 4
    with pytest.raises(LookupError, match="3 slots"):
        tradeoff.least(stages, 3)


def test_a_curve_is_what_the_solver_states_at_each_budget() -> None:
    costs, budget = errata.drawn()[7]
    assert as_printed.curve(costs, budget + 5) == [as_printed.solve(costs, m).compute for m in range(budget + 6)]
