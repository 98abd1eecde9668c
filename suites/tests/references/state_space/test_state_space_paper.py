"""How the paper's figures are measured: the diagonal stack of Fig. 1, the counts, and the misprints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gradgate.references.backends import precision
from gradgate.references.state_space.paper import costs, diagonal, misprints, rows, training


@pytest.mark.parametrize("length", [1, 4, 5])
@pytest.mark.parametrize("method", ["adjoint_sharding", "checkpointed"])
def test_the_diagonal_stack_has_the_gradient_of_backprop_by_every_method(method: str, length: int, jax: Any) -> None:
    with precision("jax", "float64"):
        keys = iter(jax.random.split(jax.random.key(0), 7))
        shapes = diagonal.parameters(4, 3, "float64")
        params = jax.tree.map(lambda leaf: 0.5 * jax.random.normal(next(keys), leaf.shape, "float64"), shapes)
        y = jax.random.normal(next(keys), (length, 2, 4), "float64")
        wanted, found = diagonal.backprop(params, y), diagonal.METHODS[method](params, y)
    for left, right in zip(jax.tree.leaves(wanted), jax.tree.leaves(found), strict=True):
        np.testing.assert_allclose(right, left, rtol=1e-12, atol=1e-12)
    assert not np.allclose(jax.tree.leaves(wanted)[-1], 0)


@pytest.mark.parametrize("model", diagonal.MODELS)
def test_the_widths_of_the_models_fit_their_parameters(model: str) -> None:
    d = diagonal.width(model)
    assert 3 * diagonal.LAYERS * (d * d + d) == pytest.approx(diagonal.MODELS[model], rel=0.01)


def test_flops_of_a_vjp_are_those_of_its_products_of_matrices(jax: Any) -> None:
    product = 2 * costs.BATCH * costs.WIDTH * costs.STATE
    assert costs.flops("diagonal", "A") == pytest.approx(product, rel=0.01)
    assert costs.flops("diagonal", "A", "all") == pytest.approx(2 * product, rel=0.01)
    assert costs.flops("scalar", "A") == pytest.approx(product / costs.STATE, rel=0.01)
    assert costs.flops_ratio("diagonal", "A", "jacobian", "parameters") == pytest.approx(costs.STATE, rel=0.01)


def test_what_alg_1_stores_is_counted_from_its_arrays(jax: Any) -> None:
    assert costs.stored(7, 3, parameters=False) == 7 * 3 * (3 * costs.STATE + costs.WIDTH) + 7 * costs.WIDTH
    assert costs.stored(7, 3, parameters=True) - costs.stored(7, 3, parameters=False) == 3 * 3 * costs.STATE * (
        costs.WIDTH + 1
    )


def test_a_state_and_its_flops(jax: Any) -> None:
    assert costs.adjoint_states(4, average=False) == 6 * costs.STATE * costs.WIDTH
    assert costs.adjoint_states(4, average=True) == 0.6 * costs.STATE * costs.WIDTH
    assert costs.over_printed_states(4) == pytest.approx(0.6 * costs.WIDTH / (2 * costs.WIDTH + 1))


def test_products_of_matrices_first_cost_more_and_of_diagonals_as_much_more(jax: Any) -> None:
    unstructured = (costs.STATE + costs.WIDTH) / costs.WIDTH
    assert costs.products_first("unstructured", 500) == pytest.approx(unstructured, rel=0.01)
    assert costs.products_first("diagonal", 500) == pytest.approx((costs.WIDTH + 1) / costs.WIDTH, rel=0.01)


def test_the_example_of_truncation_has_the_mended_sign() -> None:
    assert costs.saved_vjps(10_000, 2_000, printed=False) == pytest.approx(64.0, abs=0.1)
    assert costs.saved_vjps(10_000, 2_000, printed=True) == pytest.approx(56.0, abs=0.1)


@pytest.mark.parametrize("mended", ["initial_state_mended", "forward_mended"])
def test_what_is_mended_is_right(mended: str, jax: Any) -> None:
    assert getattr(misprints, mended)() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("printed", ["initial_state_printed", "ranges_printed", "passed_printed"])
def test_what_is_printed_is_wrong_by_more_than_a_hundredth(printed: str, jax: Any) -> None:
    assert abs(getattr(misprints, printed)() - 1) > 0.01


def test_printed_ranges_are_right_where_the_devices_divide_the_layers(jax: Any) -> None:
    assert misprints.forward(4, 2, ranges=True, passed=False) == pytest.approx(1, abs=1e-12)
    assert misprints.forward(4, 1, ranges=True, passed=True) == pytest.approx(1, abs=1e-12)


def test_the_text_is_read_and_the_window_that_covers_it_trains_as_backprop(
    jax: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    characters, number = training.text()
    assert (characters.min(), characters.max()) == (0, number - 1)
    monkeypatch.setattr(training, "STEPS", 3)
    monkeypatch.setattr(training, "LENGTH", 6)
    training.losses.cache_clear()
    plain, sharded = training.losses("backprop", 0, 1.0), training.losses("adjoint_sharding", 0, 1.0)
    covered, cut = training.losses("adjoint_truncated", 6, 1.0), training.losses("adjoint_truncated", 1, 1.0)
    training.losses.cache_clear()
    assert plain == pytest.approx(sharded, rel=1e-9)
    assert plain == pytest.approx(covered, rel=1e-9)
    assert plain != pytest.approx(cut, rel=1e-6)
    assert plain[0] > plain[-1]


def test_every_cell_of_table_1_has_a_row() -> None:
    places = [row.place for row in rows.PUBLISHED if row.place.startswith("Table 1") and row.printed is not None]
    assert len(places) == 18
    assert len(set(places)) == 6


def test_backprop_of_full_maps_keeps_them_and_adjoint_sharding_does_not(jax: Any) -> None:
    """At N = 225 and P = 128 backprop keeps 2·N·P numbers a token, and adjoint sharding N + P."""
    few, many = (costs.saving_of_structure("diagonal", length, 1, "cpu") for length in (200, 8_000))
    assert few < 10 < many
