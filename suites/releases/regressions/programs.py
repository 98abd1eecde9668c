"""Programs with the structure that a public thread describes. They run under any JAX since 0.4, without gradgate.

Every function returns a program, the shapes of its arguments, and the arguments that are donated.
"""

# mypy: ignore-errors

import jax
import jax.numpy as jnp
from jax import lax


def _f32(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def blocks_of_checkpointed_steps(rows=3000, blocks=10, steps=100):
    """Scans of checkpointed steps, each scan inside a checkpoint: blocks + steps states should be kept."""

    @jax.checkpoint
    def step(carry, _):
        x, scale = carry
        return (x + jnp.sin(scale * x) + jnp.cos(scale * jnp.sin(scale * x)), scale), None

    def loss(scale, x):
        carry = (x, scale)
        for _ in range(blocks):
            carry, _ = jax.checkpoint(lambda given: lax.scan(step, given, None, length=steps))(carry)
        return carry[0].sum()

    return jax.value_and_grad(loss), (_f32(), _f32(rows, 100)), ()


def donated_across_a_loop(count=1 << 20):
    """A donated array is updated, read by a loop, and updated again: everything fits into the donated bytes."""

    def update(x):
        waves = jnp.exp(x)
        read = lax.fori_loop(0, 8, lambda i, total: total + waves[i * (count // 8)], jnp.float32(0))
        return waves * read

    return update, (_f32(count),), (0,)


def scan_with_a_condition(width=512, steps=100):
    """A scan that updates its carry under a condition, and passes it through otherwise."""

    def run(weight, inputs, flags):
        def step(weight, given):
            x, flag = given
            return lax.cond(flag, lambda w: w - 0.1 * jnp.tanh(w @ x)[:, None] * x, lambda w: w, weight), None

        return lax.scan(step, weight, (inputs, flags))[0]

    flags = jax.ShapeDtypeStruct((steps,), jnp.bool_)
    return run, (_f32(width, width), _f32(steps, width), flags), ()


def sum_of_gathered_products(rows=100, columns=200, depth=100):
    """Rows are gathered from three arrays, multiplied with a complex phase, and summed: one kernel can do it."""

    def run(a, b, phase, first, second):
        turned = jnp.exp(1j * (phase[:, second] - phase[:, first]))
        return (a[:, first] * jnp.conj(b[:, second]) * turned).sum(0)

    some = _f32(rows, columns, depth)
    index = jax.ShapeDtypeStruct((rows,), jnp.int32)
    return run, (some, some, some, index, index), ()


def experts(groups=64, tokens=4096, width=128, hidden=256):
    """Two ragged products with an activation between them, with all gradients: a layer of experts."""

    def loss(x, up, down, sizes):
        inner = jax.nn.silu(lax.ragged_dot(x, up, sizes))
        return jnp.sum(lax.ragged_dot(inner, down, sizes).astype(jnp.float32) ** 2)

    def of(*shape):
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16)

    given = of(tokens, width), of(groups, width, hidden), of(groups, hidden, width)
    return jax.value_and_grad(loss, argnums=(0, 1, 2)), (*given, jax.ShapeDtypeStruct((groups,), jnp.int32)), ()


def independent_histories(size=40_000, times=16):
    """Scans after each other, each with a large history that is summed at once: one history should exist at a time."""

    def run(x):
        for _ in range(times):
            x, history = lax.scan(lambda total, y: (total + y, total + y), x, jnp.ones(size))
            x = x + history.sum(-1)
        return x

    return run, (_f32(size),), ()


def product_of_waves(points=20_000, first=16, second=17):
    """Fourier modes in two dimensions, multiplied with coefficients and summed: no array of all modes is needed."""

    def run(x, y, coefficients):
        rows, columns = jnp.exp(1j * jnp.arange(first) * x[:, None]), jnp.exp(1j * jnp.arange(second) * y[:, None])
        return ((rows[:, :, None] * columns[:, None, :]) * coefficients).real.sum((-2, -1))

    modes = jax.ShapeDtypeStruct((first, second), jnp.complex64)
    return run, (_f32(points), _f32(points), modes), ()


def segment_sums(rows=20_000, columns=256, segments=1212):
    """Sums over segments, mapped over columns, with the mapped axis in front."""

    def run(x, index):
        def one(column):
            return jax.ops.segment_sum(column, index, num_segments=segments)

        return jax.vmap(one, in_axes=1, out_axes=0)(x)

    return run, (_f32(rows, columns), jax.ShapeDtypeStruct((rows,), jnp.int32)), ()
