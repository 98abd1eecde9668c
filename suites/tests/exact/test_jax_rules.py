"""Every rule for JAX against JAX itself in float64: forward, along a tangent and transposed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("flint")

from jax import lax  # noqa: E402
from jax import numpy as jnp  # noqa: E402
from jax._src.lax.lax import empty2  # noqa: E402 - a scan over several devices binds it
from jax._src.lax.linalg import geqrf  # noqa: E402 - qr itself lowers to it
from jax._src.lax.parallel import all_gather_invariant  # noqa: E402
from jax.ad_checkpoint import checkpoint_name  # noqa: E402
from jax.experimental import pallas as pl  # noqa: E402
from jax.sharding import Mesh, PartitionSpec  # noqa: E402

from gradgate.hw_profiles.calls import MARKER, marked  # noqa: E402
from gradgate.suites.exact import balls, on_jax  # noqa: E402
from gradgate.suites.exact.on_jax.block import INLINED  # noqa: E402

RNG = np.random.Generator(np.random.PCG64(7))
X, Y = RNG.normal(size=(3, 4)), RNG.normal(size=(3, 4))
UNIT, SQUARE = RNG.uniform(0.1, 0.9, (3, 4)), RNG.normal(size=(4, 4)) + 3 * np.eye(4)
MANY = np.stack([SQUARE, SQUARE.T + 1])
IMAGE, KERNEL = RNG.normal(size=(2, 4, 5, 6)), RNG.normal(size=(6, 2, 3, 2))
Z = X + 1j * Y
INTS, MORE = np.array([[5, -7, 0, 2**62], [-1, 3, -(2**63), 9]]), np.array([[3, 2, 5, 4], [-3, -2, 7, 70]])
BITS = np.array([0, 1, 0x80000000, 0x3F800001, 0xFFFFFFFF], np.uint32)
MASK = X > 0

Case = tuple[str, Callable[..., Any], tuple[Any, ...]]
CASES: list[Case] = []


def case(names: str, function: Callable[..., Any], *arrays: Any) -> None:
    """Add a function of arrays; the named primitives occur in its program or in its derivatives' program."""
    CASES.append((names, function, arrays))


NEW = hasattr(lax, "one_minus_square")
"""JAX 0.11 or later."""
ABSENT = {"closed_call"} if NEW else {"eval_jaxpr", "log2", "one_minus_square"}
"""Rules for primitives that this JAX does not have."""


def unary(names: str, *arrays: Any) -> None:
    for name in names.split():
        case(name, getattr(lax, name), *arrays)


unary("exp expm1 sin cos tan sinh cosh tanh asinh atan erf erfc logistic cbrt exp2 square neg abs sign", X)
unary("floor ceil bessel_i0e bessel_i1e lgamma digamma is_finite", X)
if NEW:
    unary("one_minus_square", X)
    case("log2", lax.log2, Y)
