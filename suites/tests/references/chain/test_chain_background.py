"""Single statements of the thesis: each figure agrees with a right statement and shows the error of a wrong one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gradgate.references.chain.paper import background, errata, liveness, text_figures, tradeoff
from gradgate.references.published import Judged, judge
from gradgate.references.registry import load


def _judged(measured: str) -> list[Judged]:
    every = (*text_figures.ROWS, *tradeoff.ROWS)
    rows = [row for row in every if row.printed is not None and row.measured.endswith(measured)]
    told = [judge(row, load(row.measured)(**row.arguments)) for row in rows]
    return [one for one in told if one is not None]


def test_every_statement_is_as_declared() -> None:
    judged = _judged("")
    assert len(judged) > 30
    assert {one.outcome for one in judged} == {"upheld", "refuted as declared"}


def test_a_figure_that_comes_out_otherwise_is_not_as_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "pebbles", lambda leaves, lazy: leaves + 2)
    assert {one.outcome for one in _judged("background:pebbles")} == {"not as declared"}


def test_descent_falls_into_a_minimum_and_stops_at_a_saddle() -> None:
    assert (background.falling(-1.0), background.falling(1.0)) == (100.0, 0.0)
    assert (background.limit_loss(0.3), background.limit_loss(0.0)) == (0.0, 1.0)


def test_the_formulas_by_hand_are_those_of_complex_steps_and_of_differences() -> None:
    weights, biases, x = background._network(np.random.default_rng(3))
    ours = background._by_hand(weights, biases, x, "")[0]
    assert np.allclose(ours, background._complex_step(weights, biases, x, 0), rtol=1e-13)
    assert np.allclose(ours, background._differences(weights, biases, x, 1e-4), atol=1e-3)
    assert not np.allclose(ours, background._by_hand(weights, biases, x, "2.14")[0])


def test_a_difference_on_both_sides_has_another_exponent(monkeypatch: pytest.MonkeyPatch) -> None:
    one_sided = background._differences

    def both(weights: Any, biases: Any, x: Any, step: float) -> Any:
        ahead, behind = (one_sided(weights, biases, x, sign * step) for sign in (1, -1))
        return (ahead + behind) / 2

    monkeypatch.setattr(background, "_differences", both)
    above = [one for one in _judged("background:difference_slope") if "steps above the best" in one.sentence]
    assert [one.outcome for one in above] == ["not as declared"]


def test_pebbles_of_a_chain_grow_with_its_leaves_only_if_they_come_first() -> None:
    assert [background.pebbles(leaves, lazy=False) for leaves in (2, 4, 50)] == [3, 5, 51]
    assert [background.pebbles(leaves, lazy=True) for leaves in (2, 4, 50)] == [3, 3, 3]


def test_reference_counting_frees_as_the_pebbles_do_and_takes_one_less_in_place() -> None:
    for leaves in (2, 4, 50):
        for lazy in (True, False):
            assert liveness.counted_pebbles(leaves, lazy) == background.pebbles(leaves, lazy)
            assert liveness.counted(leaves, lazy, in_place=True)[0] == background.pebbles(leaves, lazy) - 1


def test_derivatives_by_weights_need_deltas_and_inputs_in_this_order() -> None:
    assert (background.weights_by_hand(), background.weights_by_hand(transposed=True)) == (100.0, 0.0)


def test_a_batch_whose_inputs_are_coupled_is_not_their_sum() -> None:
    assert background.batch_by_hand() == 100.0 > background.batch_by_hand(coupled=True)


def test_a_loss_that_is_convex_in_a_linear_function_is_not_behind_tanh() -> None:
    assert background.above_chord(hidden=False) == 0.0 < background.above_chord(hidden=True)


def test_weights_may_change_once_no_delta_needs_the_old_ones() -> None:
    assert (background.updated_in_place(early=True), background.updated_in_place(early=False)) == (0.0, 100.0)


def test_no_policy_leaves_more_than_there_is() -> None:
    assert errata.unused_memory() > errata.unused_memory(slack=1) > errata.unused_memory(slack=100) == 0.0


def test_the_peak_moves_back_on_a_condition_that_has_both_freed_tensors() -> None:
    assert liveness.rises() == 100.0 > liveness.rises(forward_freed=False)


def test_optimisers_without_moments_keep_nothing_per_parameter() -> None:
    pytest.importorskip("torch")
    kept = [liveness.optimiser_values(name) for name in ("Adam", "RMSprop", "Rprop")]
    assert kept == [2.0, 1.0, 2.0]


def test_shares_of_an_adjoint_add_up_to_it() -> None:
    assert background.trace("v_0 by v_3") + 2 == pytest.approx(background.trace("x_2"))
    assert background.trace("v_-1 by v_2") + 0.5 == pytest.approx(background.trace("x_1"))


def test_a_uniform_chain_with_one_slot_is_recomputed_as_a_whole_and_with_many_nowhere() -> None:
    assert background.longest_quadratic(30, 1) == 30
    assert background.longest_quadratic(30, 30) == 1


def test_no_peak_need_be_compared_but_failure_must_be_known() -> None:
    assert errata.peaks_unneeded() == 100.0


def test_compute_rises_little_while_slots_are_many_and_steeply_where_they_are_few() -> None:
    assert tradeoff.late_rise(40, 6, 12, 40) < 1 < tradeoff.late_rise(40, 12, 13, 40)


@pytest.mark.parametrize("stages", [20, 40])
def test_the_corner_is_where_a_second_recomputation_begins(stages: int) -> None:
    from gradgate.references.chain.schedules import classic

    slots = tradeoff.corner(stages)
    runs = [max(classic.revolve(stages + 1, m - 3).runs()) for m in (slots, slots - 1)]
    assert runs[0] <= 3 < runs[1]  # the recorded run is one of these runs
