"""The vjp by x that phase 1 of mixed Moonwalk computes for each layer: exact, low in memory, robust to flat tanh."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from gradgate.references.backends import leaves, precision, to_backend, to_numpy, transforms, tree_map
from gradgate.references.invertible.layers import FLAT, LAYERS, right_solved
from gradgate.references.invertible.paper.training import distance
from gradgate.references.invertible.problem import InvertibleProblem, InvertibleSpec

UNIT = InvertibleSpec(
    dtype="float32", residual="conv", activation="relu", norm="batch", side=8, channels=8, batch=32, layers=32
)
"""Convolution, ReLU and batch norm, as in §6.1, with so many layers that phase 1 has the peak."""
HALF = UNIT.batch * UNIT.side**2 * UNIT.channels // 2
"""How many numbers a coupling half has."""
FLAT_TANH = InvertibleSpec(unit="dense tanh additive", channels=4, batch=3, spread=30.0, seed=4)


def drawn(problem: InvertibleProblem, shape: Any, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return to_backend(problem.backend, rng.standard_normal(tuple(shape)), problem.dtype)


def misses(problem: InvertibleProblem) -> dict[str, float]:
    """The largest relative error of each layer's `pull_x`, for one layer after the other. `push` must agree too."""
    vjp, x, found = transforms(problem.backend).vjp, problem.x, {}
    for layer, p in problem.chain(problem.params):
        y, pull = vjp(lambda x: layer(p, x), x)  # noqa: B023 - called at once
        ours, kept = layer.push(vjp, p, x)
        h = drawn(problem, y.shape)
        exact, back = to_numpy(pull(h)[0]), to_numpy(layer.pull_x(p, kept, h))
        assert np.allclose(to_numpy(ours), to_numpy(y), rtol=1e-12)
        found[layer.name] = float(np.abs(back - exact).max() / np.abs(exact).max())
        x = y
    return found


SPECS = [InvertibleSpec(unit=f"additive {word}", side=2, channels=4, blocks=1, layers=1, seed=1) for word in LAYERS]
SPECS += [
    InvertibleSpec(unit="affine", side=4, residual=kind, activation=activation, norm=norm, depth=2, submersive=1)
    for kind, activation, norm in (
        ("conv", "relu", "batch"),
        ("patches", "tanh", "none"),
        ("dense", "tanh", "batch"),
        ("conv", "relu", "none"),
    )
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.unit}-{spec.residual}-{spec.activation}-{spec.norm}")
def test_every_layers_own_pull_back_is_its_vjp(spec: InvertibleSpec, torch: Any) -> None:
    assert max(misses(spec.build("torch")).values()) < 1e-12


def test_the_pull_back_of_the_papers_unit_is_its_vjp_in_jax(jax: Any) -> None:
    with precision("jax", "float64"):
        problem = dataclasses.replace(UNIT, dtype="float64", batch=3, side=4, layers=1).build("jax")
        assert max(misses(problem).values()) < 1e-12


def test_a_pull_back_that_takes_the_statistics_for_constants_is_not(torch: Any, monkeypatch: Any) -> None:
    from gradgate.references.invertible import residual

    monkeypatch.setattr(residual, "batch_norm_pulled", lambda xp, centred, deviation, gain, h: h * (gain / deviation))
    assert max(misses(dataclasses.replace(UNIT, dtype="float64", layers=1).build("torch")).values()) > 1e-3


def growth(method: Any) -> float:
    """The growth of PyTorch's peak with each further layer, in bytes per number of a coupling half."""
    from gradgate.hw_profiles.torch_memory import peak

    found = []
    for layers in (UNIT.layers, 2 * UNIT.layers):
        problem: Any = dataclasses.replace(UNIT, layers=layers).build("torch")
        held = leaves([problem.params, problem.data])
        found.append(peak(lambda: method(problem), (), held).total_bytes)  # noqa: B023 - called at once
    return (found[1] - found[0]) / UNIT.layers / HALF