unary("exp log sqrt rsqrt sin cos tanh logistic neg abs sign square conj real imag asin acosh exp2 log1p expm1", Z)
unary("log log1p sqrt rsqrt asin acos atanh erf_inv", UNIT)
case("acosh", lambda x: lax.acosh(1 + x), UNIT)
case("round", lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), 3 * X)
case("round", lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO), np.array([0.5, -0.5, 1.5, 2.2, -2.7]))
case("round", lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), np.array([0.5, -0.5, 1.5, 2.5, -2.7]))
case("add sub mul div", lambda x, y: (x + y) * (x - y) / (2 + y * y), X, Y)
case("add sub mul div", lambda x, y: (x + y) * (x - y) / (2 + y * y), Z, np.conj(Z) + 1)
case("add_any", lambda x: x * jnp.sin(x), X)
case("rem", lax.rem, 3 * X, Y)
case("pow", lax.pow, UNIT, Y)
case("pow", lambda x: lax.pow(x, jnp.asarray([[2, 3, 0, 1]] * 3)), X)
case(MARKER, marked(lambda x: x * x, "square"), X)
case("integer_pow", lambda x: x**3 + x**-2, X)
case("integer_pow", lambda x: x**3 + x**-2, Z)
case("atan2", lax.atan2, X, Y)
case("zeta", lambda: lax.zeta(2 + jnp.asarray(UNIT), 1 + jnp.asarray(Y * Y)))
case("polygamma", lambda x: lax.polygamma(jnp.full(x.shape, 2.0), x), UNIT)
case("igamma igammac", lambda x: lax.igamma(Y * Y, x) - lax.igammac(Y * Y, x), UNIT)
case("regularized_incomplete_beta", lambda x: lax.betainc(1 + jnp.asarray(Y * Y), 0.5 + jnp.asarray(X * X), x), UNIT)
case("max min clamp", lambda x, y: lax.max(x, y) * lax.min(x, 0.1) + lax.clamp(-0.5, x, 0.5), X, Y)
case("max min clamp", lambda: [lax.max(INTS, MORE), lax.min(INTS, MORE), lax.clamp(-5, INTS, 5)])
case("select_n", lambda x, y: jnp.where(MASK, x, y), X, Y)
case("select_n", lambda x, y: lax.select_n(jnp.asarray(MORE[0] % 3), x[0], y[0], x[1]), X, Y)
case("lt le gt ge eq ne", lambda x: [x < Y, x <= Y, x > Y, x >= Y, x == X, x != Y], X)
case("lt le gt ge eq ne", lambda: [f(INTS, MORE) for f in (lax.lt, lax.le, lax.gt, lax.ge, lax.eq, lax.ne)])
case("eq ne", lambda x: [x == Z, x != 1j], Z)
case("lt_to le_to eq_to", lambda x: [lax.lt_to_p.bind(x, Y), lax.le_to_p.bind(x, Y), lax.eq_to_p.bind(x, X)], X)
case("complex", lax.complex, X, Y)
case("convert_element_type", lambda x: [x.astype(int), x.astype(bool), x.astype(complex)], 3 * X)
case("convert_element_type", lambda x: [x.astype(jnp.int8), x.astype(jnp.uint8)], np.array([300.7, -1.5, np.inf]))
case("convert_element_type", lambda x: x * jnp.asarray(INTS).astype(float).sum() + jnp.asarray(MASK).astype(float), X)
case("convert_element_type", lambda: [INTS.astype(np.int8), jnp.asarray(MASK).astype(int), jnp.asarray(INTS) != 0])
case("bitcast_convert_type", lambda: lax.bitcast_convert_type(jnp.asarray(BITS[:4]), jnp.float32))
case("bitcast_convert_type", lambda: lax.bitcast_convert_type(jnp.asarray(BITS.reshape(5, 1)), jnp.uint8))
case("bitcast_convert_type", lambda x: lax.bitcast_convert_type(lax.stop_gradient(x), jnp.int64), X)
case("nextafter", lambda x: jnp.nextafter(lax.stop_gradient(x), jnp.inf), X)

case("and or xor", lambda: [INTS & jnp.asarray(MORE), INTS | jnp.asarray(MORE), INTS ^ jnp.asarray(MORE)])
case("not and or", lambda: [~jnp.asarray(INTS), ~jnp.asarray(MASK), jnp.asarray(MASK) & MASK, jnp.asarray(MASK) | MASK])
case("neg sign abs square", lambda: [f(jnp.asarray(INTS)) for f in (lax.neg, lax.sign, lax.abs, lax.square)])
case("add sub mul div rem", lambda: [f(INTS, MORE) for f in (lax.add, lax.sub, lax.mul, lax.div, lax.rem)])
case("integer_pow", lambda: lax.integer_pow(jnp.asarray(INTS), 3))
case(
    "shift_left shift_right_logical shift_right_arithmetic",
    lambda: [f(jnp.asarray(INTS), MORE) for f in (lax.shift_left, lax.shift_right_logical, lax.shift_right_arithmetic)],
)
case("population_count clz", lambda: [f(jnp.asarray(v)) for f in (lax.population_count, lax.clz) for v in (INTS, BITS)])
case("empty2", lambda x: x + empty2(x.dtype, memory_space=jax.memory.Space.Device), X)
case("empty2", lambda: empty2(np.dtype(int), memory_space=jax.memory.Space.Device))
case("iota", lambda x: x * lax.broadcasted_iota(float, (3, 4), 1) + lax.broadcasted_iota(int, (3, 4), 0), X)

