"""False statements of the papers, derived a second time: NumPy and arithmetic alone, no code of the classes."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
LAYERS = ((0.7, 0.9, 1.1), (0.5, 0.8, 1.3))
"""a, b and c of two layers of one state: h^t = a h^(t−1) + b y^t, and y^t + c h^t goes on."""


def _states(a: float, b: float, y: Numbers) -> Numbers:
    h, states = 0.0, []
    for value in y:
        h = a * h + b * value
        states.append(h)
    return np.array(states)


def _loss(c_first: float, x: Numbers) -> float:
    y = x
    for (a, b, _), mine in zip(LAYERS, (c_first, LAYERS[1][2]), strict=True):
        y = y + mine * _states(a, b, y)
    return float(0.5 * (y**2).sum())


def test_proposition_3_of_adjoint_sharding_leaves_out_the_paths_through_the_layers_above() -> None:
    """Eq. 6 takes dl/dy_K of the last layer for every layer: for c of the first it is Σ_t dl/dy_K^t · h^t."""
    x, c = np.array([1.0, -0.4, 0.8, 0.3]), LAYERS[0][2]
    true = (_loss(c + 1e-5, x) - _loss(c - 1e-5, x)) / 2e-5
    h = _states(*LAYERS[0][:2], x)
    middle = x + c * h
    out = middle + LAYERS[1][2] * _states(*LAYERS[1][:2], middle)
    printed = float(out @ h)
    assert abs(printed / true - 1) > 0.3
    # Corrected: dl/dy_1^i has a term c_2 a_2^(t−i) b_2 of every later token t of the layer above.
    a, b, c_above = LAYERS[1]
    carried = [out[i] + sum(out[t] * c_above * a ** (t - i) * b for t in range(i, len(x))) for i in range(len(x))]
    assert math.isclose(float(np.array(carried) @ h), true, rel_tol=1e-8)


def test_the_printed_sign_of_truncated_vjps_contradicts_the_printed_64_percent() -> None:
    length, window = 10_000, 2_000
    every = length * (length + 1) // 2
    counted = sum(min(t, window) for t in range(1, length + 1))
    assert counted == window * length - window * (window - 1) // 2
    assert round(100 * (1 - counted / every)) == 64
    assert round(100 * (1 - (window * length + window * (window - 1) // 2) / every)) == 56


def test_gradient_descent_from_a_saddles_axis_ends_at_the_saddle() -> None:
    """x² + (y² − 1)² from (1, 0), thesis §2.1.1: the gradient by y is 0 there, and the minima have y = ±1."""
    x, y = 1.0, 0.0
    for _ in range(500):
        x, y = x - 0.05 * 2 * x, y - 0.05 * 4 * y * (y * y - 1)
    assert math.isclose(x * x + (y * y - 1) ** 2, 1.0, rel_tol=1e-9)


def test_the_weights_of_a_dense_layer_grow_as_a_power() -> None:
    """Thesis §2.4.3 calls it exponential: the logarithm would rise twice as much from 2w to 4w as from w to 2w."""
    rises = [math.log((2 * w) ** 2 / w**2) for w in (1000, 2000)]
    assert math.isclose(rises[0], rises[1])


def test_the_forward_pass_of_a_layer_by_layer_count_is_half_of_its_backward() -> None:
    """Performer §3.4 has 5 times: a product of (n, k) and (k, m) has two of the same size in its backward pass."""
    n, k, m = 7, 11, 13
    forward = 2 * n * k * m
    backward = 2 * n * m * k + 2 * k * n * m
    assert backward / forward == 2.0