def test_in_pytorch_mixed_keeps_one_number_of_the_papers_unit_where_autograd_keeps_seven(
    torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gradgate.references.invertible.in_torch import methods

    assert 4 <= growth(methods.moonwalk_mixed) <= 4.1
    assert growth(methods.backprop) > 28
    monkeypatch.setattr(InvertibleProblem, "by_hand", False)
    assert growth(methods.moonwalk_mixed) > 28


def test_what_a_layer_keeps_is_one_array_of_the_dtype_or_a_byte_per_sign(torch: Any) -> None:
    def stored_bytes(spec: InvertibleSpec) -> int:
        problem = spec.build("torch")
        layer, p = problem.chain(problem.params)[0]
        return sum(leaf.nbytes for leaf in leaves(layer.push(torch.func.vjp, p, problem.x)[1]["shift"]))

    assert stored_bytes(UNIT) == 4 * HALF + 2 * 4 * UNIT.channels // 2
    assert stored_bytes(dataclasses.replace(UNIT, norm="none")) == HALF
    assert stored_bytes(dataclasses.replace(UNIT, norm="none", activation="tanh")) == 4 * HALF


def test_a_flat_tanh_does_not_spoil_the_gradient_of_mixed_moonwalk(framework: str) -> None:
    from importlib import import_module

    methods = import_module(f"gradgate.references.invertible.in_{framework}.methods")
    with precision(framework, "float64"):
        problem = FLAT_TANH.build(framework)
        layers = problem.chain(problem.params)
        between = layers[0][0](layers[0][1], problem.x)
        assert 0 < (abs(to_numpy(layers[1][0]({}, between))) == 1).mean() < 1
        exact = methods.backprop(problem)[1]
        assert distance(methods.moonwalk_mixed(problem)[1], exact) < 1e-12
        assert distance(methods.moonwalk(problem)[1], exact) == float("inf")


def test_where_nothing_is_handed_over_a_flat_tanh_spoils_the_gradient(torch: Any, monkeypatch: Any) -> None:
    from gradgate.references.invertible.in_torch import methods

    phase = methods.input_gradient_reverse
    monkeypatch.setattr(methods, "input_gradient_reverse", lambda problem: (phase(problem)[0], None))
    problem = FLAT_TANH.build("torch")
    assert distance(methods.moonwalk_mixed(problem)[1], methods.backprop(problem)[1]) == float("inf")


def test_only_what_is_flatter_than_the_bound_is_handed_over(torch: Any) -> None:
    layer = InvertibleSpec(unit="dense tanh", channels=2, layers=1).build("torch").layers[1]
    h = torch.tensor([3.0, -5.0, 7.0])
    handed = layer.handed(torch.tensor([0.0, FLAT / 2, FLAT]), h)
    assert handed.tolist() == [3.0, -5.0, 0.0]


def test_an_h_of_0_behind_a_flat_tanh_stays_0(torch: Any) -> None:
    layer = InvertibleSpec(unit="dense tanh", channels=2, layers=1).build("torch").layers[1]
    x, none = torch.full((1, 1, 1, 2), 40.0, dtype=torch.float64), torch.zeros(1, 1, 1, 2, dtype=torch.float64)
    assert layer.advance(torch.func.vjp, {}, x, none, none)[1].tolist() == none.tolist()
    assert torch.isnan(layer.advance(torch.func.vjp, {}, x, none)[1]).all()


@pytest.mark.parametrize("backend", ["numpy", "torch", "jax"])
def test_rows_in_the_range_are_solved_for_by_substitution(backend: str) -> None:
    rng = np.random.default_rng(3)
    matrix, wanted = rng.standard_normal((5, 3)), rng.standard_normal((2, 3))
    with precision(backend, "float64"):
        given = [to_backend(backend, array, "float64") for array in (matrix, wanted @ matrix.T)]
        found = to_numpy(right_solved(backend, *given))
    assert np.allclose(found, wanted, rtol=1e-12)


def test_trees_that_are_handed_over_have_the_shapes_of_what_was_kept(jax: Any) -> None:
    from gradgate.references.invertible.in_jax import phases

    with precision("jax", "float64"):
        _, handed = phases.input_gradient_reverse(FLAT_TANH.build("jax"))
    assert tree_map(lambda leaf: leaf.shape, handed) == {"block0": {"1_tanh": (2, 3, 1, 1, 4)}}