case("reshape", lambda x: [x.reshape(2, 6), lax.reshape(x, (6, 2), (1, 0))], X)
case("squeeze broadcast_in_dim", lambda x: lax.squeeze(lax.broadcast_in_dim(x, (3, 1, 4), (0, 2)), (1,)), X)
case("transpose rev concatenate", lambda x, y: jnp.concatenate([x.T, lax.rev(y.T, (0, 1))], 1), X, Y)
case("slice", lambda x: lax.slice(x, (1, 0), (3, 4), (1, 2)), X)
case("split stack", lambda x: jnp.stack([part * (1 + i) for i, part in enumerate(lax.split(x, (2, 2), 1))], 1), X)
case("unstack", lambda x: sum(jnp.unstack(x, axis=1)), X)
case("tile", lambda x: lax.tile(x, (2, 3)), X)
case("pad", lambda x, y: lax.pad(x, y, ((1, 2, 1), (-1, -1, 0))), X, np.asarray(0.5))
case("copy stop_gradient", lambda x: jnp.copy(x) * lax.stop_gradient(x), X)
case("optimization_barrier name", lambda x: lax.optimization_barrier(checkpoint_name(x * x, "n")), X)
case("device_put", lambda x: jax.device_put(x) * 2, X)

case("dynamic_slice", lambda x: lax.dynamic_slice(x, (7, 1), (2, 2)), X)
case("dynamic_update_slice", lambda x, y: lax.dynamic_update_slice(x, y[:2, :2], (-4, 3)), X, Y)
case("gather", lambda x: x[jnp.array([[2, 0], [-1, 2]]), jnp.array([1, 9])], X)
case("gather", lambda x: x.at[:, jnp.array([1, 9, -2])].get(mode="fill", fill_value=2.5), X)
case("gather", lambda x: x.at[jnp.array([1, 9])].get(mode="clip"), X)
case("gather", lambda x: jax.vmap(lambda row, i: row[i])(x, jnp.array([3, 0, 1])), X)
case("gather", lambda x: jnp.take_along_axis(x, jnp.array([[3, 0], [1, 1], [2, 2]]), 1), X)
case(
    "gather",
    lambda x: lax.gather(
        x, jnp.array([[1, 3], [0, 1]]), lax.GatherDimensionNumbers((1, 2), (), (0, 1)), (2, 2), mode="clip"
    ),
    X,
)
case("scatter-add", lambda x, y: x.at[jnp.array([2, 0, 2]), 1:3].add(y[:, 2:]), X, Y)
case("scatter-add", lambda x, y: jax.vmap(lambda a, i, b: a.at[i].add(b))(x, jnp.array([[3, 9]] * 3), y[:, :2]), X, Y)
case(
    "scatter-sub",
    lambda x: lax.scatter_sub(x, jnp.array([[1], [1]]), Y[:2], lax.ScatterDimensionNumbers((1,), (0,), (0,))),
    X,
)
case("scatter-mul", lambda x, y: x.at[jnp.array([2, 0])].multiply(y[:2], unique_indices=True), X, Y)
case("scatter-min scatter-max", lambda x, y: x.at[jnp.array([2, 0])].min(y[:2]).at[1].max(y[2]), X, Y)
case("scatter", lambda x, y: x.at[jnp.array([2, 7]), 1].set(y[0, :2], unique_indices=True), X, Y)
case("scatter", lambda: jnp.asarray(X).at[jnp.array([2, 1])].apply(lambda v: v + 1.5))
case(
    "scatter scatter-add scatter-max",
    lambda: [
        jnp.asarray(INTS).at[0, 1].set(5),
        jnp.asarray(INTS).at[jnp.array([0, 0])].add(3),
        jnp.asarray(INTS).at[1].max(2),
    ],
)

