"""Statements about real networks, tables and small cases: each measurement tells a right case from a wrong one."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from gradgate.references.chain.paper import as_printed, errata, layers, memoised, small_cases
from gradgate.references.chain.paper.as_printed import Printed
from gradgate.references.chain.schedules import classic
from gradgate.references.chain.schedules.costs import Costs
from gradgate.references.chain.schedules.simulate import simulate
from gradgate.references.chain.schedules.solver import minimum_budget, precise_dp, table_bytes

UNEVEN = Costs.of([9, 1, 1, 9, 1, 1, 1, 1], [1] * 8, [2, 8, 1, 1, 8, 1, 1, 1, 1], [0, 1, 0, 4, 0, 0, 1, 0])


@pytest.fixture
def of(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put costs in the place of a network's."""
    layers._two_solvers.cache_clear()
    layers._searched.cache_clear()

    def put(costs: Costs) -> None:
        monkeypatch.setattr(layers, "_costs", lambda network: costs)

    yield put
    layers._two_solvers.cache_clear()
    layers._searched.cache_clear()


def test_uniform_layers_have_no_spread_and_uneven_ones_have(of: Any) -> None:
    of(Costs.uniform(8))
    assert layers.flops_spread("any") == layers.bytes_spread("any") == 1.0
    of(UNEVEN)
    assert layers.flops_spread("any") == 9 / 3
    assert layers.bytes_spread("any") > 2


def test_a_solver_that_knows_no_compute_runs_fewer_stages_again_and_dearer_ones(of: Any) -> None:
    of(UNEVEN)
    assert layers.uniform_runs("any") <= 1.0 <= layers.uniform_price("any")
    assert layers._extra(classic.recompute_all(8), UNEVEN) == sum(
        n * f for n, f in zip(range(7, -1, -1), UNEVEN.forward, strict=True)
    )


def test_the_least_budget_is_counted_in_whole_slots(of: Any) -> None:
    of(UNEVEN)
    assert layers.least_slots("any") == 1
    of(dataclasses.replace(UNEVEN, fixed=5 * 2**20))
    assert layers.least_slots("any") == 6


def test_a_budget_that_never_binds_leaves_the_rate_of_compute_and_a_tight_one_the_peak() -> None:
    pytest.importorskip("torch")
    layers._of_batch.cache_clear()
    assert layers.later_rate(2**40) == pytest.approx(1.0)
    assert layers.peak_growth(2**40) == pytest.approx(2.0, rel=0.01)
    assert layers.peak_growth(2 * 2**30) < 1.5
    layers._of_batch.cache_clear()


def test_layers_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from gradgate.references.chain.paper import networks, rows

    def dense(*given: Any, **more: Any) -> Any:
        with torch.device("meta"):
            wide = torch.nn.Linear(64, 4096)
            chain = (torch.nn.Conv2d(3, 4, 1), torch.nn.Flatten(), torch.nn.Linear(256, 64), wide)
            return (*chain, networks.Loss(torch.randint(10, (2,)))), torch.randn(2, 3, 8, 8)

    monkeypatch.setattr(rows, "chain_of", dense)
    assert layers.dense_layers("any") == 2
    assert layers.weights_share("any") > 1, "such weights are most of a step's bytes"
    assert layers.longest_convolution("any") < 1


def test_a_peak_that_drops_where_quadratic_segments_begin_is_told_from_one_that_rises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    curve = {"batch": [40, 80, 160, 320], "stages": [1, 1, 3, 3]}
    monkeypatch.setattr(layers, "quadratic_curve", lambda budget: curve)
    for peaks, expected in (({80: 100, 160: 90}, 0.9), ({80: 100, 160: 110}, 1.1)):
        monkeypatch.setattr(layers, "_of_batch", lambda batch, budget, peaks=peaks: (0.0, peaks[batch]))
        assert layers.peak_at_quadratic() == expected


def test_values_that_hold_recordings_need_no_less_than_values_alone(of: Any) -> None:
    of(UNEVEN)
    assert layers.as_one_budget("any") >= 1.0 <= layers.as_one_flops("any")
    bare = dataclasses.replace(UNEVEN, saved=(0,) * 8, saves_input=(False,) * 8, saves_output=(True,) * 8)
    assert minimum_budget(layers.as_one(bare)) == minimum_budget(bare)  # where a stage saves its output, both are one


