"""Steps taken back: words keep Adam's digits, a buffer keeps momentum's bits, and plain floats lose both."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from gradgate.references import oracle, registry
from gradgate.references.backends import leaves, namespace, precision, to_numpy, tree_map
from gradgate.references.bilevel.inner import buffered, inverses, words
from gradgate.references.bilevel.inner.buffered import Grid
from gradgate.references.bilevel.inner.gradient import gradient
from gradgate.references.bilevel.problem import BilevelSpec
from gradgate.references.registry import load

LATE = {
    "model": "mlp",
    "optimiser": "adam",
    "steps": 32,
    "width": 4,
    "batch": 3,
    "vocabulary": 8,
    "learning_rate": 0.01,
}
"""A problem whose ReLU units become active only in late steps, so that v_{i+1} is far above v_i."""


def method(framework: str, name: str) -> Any:
    """A reference method."""
    return load(registry.methods("bilevel", name, framework)[0].implementation)


def apart(framework: str, name: str, **fields: Any) -> float:
    """The largest relative distance of a leaf of a method's gradient from the same leaf of mixflow's gradient."""
    spec = BilevelSpec(**fields)
    with precision(framework, spec.dtype):
        problem = spec.build(framework)  # type: ignore[arg-type]
        plain = method(framework, "mixflow")(problem, remat=True)[1]
        found = method(framework, name)(problem)[1]
        pairs = [(to_numpy(a), to_numpy(b)) for a, b in zip(leaves(plain), leaves(found), strict=True)]
    return max(float(np.linalg.norm(a - b) / np.linalg.norm(a)) for a, b in pairs)


@pytest.mark.parametrize(("activation", "momentum"), [("tanh", 0.5), ("relu", 0.9)])
def test_adam_taken_back_is_mixflow_to_ten_digits_over_32_steps(
    activation: str, momentum: float, framework: str
) -> None:
    fields = {**LATE, "activation": activation, "momentum": momentum}
    assert apart(framework, "compensated_inversion", **fields) < 1e-13


@pytest.mark.parametrize(("activation", "momentum"), [("tanh", 0.5), ("relu", 0.9)])
def test_adam_taken_back_in_floats_is_not(
    activation: str, momentum: float, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def high_alone(high: Any, *lows: Any) -> Any:
        return high + sum(lows), *(0 * low for low in lows)

    monkeypatch.setattr(words, "_normal", high_alone)
    fields = {**LATE, "activation": activation, "momentum": momentum}
    assert apart("torch", "compensated_inversion", **fields) > 1e-8


def test_behind_the_steps_that_words_allow_no_digit_is_right(torch: Any) -> None:
    fields = {"model": "toy", "optimiser": "momentum", "momentum": 0.3, "layers": 1, "width": 2, "learning_rate": 0.01}
    assert apart("torch", "compensated_inversion", steps=60, **fields) < 1e-12
    assert apart("torch", "compensated_inversion", steps=90, **fields) > 1e-6


def test_units_that_become_active_late_need_words_of_three_floats(torch: Any) -> None:
    from gradgate.references.bilevel.in_torch import compensated
    from gradgate.references.bilevel.in_torch.methods import inner_loss

    problem = BilevelSpec(
        task="learning_lr",
        model="mlp",
        optimiser="adam",
        steps=32,
        batch=1,
        layers=2,
        width=4,
        vocabulary=2,
        activation="relu",
        learning_rate=0.1,
        dtype="float32",
        seed=199,
    ).build("torch")
    plain = leaves(method("torch", "mixflow")(problem, remat=True)[1])

    def apart(parts: int) -> float:
        found = leaves(compensated.taken_back(problem, inner_loss(problem, remat=True), remat=True, parts=parts)[1])
        return max(float((a - b).norm() / a.norm()) for a, b in zip(plain, found, strict=True))

    assert apart(3) < 1e-5
    assert apart(2) > 0.1


def rebuilt(steps: int, off: float = 0.0) -> tuple[list[Any], list[Any]]:
    """θ_i and υ_i of momentum at μ = 0.3 on the grid: forward, and taken back with gradients wrong by `off` units."""
    spec = BilevelSpec(
        model="toy", optimiser="momentum", momentum=0.3, steps=steps, layers=1, width=3, batch=2, learning_rate=0.01
    )
    problem = spec.build("torch")
    batches = [tree_map(lambda leaf: leaf[i], problem.xs) for i in range(steps)]  # noqa: B023 - called at once

    def grad(theta: Any, x: Any) -> Any:
        return gradient("torch", lambda theta: problem.inner_loss(theta, problem.params, x), theta)

    grid = Grid.of(problem, grad)
    carry, there, buffer = grid.start(), [], []
    for x in batches:
        there.append(carry)
        carry, read, sound = grid.forward(grad(grid.narrowed(carry)[0], x), carry)
        buffer.append(read)
        assert bool(sound)
    back = []
    for x, read in zip(reversed(batches), reversed(buffer), strict=True):
        carry = grid.theta_before(carry)
        wrong = tree_map(lambda g, unit: g + off * unit, grad(grid.narrowed(carry)[0], x), grid.velocity)
        carry = grid.velocity_before(wrong, read, carry)
        back.append(carry)
    return there, back[::-1]


def bits(carries: list[Any]) -> list[bytes]:
    """The bits of each state."""
    return [b"".join(to_numpy(leaf).tobytes() for leaf in leaves(carry)) for carry in carries]


def test_a_buffer_brings_every_bit_of_a_thousand_steps_back(torch: Any) -> None:
    there, back = rebuilt(1000)
    assert bits(there) == bits(back)


def test_without_its_buffer_the_first_states_are_lost(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffered, "PLACES", 1.0)
    there, back = rebuilt(200)
    assert sum(one != other for one, other in zip(bits(there), bits(back), strict=True)) > 100


@pytest.mark.parametrize(("units", "found"), [(20.0, True), (400.0, False)])
def test_a_gradient_that_rounds_otherwise_going_back_is_made_up_for(units: float, found: bool, torch: Any) -> None:
    there, back = rebuilt(50, off=units)
    assert (bits(there) == bits(back)) is found


def growing(framework: str) -> tuple[Any, Any]:
    """Loss and gradient by buffered_inversion, and by backprop, of a problem whose υ grows a millionfold."""
    spec = BilevelSpec(model="toy", optimiser="momentum", steps=4, layers=1, width=2, seed=2)
    with precision(framework, spec.dtype):
        problem = spec.build(framework)  # type: ignore[arg-type]
        weak = namespace(framework).asarray(np.array([1e-6, 1.0, 1.0, 1.0]))[:, None, None]
        xs = {**problem.xs, "inputs": problem.xs["inputs"] * weak}
        problem = problem._replace(data={**problem.data, "xs": xs})
        jitted = method(framework, "buffered_inversion")
        run = getattr(jitted, "__wrapped__", jitted)  # a compiled program would not see what a test replaces
        found = run(problem), oracle.gradient(problem)
        mine, exact = (np.concatenate([to_numpy(leaf).reshape(-1) for leaf in leaves(one)]) for one in found)
    return mine, exact


def test_a_state_that_grows_a_millionfold_is_taken_back(framework: str) -> None:
    mine, exact = growing(framework)
    assert np.linalg.norm(mine - exact) < 1e-12 * np.linalg.norm(exact)


def test_a_state_that_outgrows_its_grid_gives_nothing_finite(framework: str, monkeypatch: pytest.MonkeyPatch) -> None:
    largest = buffered._largest
    monkeypatch.setattr(buffered, "_largest", lambda *of: tree_map(lambda most: most * 1e-6, largest(*of)))
    mine, _ = growing(framework)
    assert not np.isfinite(mine).any()


@pytest.mark.parametrize("parts", [2, 3])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_words_of_n_floats_have_n_times_the_digits(dtype: str, parts: int, framework: str) -> None:
    xp = namespace(framework)
    rng = np.random.default_rng(0)
    with precision(framework, dtype):
        a, b, c = (xp.asarray(rng.standard_normal(64).astype(dtype)) for _ in range(3))
        given = words.plus(words.start(framework, a, parts), words.product_of(framework, a, b), (b,))
        product = words.times(framework, given, c)
        rest = words.over(framework, words.plus(product, (-product[0],)), (c,))
        columns = [to_numpy(part).tolist() for part in (*product, *rest, a, b, c)]
    unit = Fraction(2) ** (-53 if dtype == "float64" else -24)
    for *found, x, y, z in (map(Fraction, row) for row in zip(*columns, strict=True)):
        exact, bound = x + x * y + y, 32 * unit**parts * (abs(x) + abs(x * y) + abs(y))
        assert abs(sum(found[:parts]) - exact * z) <= bound * abs(z)
        assert abs(sum(found[parts:]) - (exact - found[0] / z)) <= bound
        assert all(abs(low) <= unit * abs(high) for high, low in pairwise(found[:parts]))


@pytest.mark.parametrize("name", list(inverses.INVERSES))
def test_a_step_taken_back_leads_to_where_it_came_from(name: str, framework: str) -> None:
    spec = BilevelSpec(model="toy", optimiser=name, width=2, layers=1, seed=1)
    with precision(framework, spec.dtype):
        problem = spec.build(framework)  # type: ignore[arg-type]
        steps, x = inverses.Steps(problem, parts=3), tree_map(lambda leaf: leaf[0], problem.xs)
        grad = tree_map(lambda leaf: 0.7 * leaf + 0.1, problem.params)
        begun = steps.forward(tree_map(lambda leaf: -leaf, grad), steps.start(), x)
        again = steps.state_before(grad, steps.theta_before(steps.forward(grad, begun, x), x))
        for one, other in zip(leaves(steps.rounded(again)), leaves(steps.rounded(begun)), strict=True):
            np.testing.assert_allclose(to_numpy(one), to_numpy(other), rtol=1e-15, atol=1e-30)