case("reduce_sum reduce_prod", lambda x: jnp.sum(x, 0) * jnp.prod(x, 0), X)
case("reduce_sum reduce_prod", lambda x: jnp.sum(x, 0) * jnp.prod(x, 0), Z)
case("reduce_sum reduce_prod", lambda: [jnp.sum(INTS, 0), jnp.prod(INTS), jnp.sum(jnp.zeros((0, 3)), 0)])
case("reduce_max reduce_min", lambda x: x.max(0) * x.min(), X)
case("reduce_max reduce_min", lambda: [jnp.max(jnp.asarray(INTS), 0), jnp.min(jnp.asarray(INTS)), jnp.max(MASK, 1)])
case(
    "reduce_and reduce_or reduce_xor",
    lambda: [jnp.all(MASK, 0), jnp.any(MASK, 1), lax.reduce_xor(jnp.asarray(INTS), (0,))],
)
case("argmax argmin", lambda x: [jnp.argmax(x, 1), jnp.argmin(x), jnp.argmax(jnp.asarray(INTS), 0)], X)
for reverse in (False, True):
    for name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"):
        case(name, functools.partial(getattr(lax, name), axis=1, reverse=reverse), X)
case("cumsum cummax", lambda: [jnp.cumsum(INTS, 1), lax.cummax(jnp.asarray(INTS), 0)])
case("reduce", lambda: lax.reduce(jnp.asarray(X), np.float64(0.5), lambda a, b: jnp.maximum(a, b) + 0.0, (0,)))
case("sort", lambda x, y: lax.sort((x, y), dimension=1, num_keys=1), X, Y)
case("sort", lambda: lax.sort((jnp.asarray(MORE), INTS), dimension=0, num_keys=2))
case("top_k", lambda x: lax.top_k(x, 2), X)
case("top_k", lambda: lax.top_k(jnp.asarray(INTS), 2))

WINDOW: dict[str, Any] = {"window_dimensions": (2, 2), "window_strides": (1, 2), "padding": ((1, 0), (0, 1))}
case(
    "reduce_window_sum",
    lambda x: lax.reduce_window(x, 0.0, lax.add, base_dilation=(1, 2), window_dilation=(2, 1), **WINDOW),
    X,
)
case(
    "reduce_window_max select_and_scatter_add select_and_gather_add",
    lambda x: lax.reduce_window(x, -np.inf, lax.max, **WINDOW),
    X,
)
case("reduce_window_min select_and_scatter_add", lambda x: lax.reduce_window(x, np.inf, lax.min, **WINDOW), X)
case("reduce_window", lambda: lax.reduce_window(jnp.asarray(X), 1.0, lax.mul, **WINDOW))
case(
    "reduce_window_max reduce_window_sum",
    lambda: [
        lax.reduce_window(jnp.asarray(INTS), np.iinfo(int).min, lax.max, **WINDOW),
        lax.reduce_window(jnp.asarray(INTS), 0, lax.add, **WINDOW),
    ],
)


def convolve(groups: int, batches: int, **options: Any) -> Callable[..., Any]:
    return functools.partial(
        lax.conv_general_dilated,
        feature_group_count=groups,
        batch_group_count=batches,
        dimension_numbers=("NCHW", "OIHW", "NHWC"),
        **options,
    )


case("conv_general_dilated", convolve(2, 1, window_strides=(2, 1), padding=((1, 2), (-1, 1))), IMAGE, KERNEL)
DILATED = convolve(1, 2, window_strides=(1, 2), padding=((2, 0), (1, 1)), lhs_dilation=(2, 1), rhs_dilation=(1, 2))
case("conv_general_dilated", DILATED, IMAGE[:, :2], KERNEL)
case("dot_general", lambda x, y: jnp.einsum("abc,cad->adb", x[None] * 1.0, y.T[:, None]), X, Y)
case("dot_general", lambda x, y: x @ y.T + jnp.asarray(INTS[:1, :3] % 7) @ jnp.asarray(MORE.T[:3, :1]), X, Y)
case("dot_general", lambda x: jnp.conj(x).T @ x, Z)
case("ragged_dot_general", lambda x, y: lax.ragged_dot(x, jnp.stack([y.T, 2 * y.T]), jnp.array([1, 2])), X, Y)
for name in ("fft", "ifft", "fft2"):
    case("fft", getattr(jnp.fft, name), Z)