def test_chens_heuristic_with_a_large_limit_is_plain_and_its_search_is_never_below_the_solver(of: Any) -> None:
    of(UNEVEN)
    assert layers.greedy(UNEVEN, sum(layers.recorded_bytes(UNEVEN))) == classic.save_all(8)
    assert max(layers.greedy(UNEVEN, 9).runs()) == 2  # one recomputation at most
    assert layers.greedy_peak("any") >= 1.0 <= layers.greedy_flops("any")
    assert layers.greedy_runs("any") == 2 < max(classic.recompute_all(8).runs())


def test_quadratic_segments_are_counted_in_stages() -> None:
    assert layers.quadratic(classic.recompute_all(7)) == 7
    assert layers.quadratic(classic.save_all(7)) == 1
    assert layers.quadratic(classic.segments(12, 3)) == 1
    costs = Costs.uniform(12)
    assert layers.quadratic(precise_dp(costs, minimum_budget(costs), slot=1)) > 2


def test_the_listing_ends_at_its_first_tensor_and_its_second_comment_is_wrong() -> None:
    pytest.importorskip("torch")
    assert (small_cases.listing_2_1("Tensor"), small_cases.listing_2_1("tensor")) == (0.0, 80.0)


def test_differences_evaluate_once_per_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    assert small_cases.difference_evaluations() == 1.0
    once = small_cases.background._differences

    def twice(*given: Any) -> Any:
        once(*given)
        return once(*given)

    monkeypatch.setattr(small_cases.background, "_differences", twice)
    assert small_cases.difference_evaluations() > 2


def test_the_least_memory_within_m_is_that_of_the_corrected_solver_and_outside_m_it_is_more() -> None:
    for p, _ in errata.drawn()[:60]:
        least = small_cases._least_within(p, 0, p.N + 1) + p.beta_f[0]
        assert as_printed.solve(p, least).compute < as_printed.INFINITE == as_printed.solve(p, least - 1).compute
    alike = Printed([1] * 6, [1] * 6, [1] * 6, [1] * 6)
    large = Printed([1] * 6, [1] * 6, [1] * 6, [1] * 5 + [9])
    stated = [p.beta_b[5] + small_cases._least_outside(p, 0, 5) for p in (alike, large)]
    assert stated[0] >= small_cases._least_within(alike, 0, 5)
    assert stated[1] > small_cases._least_within(large, 0, 5)


def test_targets_that_the_caller_holds_are_counted_and_nested_checkpoints_keep_one_input() -> None:
    pytest.importorskip("torch")
    assert small_cases.targets_kept() == 1.0
    assert small_cases.nested_bytes(3) == 1.0


def test_squares_separate_circles_do_not() -> None:
    assert (small_cases.separators("squares"), small_cases.separators("circles")) == (100.0, 0.0)


@pytest.mark.parametrize("shape", ["sequence", "tree"])
def test_a_skip_merges_three_nodes_a_split_two_and_a_path_none(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (small_cases.largest_bag("skip", shape), small_cases.largest_bag("merge", shape)) == (3, 2)
    monkeypatch.setattr(small_cases, "MERGE", {"x": ("a",), "a": ("b",), "b": ("end",)})
    assert small_cases.largest_bag("merge", shape) == 1


def test_a_node_with_three_readers_is_a_tree_without_merging_and_no_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_cases, "MERGE", {"x": ("a", "b", "c")})
    assert (small_cases.largest_bag("merge", "tree"), small_cases.largest_bag("merge", "sequence")) == (1, 2)


def test_one_node_of_each_branch_separates_and_a_node_that_is_read_twice_subsumes_nothing() -> None:
    kinds = ("ends of branches", "single nodes of branches", "one node of each branch")
    assert [small_cases.separators(kind) for kind in kinds] == [100.0, 0.0, 100.0]
    assert small_cases.subsumed() == 100.0 > small_cases.subsumed(small_cases.SKIP)


def test_lines_that_carry_recompute_everything_along_weigh_more_in_a_short_loop() -> None:
    assert 0 < memoised.quadratic_share(12, 30) < 0.1 < memoised.quadratic_share(4, 16)


def test_a_policy_without_m_fits_and_is_not_always_least() -> None:
    assert small_cases.constrained("solved") == 100.0
    assert 80 < small_cases.constrained("least") < 100


def test_a_table_has_a_budget_for_every_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = Costs.uniform(6)
    monkeypatch.setattr(small_cases, "_costs", lambda network: costs)
    assert small_cases.states(1) == pytest.approx(1e9, rel=1e-6)
    assert small_cases.tables_over_budget(1) == table_bytes(costs, 10**9) / 1e9
    assert simulate(classic.save_all(6), costs).peak < 1e9
