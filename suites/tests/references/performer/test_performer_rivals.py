"""Figures about attention alone, Table 1's rivals and the heuristics: each must change with what it measures."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from gradgate.references.backends import leaves, precision
from gradgate.references.performer.paper import alone, heuristics, rivals, times
from gradgate.references.performer.problem import PerformerSpec


def test_an_exponent_is_that_of_what_grows() -> None:
    assert alone.exponent(lambda n: 7 + 3 * n**2, 10) == 2
    assert alone.exponent(lambda n: 1000 + n, 10) == 1
    assert alone.steps(lambda n: 5 + 3 * n, 4) == 2
    assert alone.steps(lambda n: 5 + 3 * np.log2(n), 4) == pytest.approx(1)


def test_blocks_are_deeper_the_more_there_are_and_explicit_sums_are_not(jax: Any) -> None:
    assert alone.depth_over_length("block", size=16) == 2
    assert alone.depth_over_length("explicit") == 1
    assert alone.block_steps(16) > 0


def _arguments() -> Any:
    rng = np.random.default_rng(1)
    W, V = 0.3 * rng.standard_normal((2, rivals.WIDTH, rivals.WIDTH))
    return {"W": W, "V": V}, rng.standard_normal((9, rivals.WIDTH))


def test_a_coupled_residual_rnn_is_undone_and_a_wrong_inverse_is_seen(jax: Any) -> None:
    with precision("jax", "float64"):
        params, x = jax.tree.map(jax.numpy.asarray, _arguments())
        loss, exact = jax.value_and_grad(rivals.coupled)(params, x)
        ours, grads = rivals.undone(params, x)
        _, wrong = rivals.undone(params, x, back=lambda params, h, x: h)
    assert float(ours) == pytest.approx(float(loss), rel=1e-14)
    assert all(np.allclose(a, b, rtol=1e-12) for a, b in zip(leaves(grads), leaves(exact), strict=True))
    assert not all(np.allclose(a, b, rtol=1e-3) for a, b in zip(leaves(wrong), leaves(exact), strict=True))


def test_softmax_takes_four_times_the_work_at_twice_the_length_and_an_rnn_twice(jax: Any) -> None:
    assert rivals.flops("softmax", 1024) > 1.95
    assert rivals.flops("RNN", 64) == 1
    assert rivals.parallel("RNN", 64) == 2
    assert rivals.parallel("softmax", 64) == 1


def test_random_features_come_closer_to_softmax_the_more_there_are() -> None:
    assert rivals.approximation(256, seeds=2) < 0.8 * rivals.approximation(16, seeds=2)


def test_the_sliced_forward_pass_is_exact_and_the_heuristics_are_not(jax: Any) -> None:
    assert heuristics.distance("nothing") < 1e-10
    assert min(heuristics.distance("stopped"), heuristics.distance("cleared")) > 0.1


def test_a_gradient_comes_back_to_the_first_slice_through_the_states_alone(jax: Any) -> None:
    assert heuristics.across("nothing") > 0.01
    assert heuristics.across("stopped") == heuristics.across("cleared") == 0


def test_slices_with_cleared_states_have_another_loss_and_stopped_gradients_have_not(jax: Any) -> None:
    with precision("jax", "float64"):
        problem: Any = PerformerSpec(length=8, seed=5).build("jax")
        run = functools.partial(heuristics.sliced_loss, problem, problem.params, 2)
        plain, stopped, cleared = (float(run(between)) for between in heuristics.BETWEEN)
        exact = float(problem.loss(problem.params))
    assert plain == pytest.approx(exact, rel=1e-14)
    assert stopped == plain
    assert cleared != pytest.approx(plain, rel=1e-3)


def test_our_parallel_prefix_sum_is_the_prefix_sum(torch: Any) -> None:
    x = torch.rand((13, 2), dtype=torch.float64)
    assert torch.allclose(times.parallel_sum(x), torch.cumsum(x, 0), rtol=1e-14)
    assert times.cumsum_over_own("bytes", length=64, numbers=8) < 1


def test_a_ratio_of_times_puts_the_number_of_threads_back(torch: Any) -> None:
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError):
        times.ratio(lambda: 1 / 0, lambda: None, 3)
    assert torch.get_num_threads() == before
