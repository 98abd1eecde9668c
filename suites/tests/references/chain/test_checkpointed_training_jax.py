"""Models of flax nnx and equinox that are trained through `checkpointed` end with the numbers of plain training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")

from gradgate.in_jax import checkpointed  # noqa: E402 - after the check that JAX is there

STEPS, WIDTH = 6, 8


def batches() -> Any:
    """Inputs and targets of each step: the same ones, so that the loss falls."""
    draws = np.random.default_rng(0).standard_normal((2, 1, 16, WIDTH)).repeat(STEPS, 1)
    return jax.numpy.asarray(draws.astype(np.float32))


def nnx_model() -> Any:
    """Norms with running statistics, dropout, dense layers and functions."""
    nnx = pytest.importorskip("flax.nnx")
    rngs = nnx.Rngs(0)
    layers: list[Any] = []
    for _ in range(4):
        layers += [
            nnx.Linear(WIDTH, 3 * WIDTH, rngs=rngs),
            nnx.BatchNorm(3 * WIDTH, rngs=rngs),
            jax.nn.gelu,
            nnx.Dropout(0.2, rngs=rngs.fork()),
            nnx.Linear(3 * WIDTH, WIDTH, rngs=rngs),
            nnx.LayerNorm(WIDTH, rngs=rngs),
        ]
    return nnx.Sequential(*layers)


def trained_nnx(run: Callable[[Any, Any], Any], model: Any, steps: int = STEPS) -> list[Any]:
    """Losses, and every array of the model after training: parameters, running statistics, keys and counters."""
    from flax import nnx

    optimiser = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    xs, ys = batches()

    @nnx.jit
    def step(model: Any, optimiser: Any, x: Any, y: Any) -> Any:
        loss, grads = nnx.value_and_grad(lambda model: ((run(model, x) - y) ** 2).mean())(model)
        optimiser.update(model, grads)
        return loss

    losses = [step(model, optimiser, xs[i], ys[i]) for i in range(steps)]
    leaves = jax.tree.leaves(nnx.state(model))
    arrays = [jax.random.key_data(a) if jax.numpy.issubdtype(a.dtype, jax.dtypes.prng_key) else a for a in leaves]
    return [np.asarray(a) for a in (*losses, *arrays)]


def equinox_model() -> Any:
    """Dense layers, norms and functions."""
    eqx = pytest.importorskip("equinox")
    keys = jax.random.split(jax.random.key(0), 8)
    layers: list[Any] = []
    for i in range(4):
        layers += [
            eqx.nn.Linear(WIDTH, 3 * WIDTH, key=keys[2 * i]),
            eqx.nn.Lambda(jax.nn.gelu),
            eqx.nn.Linear(3 * WIDTH, WIDTH, key=keys[2 * i + 1]),
            eqx.nn.LayerNorm(WIDTH),
        ]
    return eqx.nn.Sequential(layers)


def trained_equinox(run: Callable[[Any, Any], Any], model: Any, steps: int = STEPS) -> list[Any]:
    """Losses, and every array of the model after training."""
    import equinox as eqx

    optimiser = optax.adam(1e-2)
    state = optimiser.init(eqx.filter(model, eqx.is_inexact_array))
    xs, ys = batches()

    @eqx.filter_jit
    def step(model: Any, state: Any, x: Any, y: Any) -> Any:
        def loss(model: Any) -> Any:
            return ((jax.vmap(lambda row: run(model, row))(x) - y) ** 2).mean()

        value, grads = eqx.filter_value_and_grad(loss)(model)
        updates, state = optimiser.update(grads, state, model)
        return eqx.apply_updates(model, updates), state, value

    losses = []
    for i in range(steps):
        model, state, value = step(model, state, xs[i], ys[i])
        losses.append(value)
    return [np.asarray(a) for a in (*losses, *jax.tree.leaves(eqx.filter(model, eqx.is_array)))]


KINDS = {"nnx": (nnx_model, trained_nnx, (16, WIDTH)), "equinox": (equinox_model, trained_equinox, (WIDTH,))}


def plainly(model: Any, x: Any) -> Any:
    """The model's own call."""
    return model(x)


def scheduled(model: Any, shape: tuple[int, ...]) -> Any:
    """`checkpointed` at the least budget, whose schedule runs layers again."""
    x = jax.ShapeDtypeStruct(shape, "float32")
    run = checkpointed(model, None, x, budget="least")
    assert max(run.plan(model, x).schedule.runs()) > 2
    return run


def same(found: list[Any], wanted: list[Any]) -> bool:
    """Whether losses and all arrays are equal to the bit."""
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_training_through_a_schedule_gives_the_bits_of_plain_training(kind: str) -> None:
    build, train, shape = KINDS[kind]
    wanted, model = train(plainly, build()), build()
    assert same(train(scheduled(model, shape), model), wanted)
    assert wanted[STEPS - 1] < wanted[0]
    assert not same(train(lambda model, x: model(x) * (1 + 1e-6), build()), wanted)


def test_statistics_that_are_not_written_back_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    nnx = pytest.importorskip("flax.nnx")
    build, train, shape = KINDS["nnx"]
    wanted, model = train(plainly, build()), build()
    run = scheduled(model, shape)
    monkeypatch.setattr(nnx, "update", lambda *given: None)
    assert not same(train(run, model), wanted)
