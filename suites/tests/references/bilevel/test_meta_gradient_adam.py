"""Steps of Adam that `meta_gradient` takes back in double words: digits, memory, state, and what is refused."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from gradgate import UsageError
from gradgate.references.backends import leaves, namespace, precision, to_numpy, tree_map
from gradgate.references.bilevel.inner import inverses, loop, reversal, words

LONG = 32
"""Inner steps after which floats have lost most digits."""


def of(framework: str) -> Any:
    """The public names of a framework."""
    return importlib.import_module(f"gradgate.in_{framework}")


def losses(framework: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """An inner loss of two layers, weighted by η, and an outer loss that also reads η."""
    xp = namespace(framework)

    def inner(theta: Any, eta: Any, x: Any) -> Any:
        for w in theta["w"]:
            x = xp.tanh(xp.matmul(x, w))
        return xp.mean(x * x * eta["weight"]) + xp.sum(theta["b"] ** 2 * eta["weight"])

    def outer(theta: Any, eta: Any, y: Any) -> Any:
        return xp.mean(xp.matmul(y, theta["w"][0]) ** 2) + xp.sum(theta["b"] * eta["weight"])

    return inner, outer


def arrays(framework: str, steps: int, dtype: str = "float64") -> tuple[Any, ...]:
    """η, θ_0, the inner batches and the batch of the outer loss."""
    xp, rng = namespace(framework), np.random.default_rng(1)

    def array(*shape: int) -> Any:
        return xp.asarray((0.5 * rng.standard_normal(shape)).astype(dtype))

    theta = {"w": [array(4, 4), array(4, 4)], "b": array(4)}
    return {"weight": array(4), "rate": array()}, theta, array(steps, 5, 4), array(2, 4)


def optimiser(framework: str, **numbers: Any) -> Callable[[Any], Any]:
    """η -> Adam with a schedule whose rates are in η; with `max_norm`, after clipping in a chain."""
    ours, max_norm = of(framework), numbers.pop("max_norm", None)
    made = ours.adamw if "weight_decay" in numbers else ours.adam

    def pair(eta: Any) -> Any:
        adam = made(lambda step: (0.05 + 0.01 * eta["rate"]) / (1 + 0.1 * step), **numbers)
        return adam if max_norm is None else ours.chain(ours.clip_by_global_norm(max_norm + 0 * eta["rate"]), adam)

    return pair


def results_of(framework: str, checkpointing: str, given: tuple[Any, ...], pair: Any) -> list[Any]:
    """The loss and the gradients by η and θ_0, as NumPy arrays."""
    inner, outer = losses(framework)
    meta = of(framework).meta_gradient(inner, pair, outer, argnums=(0, 1), checkpointing=checkpointing)
    if framework == "jax":
        meta = importlib.import_module("jax").jit(meta)
    return [to_numpy(leaf) for leaf in leaves(meta(*given))]


def apart(framework: str, steps: int, dtype: str = "float64", **numbers: Any) -> float:
    """The largest relative distance of a result of inversion from the same result along saved states."""
    with precision(framework, dtype):
        given, pair = arrays(framework, steps, dtype), optimiser(framework, **numbers)
        both = (results_of(framework, way, given, pair) for way in ("states", "inversion"))
        return max(float(np.linalg.norm(a - b) / np.linalg.norm(a)) for a, b in zip(*both, strict=True))


@pytest.mark.parametrize(
    "numbers",
    [{"b1": 0.9}, {"b1": 0.5}, {"b1": 0.5, "weight_decay": 0.3}, {"b1": 0.5, "weight_decay": 0.3, "max_norm": 0.05}],
)
def test_thirty_two_steps_taken_back_give_the_gradient_along_saved_states(
    numbers: dict[str, float], framework: str
) -> None:
    assert apart(framework, LONG, **numbers) < 1e-13


def test_without_the_low_words_they_do_not(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def high_alone(high: Any, *lows: Any) -> Any:
        return high + sum(lows), *(0 * low for low in lows)

    monkeypatch.setattr(words, "_normal", high_alone)
    assert apart("torch", LONG, b1=0.5) > 1e-8


def test_a_decay_that_is_not_undone_is_seen(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "over_rest", lambda backend, word, share: word)
    assert apart("torch", 4, weight_decay=0.3) > 1e-4


def test_a_word_over_a_rest_has_twice_the_digits(framework: str) -> None:
    xp, rng = namespace(framework), np.random.default_rng(0)
    with precision(framework, "float64"):
        a, b, share = (xp.asarray(rng.uniform(0, 0.5, 64)) for _ in range(3))
        parts = words.over_rest(framework, words.product_of(framework, a, b), share)
        given = [to_numpy(part).tolist() for part in (*parts, a, b, share)]
    for high, low, x, y, s in (map(Fraction, row) for row in zip(*given, strict=True)):
        exact = x * y / (1 - s)
        assert abs(high + low - exact) <= 8 * Fraction(2) ** -106 * exact


def test_clipping_before_adam_changes_the_gradient_so_that_the_test_above_reads_it(framework: str) -> None:
    with precision(framework, "float64"):
        given = arrays(framework, 4)
        plain, clipped = (
            results_of(framework, "inversion", given, optimiser(framework, b1=0.5, eps_root=1e-4, **more))
            for more in ({}, {"max_norm": 0.05})
        )
    assert max(float(np.linalg.norm(a - b) / np.linalg.norm(a)) for a, b in zip(plain, clipped, strict=True)) > 1e-3


def test_a_clip_that_is_not_read_again_on_the_way_back_is_seen(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = inverses.Steps.state_before

    def raw(self: Any, grad: Any, carry: Any) -> Any:
        monkeypatch.setattr(loop.Loop, "read", lambda self, grad: grad)
        try:
            return kept(self, grad, carry)
        finally:
            monkeypatch.setattr(loop.Loop, "read", read)

    read = loop.Loop.read
    assert apart("torch", 4, b1=0.5, max_norm=0.05) < 1e-13
    monkeypatch.setattr(inverses.Steps, "state_before", raw)
    assert apart("torch", 4, b1=0.5, max_norm=0.05) > 1e-3


@pytest.mark.parametrize("optimiser_name", ["momentum", "adam", "one"])
def test_other_ways_and_a_given_state_work_with_a_chain(optimiser_name: str, framework: str) -> None:
    ours = of(framework)
    last = {"momentum": ours.sgd(0.1, 0.75), "adam": ours.adam(0.05, eps_root=1e-6), "one": ours.adam(0.05)}
    parts = (
        (last[optimiser_name],)
        if optimiser_name == "one"
        else (
            ours.clip_by_global_norm(0.3),
            ours.clip_by_global_norm(0.05),
            last[optimiser_name],
        )
    )
    pair = ours.chain(*parts)
    with precision(framework, "float64"):
        eta, theta, xs, y = arrays(framework, 3)
        _, state = pair.update(tree_map(lambda leaf: 0.1 * leaf + 0.02, theta), pair.init(theta), theta)
        given = (eta, theta, xs, y, state)
        known = results_of(framework, "states", given, pair)
        for way in ("gradients", "logarithmic", "inversion"):
            for one, other in zip(known, results_of(framework, way, given, pair), strict=True):
                np.testing.assert_allclose(other, one, rtol=1e-11, atol=1e-13)


def test_in_jax_clipping_is_that_of_optax(jax: Any) -> None:
    optax, ours = pytest.importorskip("optax"), of("jax")
    with precision("jax", "float64"):
        _, theta, _, _ = arrays("jax", 1)
        for scale in (1e-3, 10.0):
            grads = tree_map(lambda leaf: scale * leaf, theta)  # noqa: B023 - called at once
            one, _ = ours.clip_by_global_norm(0.5).update(grads, ())
            other, _ = optax.clip_by_global_norm(0.5).update(grads, optax.EmptyState())
            for a, b in zip(leaves(one), leaves(other), strict=True):
                np.testing.assert_allclose(to_numpy(a), to_numpy(b), rtol=1e-14)


@pytest.mark.parametrize("max_norm", [0, -1.0, "one", True])
def test_a_norm_that_is_not_positive_is_refused(max_norm: Any, framework: str) -> None:
    with pytest.raises(UsageError, match="max_norm must be positive, a number or a "):
        of(framework).clip_by_global_norm(max_norm)
    with pytest.raises(UsageError, match="chain takes pairs of init and update"):
        of(framework).chain()


def test_more_steps_than_a_dtype_allows_lose_digits_and_are_refused(torch: Any, monkeypatch: Any) -> None:
    numbers = {"b1": 0.5, "eps_root": 1e-8}
    assert apart("torch", 24, "float32", **numbers) < 1e-5
    with pytest.raises(UsageError, match=r"25 steps of adam with b1 or b2 0\.5 cannot be taken back in torch\.float32"):
        apart("torch", 25, "float32", **numbers)
    with pytest.raises(UsageError, match=r"eps_root 0 cannot be taken back in torch\.float32.*eps_root=1e-8"):
        apart("torch", 4, "float32")
    monkeypatch.setattr(reversal, "check_digits", lambda *_: None)
    assert apart("torch", 64, "float32", **numbers) > 1e-3


def test_it_goes_on_from_a_state_that_is_given(framework: str) -> None:
    with precision(framework, "float64"):
        eta, theta, xs, y = arrays(framework, 5)
        pair = optimiser(framework)
        slopes = tree_map(lambda leaf: 0.1 * leaf + 0.02, theta)
        state = pair(eta).init(theta)
        for _ in range(3):
            _, state = pair(eta).update(slopes, state, theta)
        assert int(state["step"]) == 3
        kept = results_of(framework, "states", (eta, theta, xs, y, state), pair)
        back = results_of(framework, "inversion", (eta, theta, xs, y, state), pair)
        anew = results_of(framework, "inversion", (eta, theta, xs, y), pair)
    for one, other in zip(kept, back, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-12, atol=1e-15)
    assert abs(anew[0] - back[0]) > 1e-6


def test_in_jax_memory_grows_by_the_numbers_of_the_steps_alone(jax: Any) -> None:
    def temporaries(checkpointing: str, steps: int) -> int:
        inner, outer = losses("jax")
        meta = of("jax").meta_gradient(inner, of("jax").adam(0.01, eps_root=1e-8), outer, checkpointing=checkpointing)
        return int(jax.jit(meta).lower(*arrays("jax", steps, "float32")).compile().memory_analysis().temp_size_in_bytes)

    assert temporaries("inversion", 64) - temporaries("inversion", 8) <= 4 * (64 - 8)
    assert temporaries("states", 64) > 4 * temporaries("states", 8)


@pytest.mark.parametrize(("name", "decay"), [("adam", {}), ("adamw", {}), ("adamw", {"weight_decay": 0.2})])
def test_in_jax_adam_moves_parameters_as_that_of_optax_does(name: str, decay: dict[str, float], jax: Any) -> None:
    optax = pytest.importorskip("optax")
    with precision("jax", "float64"):
        _, theta, _, _ = arrays("jax", 1)
        schedule = optax.cosine_decay_schedule(0.2, 5)
        given: dict[str, Any] = {"b1": 0.8, "b2": 0.95, "eps": 1e-3, "eps_root": 1e-4} | decay
        ours = getattr(of("jax"), name)(schedule, **given)
        theirs = getattr(optax, name)(schedule, **given)
        states = [ours.init(theta), theirs.init(theta)]
        for i in range(4):
            grads = tree_map(lambda leaf: leaf**3 + i, theta)  # noqa: B023 - called at once
            one, states[0] = ours.update(grads, states[0], theta)
            other, states[1] = theirs.update(grads, states[1], theta)
            for a, b in zip(leaves(one), leaves(other), strict=True):
                np.testing.assert_allclose(to_numpy(a), to_numpy(b), rtol=1e-12)


@pytest.mark.parametrize("checkpointing", ["gradients", "logarithmic"])
def test_other_ways_of_keeping_steps_give_the_same_with_it(checkpointing: str, framework: str) -> None:
    with precision(framework, "float64"):
        given, pair = arrays(framework, 3), of(framework).adam(0.05, eps_root=1e-6)
        known = results_of(framework, "states", given, pair)
        for one, other in zip(known, results_of(framework, checkpointing, given, pair), strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-11, atol=1e-13)


def test_learning_rates_of_each_parameter_may_be_a_tree(framework: str) -> None:
    with precision(framework, "float64"):
        given = arrays(framework, 4)
        pair = of(framework).adam(tree_map(lambda leaf: 0.02 + 0.01 * leaf, given[1]))
        known = results_of(framework, "states", given, pair)
        for one, other in zip(known, results_of(framework, "inversion", given, pair), strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"b1": 0.0}, "the step of adam with b1 0.0 cannot be taken back: b1 must lie between 0 and 1"),
        ({"b2": 1.0}, "the step of adam with b2 1.0 cannot be taken back: b2 must lie between 0 and 1"),
    ],
)
def test_numbers_that_forget_a_moment_are_refused(numbers: dict[str, float], words: str, framework: str) -> None:
    with precision(framework, "float64"), pytest.raises(UsageError) as told:
        results_of(framework, "inversion", arrays(framework, 2), of(framework).adam(0.1, **numbers))
    assert words in str(told.value)


def test_adam_whose_numbers_cannot_be_read_is_refused_with_one_that_would_do(framework: str) -> None:
    ours = of(framework)
    opaque = [ours.chain(ours.adam(0.1), ours.clip_by_global_norm(1.0))]
    if framework == "jax":
        optax = pytest.importorskip("optax")
        opaque += [
            optax.adam(0.1),
            optax.chain(optax.clip_by_global_norm(1.0), ours.adam(0.1)),
            ours.chain(optax.clip_by_global_norm(1.0), ours.adam(0.1)),
        ]
    for pair in opaque:
        with precision(framework, "float64"), pytest.raises(UsageError) as told:
            results_of(framework, "inversion", arrays(framework, 2), pair)
        wanted = f"of gradgate.in_{framework}, alone or in its chain(clip_by_global_norm(…), …)"
        assert f"adam(learning_rate) or adamw(learning_rate) {wanted}" in str(told.value)
        assert "checkpointing='logarithmic', which needs no inverse" in str(told.value)


@pytest.mark.parametrize("checkpointing", ["states", "inversion"])
def test_it_is_finite_where_a_parameter_never_had_a_gradient(checkpointing: str, framework: str) -> None:
    xp = namespace(framework)
    with precision(framework, "float32"):
        meta = of(framework).meta_gradient(
            lambda theta, eta, x: xp.sum(theta[:2] ** 2 * eta * x),
            of(framework).adam(0.1, eps_root=1e-8),
            lambda theta, eta, y: xp.sum(theta**2 * y),
            argnums=1,
            checkpointing=checkpointing,
        )
        _, grads = meta(xp.ones(2), xp.ones(3), xp.ones((3, 1)), xp.ones(3))
        assert np.isfinite(to_numpy(grads)).all()
        assert float(grads[2]) == 2.0
