import pytest

from gradgate.hw_profiles.compile import measure
from gradgate.hw_profiles.fit import does_not_depend, fit

jax = pytest.importorskip("jax", reason="JAX is not installed")
import jax.numpy as jnp  # noqa: E402

STEPS = [4**k for k in range(2, 7)]  # squares, so that the best chunk is an integer


def bytes_over(loss, profile):
    def temp(steps):
        arguments = (jax.ShapeDtypeStruct((32, 32), jnp.float32), jax.ShapeDtypeStruct((16, 32), jnp.float32))
        return measure(jax.grad(loss), arguments, profile, static={"steps": steps}).temp_bytes

    return [temp(steps) for steps in STEPS]


def step(w):
    return lambda c, _: (jnp.tanh(c @ w), None)


def backprop(w, x, steps):
    return jnp.sum(jax.lax.scan(step(w), x, None, length=steps)[0])


def chunked(w, x, steps):
    chunk = round(steps**0.5)

    @jax.checkpoint
    def run_chunk(c, _):
        return jax.lax.scan(step(w), c, None, length=chunk)

    return jnp.sum(jax.lax.scan(run_chunk, x, None, length=chunk)[0])


def forward(w, x, steps):
    return jax.lax.stop_gradient(backprop(w, x, steps)) * jnp.sum(w)


@pytest.mark.parametrize("profile", ["cpu", "nvidia-h100", "tpu-v5p"])
def test_backprop_is_linear_in_the_steps_and_checkpointing_about_their_square_root(need, profile):
    need(profile)
    plain, remat = (fit(STEPS, bytes_over(loss, profile), "temp_bytes") for loss in (backprop, chunked))
    assert plain.reliable
    assert plain.exponent == pytest.approx(1, abs=0.05)
    assert remat.reliable
    assert remat.exponent == pytest.approx(0.5, abs=0.1)
    assert remat.predict(100 * plain.largest) < plain.predict(10 * plain.largest)


@pytest.mark.parametrize("profile", ["cpu", "nvidia-h100", "tpu-v5p"])
def test_what_stores_nothing_does_not_depend_on_the_steps(need, profile):
    need(profile)
    assert does_not_depend(STEPS, bytes_over(forward, profile)).holds
    assert not does_not_depend(STEPS, bytes_over(backprop, profile)).holds
