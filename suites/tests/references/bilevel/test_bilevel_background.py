"""Second derivatives in general, approximate methods with the mixed gradient, and Listing 4's text over M."""

from __future__ import annotations

from typing import Any

import pytest

from gradgate.references.backends import precision
from gradgate.references.bilevel.paper import approximate, background, growth, scale, text_figures
from gradgate.references.bilevel.problem import BilevelSpec


def test_the_mixed_gradient_changes_no_digit_of_implicit_differentiation_in_jax(jax: Any) -> None:
    assert approximate.apart("jax") < 1e-12


def test_the_mixed_gradient_changes_no_digit_of_implicit_differentiation_in_pytorch(torch: Any) -> None:
    assert approximate.apart("torch") < 1e-12


def test_a_gradient_without_its_mixed_derivative_or_its_hessian_gives_another_result(jax: Any) -> None:
    def blind(loss: Any) -> Any:
        return lambda theta, eta: jax.grad(loss)(theta, jax.lax.stop_gradient(eta))

    def flat(loss: Any) -> Any:
        return lambda theta, eta: jax.grad(loss)(jax.lax.stop_gradient(theta), eta)

    with precision("jax", "float64"):
        problem = BilevelSpec(**approximate.SMALL).build("jax")
        exact = approximate.in_jax(problem, False)
        assert approximate.distance(approximate.in_jax(problem, True, rule=blind), exact) == pytest.approx(1)
        assert approximate.distance(approximate.in_jax(problem, True, rule=flat), exact) > 1e-3


def test_the_series_is_that_of_the_inverse_hessian(jax: Any) -> None:
    """With the matrices written out: -α Σ v (I - αH)^j M, with K terms."""
    import numpy as np
    from jax.flatten_util import ravel_pytree

    with precision("jax", "float64"):
        problem = BilevelSpec(**approximate.SMALL | {"layers": 1, "width": 2}).build("jax")
        theta, unravel = ravel_pytree(problem.data["theta"])
        eta, other = ravel_pytree(problem.params)
        first = jax.tree.map(lambda leaf: leaf[0], problem.xs)

        def loss(theta: Any, eta: Any) -> Any:
            return problem.inner_loss(unravel(theta), other(eta), first)

        hessian, mixed = jax.jacrev(jax.grad(loss), argnums=(0, 1))(theta, eta)
        rate = float(problem.data["learning_rate"])
        v = np.asarray(jax.grad(lambda theta: problem.outer_loss(unravel(theta), problem.y))(theta))
        moved = np.eye(theta.size) - rate * np.asarray(hessian)
        powers = [np.linalg.matrix_power(moved, j) for j in range(approximate.PRODUCTS)]
        expected = -rate * sum(v @ power for power in powers) @ np.asarray(mixed)
        found = ravel_pytree(approximate.in_jax(problem, True))[0]
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_the_mixed_gradient_keeps_fewer_bytes_of_more_layers(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approximate, "DEEP", approximate.DEEP | {"batch": 64, "layers": 16})
    assert approximate.eager_bytes_quotient() < 1
    plain = approximate.in_torch
    monkeypatch.setattr(approximate, "in_torch", lambda problem, mixed: plain(problem, not mixed))
    assert approximate.eager_bytes_quotient() > 1


def test_a_jacobian_costs_a_pass_for_each_row_in_reverse_mode_and_for_each_column_in_forward_mode(jax: Any) -> None:
    assert background.jacobian_by_rows() == pytest.approx(1, abs=0.1)
    assert background.jacobian_work(16, reverse=False) == pytest.approx(background.jacobian_work(128, False), rel=0.01)


def test_products_that_grow_differently_with_the_layers_are_not_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    powers = dict.fromkeys(growth.PRODUCTS, 1.0)
    monkeypatch.setattr(growth, "walk", lambda name: name)
    monkeypatch.setattr(growth, "_bytes", lambda name, profile, **fields: 3.0 * fields["layers"] ** powers[name])
    assert growth.bytes_of_products("cpu") == 1
    assert growth.constants_of_products("cpu") == 1
    powers[growth.PRODUCTS[2]] = 2.0
    assert growth.bytes_of_products("cpu") == 4


def test_bytes_that_do_not_come_from_scores_do_not_grow_with_the_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "dynamic", lambda spec, signs, profile: 5 * 4.0 * spec.heads * spec.sequence**2)
    assert background.squares_over_heads() == pytest.approx(1)
    monkeypatch.setattr(scale, "dynamic", lambda spec, signs, profile: 20.0 * spec.sequence**2)
    assert background.squares_over_heads() == pytest.approx(0.5)


def test_every_row_names_a_function_and_the_paper_contradicts_its_own_constants() -> None:
    assert background.printed_over_layers() == 25 / 47
    assert len({row.key for row in background.ROWS}) == len(background.ROWS)


def test_the_lines_that_mixed_mode_changes_in_a_loop_are_the_import_and_the_gradient() -> None:
    """Docstrings that name it are no lines of code."""
    assert text_figures.changed_lines(rule=False) == 2
    assert text_figures.changed_lines(rule=True) > 2