case("fft", lambda x: [jnp.fft.rfft(x), jnp.fft.irfft(jnp.fft.rfft(x), 5), jnp.fft.rfft2(x)], X)
case("fft", lambda x: [jnp.fft.irfft(x, 6), jnp.fft.irfft2(x, (3, 5))], Z)

case("cholesky", lambda x: jnp.linalg.cholesky(x @ x.T + jnp.eye(4)), SQUARE)
case(
    "triangular_solve",
    lambda x, y: [
        lax.linalg.triangular_solve(
            x, y if left else y.T, left_side=left, lower=low, transpose_a=turn, unit_diagonal=unit
        )
        for left, low, turn, unit in (
            (True, True, False, False),
            (False, False, True, True),
            (True, False, True, False),
        )
    ],
    SQUARE,
    RNG.normal(size=(4, 3)),
)
case("lu", lambda x: [jnp.linalg.det(x), *map(jnp.linalg.slogdet, x)], MANY)
case(
    "lu_pivots_to_permutation",
    lambda: lax.linalg.lu_pivots_to_permutation(jnp.array([[2, 2, 3], [1, 2, 2]], np.int32), 4),
)
case("lu", lambda x: [out for out in lax.linalg.lu(x)], SQUARE[:, :3])  # noqa: C416
case("custom_linear_solve triangular_solve lu", jnp.linalg.solve, SQUARE, SQUARE[:, :2] + 1)
case("custom_linear_solve", jnp.linalg.inv, MANY)
case("qr", lambda x: jnp.linalg.qr(x), SQUARE[:, :3])
case("qr", lambda: jnp.linalg.qr(jnp.asarray(SQUARE[:, :3]), mode="complete"))
case("geqrf householder_product", lambda: lax.linalg.householder_product(*geqrf(jnp.asarray(SQUARE))))
case("tridiagonal_solve", lambda x: lax.linalg.tridiagonal_solve(*(2 + x.T[:, :1] * np.ones(3)).T, x.T), X)


def compound(x: Any) -> Any:
    """A loop with a carry that its outputs depend on, another that they do not need, and float and integer outputs."""

    def step(state: Any, row: Any) -> Any:
        seen, unread, count = state
        return (jnp.tanh(seen + row[0] * row[1]), unread * 2, count + 1), (seen.sum(), count)

    return lax.scan(step, (x[0], x[1], 0), (x, 2 * x), reverse=True)[1]


@jax.custom_vjp
def halved(x: Any) -> Any:
    return x * jnp.sin(x)


halved.defvjp(lambda x: (halved(x), x), lambda x, g: (g * x / 2,))


@jax.custom_jvp
def doubled(x: Any) -> Any:
    return x * jnp.sin(x)


doubled.defjvp(lambda primals, tangents: (doubled(*primals), 2 * tangents[0]))


@jax.custom_batching.custom_vmap
def mapped(x: Any) -> Any:
    return x + 1


mapped.def_vmap(lambda size, batched, x: (mapped(x), True))


