"""Schedules, simulator and solvers of chains: optimal against shortest paths, and the printed algorithm refuted."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradgate.references.chain.schedules import classic
from gradgate.references.chain.schedules.costs import Costs
from gradgate.references.chain.schedules.schedule import Schedule
from gradgate.references.chain.schedules.search import held, least_compute
from gradgate.references.chain.schedules.simulate import Machine, simulate
from gradgate.references.chain.schedules.solver import (
    BudgetTooSmall,
    least_memory,
    minimum_budget,
    precise_dp,
    table_bytes,
)
from gradgate.references.contract import IllegalOption, UsageError

SMALL = st.integers(0, 6)


@st.composite
def any_costs(draw: st.DrawFn, longest: int = 5) -> Costs:
    """Costs of every kind that a machine may have: sizes of 0, large transients, cotangents unlike their values."""
    N = draw(st.integers(1, longest))

    def sizes(count: int = N) -> list[int]:
        return draw(st.lists(SMALL, min_size=count, max_size=count))

    def flags() -> tuple[bool, ...]:
        return tuple(draw(st.lists(st.booleans(), min_size=N, max_size=N)))

    output, gradient, saved = sizes(N + 1), sizes(N + 1), sizes()
    least = [gradient[n] - gradient[n + 1] - saved[n] for n in range(N)]
    return Costs(
        tuple(1 + f for f in sizes()),
        tuple(sizes()),
        tuple(output),
        tuple(gradient),
        tuple(saved),
        flags(),
        flags(),
        tuple(output[n + 1] + more for n, more in enumerate(sizes())),
        tuple(output[n + 1] + saved[n] + more for n, more in enumerate(sizes())),
        tuple(max(0, least[n]) + more for n, more in enumerate(sizes())),
        1 + draw(SMALL),
    )


@st.composite
def usual_costs(draw: st.DrawFn, longest: int = 5) -> Costs:
    """Chains as in the thesis: cotangents as large as their values, no transients. What a recording keeps is drawn."""
    N = draw(st.integers(1, longest))
    output = draw(st.lists(st.integers(1, 6), min_size=N + 1, max_size=N + 1))
    forward, backward, saved = (draw(st.lists(SMALL, min_size=N, max_size=N)) for _ in range(3))
    return Costs.of(
        [1 + f for f in forward],
        backward,
        output,
        saved,
        saves_input=draw(st.booleans()),
        saves_output=draw(st.booleans()),
    )


@settings(max_examples=60, deadline=None, derandomize=True)
@given(any_costs(), st.integers(0, 30))
def test_precise_dp_equals_the_shortest_path_within_its_class(costs: Costs, more: int) -> None:
    budget = minimum_budget(costs) + more
    found = simulate(precise_dp(costs, budget, slot=1), costs)
    assert found.peak <= budget
    assert found.compute == least_compute(costs, budget)


@settings(max_examples=6, deadline=None, derandomize=True)
@given(st.one_of(any_costs(7), usual_costs(7)).filter(lambda c: c.stages >= 6), st.integers(0, 12))
def test_precise_dp_equals_the_shortest_path_up_to_seven_stages(costs: Costs, more: int) -> None:
    budget = minimum_budget(costs) + more
    assert simulate(precise_dp(costs, budget, slot=1), costs).compute == least_compute(costs, budget)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(any_costs().filter(Costs.steady) | usual_costs().filter(Costs.steady), st.integers(0, 20))
def test_on_steady_chains_no_order_of_a_persistent_schedule_is_cheaper(costs: Costs, more: int) -> None:
    budget = minimum_budget(costs) + more
    assert simulate(precise_dp(costs, budget, slot=1), costs).compute == least_compute(costs, budget, "persistent")


def test_where_a_stage_keeps_next_to_nothing_early_work_can_be_cheaper() -> None:
    costs = Costs.of([1, 3, 2], [0, 0, 0], [2, 3, 1, 3], [3, 0, 1], saves_input=False)
    assert not costs.steady()
    assert simulate(precise_dp(costs, 10, slot=1), costs).compute == least_compute(costs, 10) == 10
    assert least_compute(costs, 10, "persistent") == 7


def test_dropping_what_was_stored_and_making_it_again_can_be_cheaper() -> None:
    costs = Costs.of([4, 1, 3, 2], [0] * 4, [4, 2, 3, 4, 4], [1, 0, 4, 0], saves_output=True)
    assert costs.steady()
    assert simulate(precise_dp(costs, 22, slot=1), costs).compute == least_compute(costs, 22, "persistent") == 23
    assert least_compute(costs, 22, "free") == 19


@settings(max_examples=60, deadline=None, derandomize=True)
@given(any_costs())
def test_the_minimum_budget_suffices_and_one_byte_less_does_not(costs: Costs) -> None:
    least = minimum_budget(costs)
    assert simulate(least_memory(costs), costs).peak == least
    assert math.isinf(least_compute(costs, least - 1))
    with pytest.raises(IllegalOption, match=str(least)):
        precise_dp(costs, least - 1)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(any_costs(12), st.integers(0, 40))
def test_no_other_schedule_within_the_budget_computes_less(costs: Costs, more: int) -> None:
    budget, N = minimum_budget(costs) + more, costs.stages
    least = simulate(precise_dp(costs, budget, slot=1), costs).compute
    others = [classic.save_all(N), classic.sqrt_n(N), classic.recursive(N), classic.recompute_all(N)]
    others += [classic.revolve(N, s) for s in range(1, N + 1)] + [classic.uniform_dp(N, s) for s in range(1, N + 1)]
    for other in others:
        found = simulate(other, costs)
        assert found.peak > budget or found.compute >= least


@settings(max_examples=30, deadline=None, derandomize=True)
@given(usual_costs(9), st.integers(2, 5), st.integers(0, 40))
def test_rounding_up_to_slots_keeps_the_budget(costs: Costs, slot: int, more: int) -> None:
    budget = minimum_budget(costs) + more
    try:
        schedule = precise_dp(costs, budget, slot)
    except BudgetTooSmall as error:
        least = error.minimum
    else:
        least = budget
        assert simulate(schedule, costs).peak <= budget
    assert simulate(precise_dp(costs, least, slot), costs).peak <= least


def test_a_budget_near_the_least_is_met_though_coarse_slots_would_not_fit() -> None:
    costs = Costs.of([1] * 12, [1] * 12, [999_983 + n for n in range(13)])
    for more in (0, 1, 10, 1000):
        assert simulate(precise_dp(costs, minimum_budget(costs) + more), costs).peak <= minimum_budget(costs) + more


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 8])
def test_revolve_and_the_uniform_dp_run_as_few_forwards_as_the_binomials_say(slots: int) -> None:
    for stages in range(1, 40):
        assert sum(classic.revolve(stages, slots).runs()) == classic.revolve_forwards(stages, slots)
        assert sum(classic.uniform_dp(stages, slots).runs()) == classic.revolve_forwards(stages, slots)


def test_the_schedules_of_a_length_have_their_laws_of_memory_and_work() -> None:
    for root in (4, 6, 10):
        N = root * root
        costs = Costs.uniform(N)
        found = {m: simulate(getattr(classic, m)(N), costs) for m in ("sqrt_n", "recursive", "recompute_all")}
        assert found["sqrt_n"].peak <= 2 * root + 3
        assert found["sqrt_n"].compute == 2 * N + (N - root)
        assert found["recursive"].peak <= math.ceil(math.log2(N)) + 4
        assert found["recompute_all"].peak == 5
        assert found["recompute_all"].compute == N + N * (N + 1) / 2


def test_a_schedule_is_a_value() -> None:
    schedule = classic.revolve(12, 3)
    assert Schedule.from_json(schedule.to_json()) == schedule
    assert Schedule.of(schedule.plan()) == schedule
    assert classic.sqrt_n(4).drawing() == "|─ ─ ● ●\n     ◄ ◄\n ● ●\n ◄ ◄"


def test_a_chain_of_a_thousand_stages_has_every_schedule() -> None:
    for schedule in (classic.save_all(1000), classic.sqrt_n(1000), classic.recursive(1000), classic.revolve(1000, 5)):
        assert Schedule.of(schedule.plan()) == schedule


@pytest.mark.parametrize(
    ("operations", "says"),
    [
        ("S2 B2 S1 B1", "S2: x_1 is not held"),
        ("S1 F2 B2 B1", "B2: stage 2 is not recorded"),
        ("S1 S2 B1 B2", "B1: stage 2 is the next"),
        ("S1 S2 B2", "1 … 1 are never run backward"),
        ("S1 D3", "D3: there is no such stage"),
        ("S1 X2", "unknown operation 'X2'"),
    ],
)
def test_an_illegal_schedule_says_what_is_missing(operations: str, says: str) -> None:
    with pytest.raises(UsageError) as error:
        Schedule.from_json(f'{{"stages": 2, "operations": "{operations}"}}')
    assert says in str(error.value)


def test_impossible_costs_are_refused() -> None:
    with pytest.raises(UsageError, match="output must have 3 numbers for 2 stages"):
        Costs.of([1, 1], [1, 1], [1, 1])
    with pytest.raises(UsageError, match="at least 0"):
        Costs.of([1], [-1], [1, 1])
    with pytest.raises(UsageError, match="slot"):
        Costs.uniform(2).in_slots(0)


def test_costs_survive_json() -> None:
    costs = Costs.of([0.5, 2], [1, 1], [3, 4, 5], [1, 2])
    assert Costs.from_json(costs.to_json()) == costs


def test_the_tables_of_densenet_at_a_megabyte_stay_below_two_gigabytes() -> None:
    assert table_bytes(Costs.uniform(130), 12_000) < 2e9


def test_a_uniform_schedule_may_take_as_many_slots_as_there_are_stages() -> None:
    costs = Costs.uniform(100)
    free = classic.uniform_within(costs, 10**6)
    assert sum(free.runs()) == 2 * 100 - 1 == classic.revolve_forwards(100, 100)
    tight = classic.uniform_within(costs, 80)
    best = min(
        sum(other.runs())
        for other in (classic.uniform_dp(100, slots) for slots in range(1, 101))
        if simulate(other, costs).peak <= 80
    )
    assert sum(tight.runs()) == best < classic.revolve_forwards(100, 64)


def test_a_uniform_schedule_refuses_what_is_no_budget_though_an_equal_one_was_solved() -> None:
    costs = Costs.uniform(3)
    classic.uniform_within(Costs.of([1], [1], [0, 0]), 1)
    for budget in (True, 30.0, 0):
        classic.uniform_within(costs, 30)
        with pytest.raises(IllegalOption, match="budget"):
            classic.uniform_within(costs, budget)  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(any_costs(7), st.integers(1, 7))
def test_what_a_machine_holds_is_the_sum_over_all_that_is_alive(costs: Costs, slots: int) -> None:
    machine = Machine(costs)
    for op in classic.uniform_dp(costs.stages, slots).operations:
        machine.run(op)
        state = (frozenset(machine.values), -1, frozenset(machine.recorded), machine.following)
        assert machine.held() == held(costs, state)