case("scan", compound, X)
case("scan", lambda x: lax.scan(lambda c, _: (c * x, None), x, length=0)[0] + x, X)
case("while", lambda: lax.while_loop(lambda s: s[0] < 7, lambda s: (s[0] + 3, jnp.cos(s[1])), (0, jnp.asarray(X))))
lanes = jax.vmap(lambda x: lax.while_loop(lambda s: s[1].sum() < 9, lambda s: (s[0] + 1, 1.5 * s[1] + 1), (0, x)))
case("while", lambda: (lambda turns, y: turns[:, None] * y)(*lanes(jnp.asarray(X))))
case("while", lambda: lax.fori_loop(0, jnp.argmax(X), lambda i, s: s * jnp.sin(s + i), jnp.asarray(X)))
case(
    "cond",
    lambda x: lax.cond(x[0, 0] > 0, jnp.sin, lambda x: x * x, x) + lax.switch(2, [jnp.cos, jnp.exp, jnp.tanh], x),
    X,
)
case("jit", lambda x: jax.jit(lambda y: jnp.sin(y) * y)(x), X)
case(
    "eval_jaxpr" if NEW else "closed_call",
    jax.checkpoint(lambda x: lax.scan(lambda c, r: (jnp.sin(c) * r, c), x[0], x)[0]),
    X,
)
case("remat2", jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)) * x), X)
case("custom_vjp_call", halved, X)
case("custom_jvp_call", doubled, X)
case("custom_vmap_call", lambda: mapped(jnp.asarray(X)))
case(
    "linear_call",
    lambda x: jax.custom_derivatives.linear_call(lambda r, v: v * r, lambda r, t: t * r, jnp.asarray(Y), x),
    X,
)
case("composite", lambda: lax.composite(lambda v: jnp.sin(v) * v, "test.sine")(jnp.asarray(X)))
case("reduce_precision", lambda x: lax.reduce_precision(x, 11, 52) * x, X)
case(
    "sharding_constraint",
    lambda x: lax.with_sharding_constraint(x * x, jax.sharding.SingleDeviceSharding(jax.devices()[0])),
    X,
)
case("platform_index", lambda x: lax.platform_dependent(x, tpu=jnp.cos, default=jnp.sin), X)


def sharded(body: Callable[..., Any], inputs: Any, outputs: Any, check: bool = True) -> Callable[..., Any]:
    mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("a", "b"))
    specs = {"in_specs": PartitionSpec(*inputs), "out_specs": PartitionSpec(*outputs)}
    return jax.shard_map(body, mesh=mesh, check_vma=check, **specs)


def collectives(x: Any) -> Any:
    """Most collective operations, on (2, 2) parts."""
    y = lax.psum(x, "a") + lax.pmean(x, ("a", "b")) + lax.axis_index(("a", "b")) * x
    z = lax.all_gather(x, "a", tiled=True) + lax.all_gather(x, "b").sum(0).repeat(2, 0)
    held = lax.pmax(lax.stop_gradient(x), "b") - lax.pmin(lax.stop_gradient(x), "a")
    sent = lax.ppermute(x, "a", [(0, 1)]) + lax.ppermute(x, "b", [(0, 1), (1, 0)])
    scattered = lax.psum_scatter(z, "a", tiled=True) + lax.psum_scatter(x, "b")[None] * x
    swapped = lax.all_to_all(z, "b", 0, 1, tiled=True) + lax.all_to_all(x[:, None], "a", 0, 0).repeat(2, 1).reshape(
        2, 4
    )
    return y + held + sent + scattered + swapped[:, :2] * swapped[:, 2:]


SHARDED = RNG.normal(size=(4, 4))
NAMES = "shard_map all_gather ppermute axis_index reduce_scatter all_to_all pmax pmin"
case(NAMES + " psum_invariant pvary", sharded(collectives, ("a", "b"), ("a", "b")), SHARDED)
case(NAMES + " psum", sharded(collectives, ("a", "b"), ("a", "b"), False), SHARDED)
case("shard_map psum_invariant", sharded(lambda x: lax.psum(x * x, "a"), ("a",), (None, None)), SHARDED)
case(
    "shard_map scan",
    sharded(
        lambda x: lax.scan(lambda c, _: (lax.psum(c, "b") * x, None), x, length=3)[0],
        (("a", "b"),),
        (("a", "b"),),
        False,
    ),
    SHARDED,
)

case("all_gather_invariant", sharded(lambda x: all_gather_invariant(x, "a", tiled=True), ("a",), (None,)), SHARDED)
case("reshard", jax.grad(lambda x: sharded(lambda x: x**3, ("a", "b"), ("a", "b"))(x).sum()), SHARDED)

KEY = "random_seed random_split random_fold_in random_bits random_wrap random_unwrap"


def drawn(x: Any) -> Any:
    keys = jax.random.split(jax.random.fold_in(jax.random.key(2**40 + 3), 7), (2, 2))
    again = jax.random.wrap_key_data(jax.random.key_data(keys[1]))[0]
    bits = [jax.random.bits(again, (3,), dtype) for dtype in (jnp.uint8, jnp.uint16, jnp.uint32, jnp.uint64)]
    return x * jax.random.normal(keys[0, 1], x.shape) + jax.random.uniform(again, x.shape), bits


case(KEY + " shift_right_logical bitcast_convert_type erf_inv", drawn, X)
case("threefry2x32", lambda: jax.extend.random.threefry_2x32(BITS[:2], jnp.asarray(BITS[1:])))
case("random_clone", lambda: jax.random.uniform(jax.random.clone(jax.random.key(1)), (3,)))


def in_kernel(x: Any) -> Any:
    def kernel(x: Any, y: Any) -> None:
        y[...] = x[...] * (2 * pl.program_id(0) + pl.num_programs(0))

    block = pl.BlockSpec((1, 4), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    rows = jnp.full((), 3, jnp.int32)  # the length of a grid is a primitive only where it is not known in advance
    call = pl.pallas_call(kernel, shape, grid=(rows,), in_specs=[block], out_specs=block, interpret=True)
    return x * call(lax.stop_gradient(x))


case("pallas_call program_id num_programs", in_kernel, X)


NO_TANGENTS = {"custom_vjp_call"}
"""Cases for which JAX has no forward-mode derivative."""


def with_derivatives(function: Callable[..., Any], names: str) -> Callable[..., Any]:
    """(inputs, tangents, cotangents) -> (outputs, input cotangents, output tangents)."""

    def floating(tree: Any) -> list[Any]:
        return [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]

    def run(inputs: Any, tangents: Any, cotangents: Any) -> Any:
        outputs = function(*inputs)
        if not inputs or not floating(outputs) or not cotangents:
            return outputs
        smooth = lambda *given: floating(function(*given))  # noqa: E731
        found, pull = jax.vjp(smooth, *inputs)
        weights = [jnp.asarray(c, out.dtype) for c, out in zip(cotangents, found, strict=True)]
        forward = jax.jvp(smooth, inputs, tangents)[1] if names not in NO_TANGENTS else None
        return outputs, pull(weights), forward

    return run


def drawn_like(arrays: Any) -> Any:
    rng = np.random.Generator(np.random.PCG64(3))

    def one(array: Any) -> Any:
        value = rng.normal(size=array.shape)
        return value + 1j * rng.normal(size=array.shape) if np.dtype(array.dtype).kind == "c" else value

    return tuple(one(array) for array in arrays)


def primitives(jaxpr: Any) -> set[str]:
    """The names of all primitives in a program, inner ones too."""
    found = set()
    for equation in jaxpr.eqns:
        found.add(equation.primitive.name)
        for inner in jax.extend.core.jaxprs_in_params(equation.params):
            found |= primitives(inner)
    return found


@pytest.mark.parametrize(("names", "function", "arrays"), CASES, ids=[case[0].replace(" ", "-") for case in CASES])
def test_a_rule_agrees_with_jax(names: str, function: Any, arrays: Any) -> None:
    with jax.enable_x64(True):
        inputs = tuple(map(jnp.asarray, arrays))
        shapes = jax.eval_shape(function, *inputs)
        smooth = [leaf for leaf in jax.tree.leaves(shapes) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
        given = inputs, drawn_like(arrays), drawn_like(smooth)
        run = with_derivatives(function, names)
        wanted = jax.tree.leaves(jax.jit(run)(*given))
        assert set(names.split()) <= primitives(jax.make_jaxpr(run)(*given).jaxpr)
        found = on_jax.trace(run, *given).evaluate(*given)
    for one, other in zip(found, wanted, strict=True):
        plain = balls.floats(one) if balls.is_balls(one) else one
        assert plain.shape == other.shape
        other = np.asarray(other)
        size = np.abs(other[np.isfinite(other)]).max(initial=1.0) if other.dtype.kind in "fc" else 0
        np.testing.assert_allclose(plain, other, rtol=0, atol=1e-11 * size)


def test_every_rule_has_a_case() -> None:
    rules = {*on_jax.RULES, *on_jax.LOCKSTEP, *INLINED}
    assert rules - {name for names, _, _ in CASES for name in names.split()} == ABSENT
