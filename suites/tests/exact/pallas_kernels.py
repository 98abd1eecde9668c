"""Pallas kernels with backward kernels, right and with faults, for the tests of sixty digits in kernels.

Each maker takes the name of a fault ("" for none) and `interpret`, and returns a function with a custom derivative. The
fault ``term`` adds 1e-30 in the backward kernel, and ``ulp`` one unit in the last place; other faults are its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from gradgate import normal

SHAPE = jax.ShapeDtypeStruct
TILE = 16


def planted(fault: str, value: Any) -> Any:
    """A result of a backward kernel, with the fault that every kernel can have."""
    return value + 1e-30 if fault == "term" else value + value * 2.0**-52 if fault == "ulp" else value


def rows(block: int, width: int, back: int = 0) -> Any:
    """Blocks of rows along a grid of one axis; from the last to the first if `back`, their number, is given."""
    return pl.BlockSpec((block, width), lambda i: (back - 1 - i if back else i, 0))


def ruled(forward: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Any]:
    """The function of (inputs) -> (output, residuals), and of (residuals, cotangent) -> gradients."""

    @jax.custom_vjp
    def function(*given: Any) -> Any:
        return forward(*given)[0]

    function.defvjp(forward, backward)
    return lambda *given: function(*given)


# Elementwise ----------------------------------------------------------------------------------------------------------


def gate(fault: str = "", interpret: Any = False, block: int = 8) -> Callable[..., Any]:
    """x · tanh(x), in blocks of rows; the last block may be ragged."""

    def forward_kernel(x: Any, y: Any) -> None:
        y[...] = x[...] * jnp.tanh(x[...])

    def backward_kernel(x: Any, dy: Any, dx: Any) -> None:
        t = jnp.tanh(x[...])
        dx[...] = planted(fault, (t + x[...] * (1 - t * t)) * dy[...])

    def call(kernel: Any, *given: Any) -> Any:
        tokens, width = given[0].shape
        back = kernel is backward_kernel
        count = tokens // block if back and fault == "tail" else pl.cdiv(tokens, block)
        specs = [rows(block, width) for _ in given]
        if back and fault == "map":
            specs[1] = pl.BlockSpec((block, width), lambda i: (0, 0))
        return pl.pallas_call(
            kernel,
            out_shape=SHAPE(given[0].shape, given[0].dtype),
            grid=(count,),
            in_specs=specs,
            out_specs=rows(block, width),
            interpret=interpret,
        )(*given)

    return ruled(lambda x: (call(forward_kernel, x), x), lambda x, dy: (call(backward_kernel, x, dy),))


def plain_gate(x: Any) -> Any:
    """As `gate`."""
    return x * jnp.tanh(x)


# Norm: a gradient that is summed over the grid ------------------------------------------------------------------------


def norm(fault: str = "", interpret: Any = False, block: int = 8) -> Callable[..., Any]:
    """x / √(mean x² + 2⁻²⁰) · w over rows."""

    def forward_kernel(x: Any, w: Any, y: Any) -> None:
        r = jax.lax.rsqrt(jnp.mean(x[...] * x[...], 1, keepdims=True) + 2.0**-20)
        y[...] = x[...] * r * w[...]

    def backward_kernel(tokens: int, x: Any, w: Any, dy: Any, dx: Any, dw: Any) -> None:
        step = pl.program_id(0)
        r = jax.lax.rsqrt(jnp.mean(x[...] * x[...], 1, keepdims=True) + 2.0**-20)
        n, d = x[...] * r, dy[...] * w[...]
        dx[...] = planted(fault, (d - n * jnp.mean(d * n, 1, keepdims=True)) * r)
        place = step * block + jax.lax.broadcasted_iota(jnp.int32, n.shape, 0)
        last = tokens - 1 if fault == "mask" else tokens
        part = n * dy[...] if fault == "tail" else jnp.where(place < last, n * dy[...], 0)
        if fault != "uninitialised":

            @pl.when(step == 0)
            def _() -> None:
                dw[...] = jnp.zeros_like(dw)

        dw[...] += jnp.sum(part, 0, keepdims=True)

    def forward(x: Any, w: Any) -> Any:
        tokens, width = x.shape
        y = pl.pallas_call(
            forward_kernel,
            out_shape=SHAPE(x.shape, x.dtype),
            grid=(pl.cdiv(tokens, block),),
            in_specs=[rows(block, width), pl.BlockSpec((1, width), lambda i: (0, 0))],
            out_specs=rows(block, width),
            interpret=interpret,
        )(x, w[None])
        return y, (x, w)

    def backward(kept: Any, dy: Any) -> Any:
        x, w = kept
        tokens, width = x.shape
        weight = pl.BlockSpec((1, width), lambda i: (0, 0))
        dx, dw = pl.pallas_call(
            functools.partial(backward_kernel, tokens),
            grid=(pl.cdiv(tokens, block),),
            out_shape=(SHAPE(x.shape, x.dtype), SHAPE((1, width), x.dtype)),
            in_specs=[rows(block, width), weight, rows(block, width)],
            out_specs=(rows(block, width), weight),
            interpret=interpret,
        )(x, w[None], dy)
        return dx, dw[0]

    return ruled(forward, backward)


def plain_norm(x: Any, w: Any) -> Any:
    """As `norm`."""
    return x * jax.lax.rsqrt(jnp.mean(x * x, 1, keepdims=True) + 2.0**-20) * w


# Softmax: rows that are wider than the array --------------------------------------------------------------------------


def softmax(fault: str = "", interpret: Any = False, block: int = 8) -> Callable[..., Any]:
    """Softmax of rows, which a block takes whole, to the next power of two."""

    def seen(like: Any, width: int, wrong: bool = False) -> Any:
        return jax.lax.broadcasted_iota(jnp.int32, like.shape, 1) < width + wrong

    def forward_kernel(width: int, x: Any, y: Any) -> None:
        row = jnp.where(seen(x, width), x[...], -jnp.inf)
        e = jnp.exp(row - jnp.max(row, 1, keepdims=True))
        y[...] = e / jnp.sum(e, 1, keepdims=True)

    def backward_kernel(width: int, y: Any, dy: Any, dx: Any) -> None:
        one = fault == "mask"
        product = jnp.where(seen(y, width, one), y[...] * dy[...], 0)
        dx[...] = planted(fault, y[...] * (dy[...] - jnp.sum(product, 1, keepdims=True)))

    def call(kernel: Any, *given: Any) -> Any:
        tokens, width = given[0].shape
        spec = rows(block, pl.next_power_of_2(width + 1))
        return pl.pallas_call(
            functools.partial(kernel, width),
            out_shape=SHAPE(given[0].shape, given[0].dtype),
            grid=(pl.cdiv(tokens, block),),
            in_specs=[spec] * len(given),
            out_specs=spec,
            interpret=interpret,
        )(*given)

    def forward(x: Any) -> Any:
        y = call(forward_kernel, x)
        return y, y

    return ruled(forward, lambda y, dy: (call(backward_kernel, y, dy),))


def plain_softmax(x: Any) -> Any:
    """As `softmax`."""
    return jax.nn.softmax(x, 1)


# Matrix product: tiles, summed over an axis of the grid ---------------------------------------------------------------


def product(fault: str = "", interpret: Any = False) -> Callable[..., Any]:
    """x w, in tiles of 16 × 16."""

    def tiled(one: Any, other: Any, wrong: str) -> Any:
        (height, inner), width = one.shape, other.shape[1]
        count = pl.cdiv(inner, TILE)
        late = wrong == "stale"  # sums in the output, to which the grid returns after other tiles

        def kernel(a: Any, b: Any, out: Any, total: Any) -> None:
            step = pl.program_id(0 if late else 2)
            into = out if late else total
            left_over = inner - step * TILE
            left = jnp.where(jax.lax.broadcasted_iota(jnp.int32, a.shape, 1) < left_over, a[...], 0)
            right = jnp.where(jax.lax.broadcasted_iota(jnp.int32, b.shape, 0) < left_over, b[...], 0)
            if wrong != "uninitialised":

                @pl.when(step == 0)
                def _() -> None:
                    into[...] = jnp.zeros_like(into)

            into[...] += jnp.dot(left, right)

            @pl.when(step == count - 1)
            def _() -> None:
                out[...] = planted(wrong, into[...])

        grid = (pl.cdiv(height, TILE), pl.cdiv(width, TILE), count)
        maps: list[Any] = [lambda i, j, n: (i, n), lambda i, j, n: (n, j), lambda i, j, n: (i, j)]
        if wrong == "map":
            maps[1] = lambda i, j, n: (n, i)
        if late:
            grid = (grid[2], grid[0], grid[1])
            maps = [lambda n, i, j: (i, n), lambda n, i, j: (n, j), lambda n, i, j: (i, j)]
        first, second, third = (pl.BlockSpec((TILE, TILE), one) for one in maps)
        return pl.pallas_call(
            kernel,
            out_shape=SHAPE((height, width), one.dtype),
            grid=grid,
            in_specs=[first, second],
            out_specs=third,
            scratch_shapes=[pltpu.VMEM((TILE, TILE), one.dtype)],
            interpret=interpret,
            compiler_params=pltpu.CompilerParams(),
        )(one, other)

    def backward(kept: Any, dy: Any) -> Any:
        x, w = kept
        return tiled(dy, w.T, fault), tiled(x.T, dy, fault)

    return ruled(lambda x, w: (tiled(x, w, ""), (x, w)), backward)


def plain_product(x: Any, w: Any) -> Any:
    """As `product`."""
    return x @ w


# Attention: online softmax --------------------------------------------------------------------------------------------


def attention(fault: str = "", interpret: Any = False) -> Callable[..., Any]:
    """Causal softmax(q kᵀ / 4) v, in tiles of 16 tokens; the loop over keys ends at the diagonal."""

    def scores(q: Any, k: Any, row: Any, column: Any, tokens: int, late: int = 0) -> Any:
        places = (TILE, TILE)
        across = row * TILE + jax.lax.broadcasted_iota(jnp.int32, places, 0)
        down = column * TILE + jax.lax.broadcasted_iota(jnp.int32, places, 1)
        return jnp.where((down <= across + late) & (down < tokens), q @ k.T / 4, -jnp.inf)

    def tile(ref: Any, number: Any, tokens: int) -> Any:
        found = ref[pl.ds(number * TILE, TILE), :]
        return jnp.where(number * TILE + jax.lax.broadcasted_iota(jnp.int32, found.shape, 0) < tokens, found, 0)

    def forward_kernel(tokens: int, q: Any, k: Any, v: Any, out: Any, lse: Any) -> None:
        row = pl.program_id(0)
        query = q[...]

        def step(column: Any, state: Any) -> Any:
            most, total, mean = state
            s = scores(query, tile(k, column, tokens), row, column, tokens)
            new = jnp.maximum(most, jnp.max(s, 1))
            scale, p = jnp.exp(most - new), jnp.exp(s - new[:, None])
            return new, total * scale + p.sum(1), mean * scale[:, None] + p @ tile(v, column, tokens)

        start = jnp.full(TILE, -jnp.inf, query.dtype), jnp.zeros(TILE, query.dtype), jnp.zeros_like(query)
        most, total, mean = jax.lax.fori_loop(0, row + 1, step, start)
        out[...] = mean / total[:, None]
        lse[...] = most + jnp.log(total)

    def query_kernel(tokens: int, q: Any, k: Any, v: Any, dout: Any, lse: Any, mix: Any, dq: Any) -> None:
        row = pl.program_id(0)

        def step(column: Any, total: Any) -> Any:
            key, value = tile(k, column, tokens), tile(v, column, tokens)
            p = jnp.exp(scores(q[...], key, row, column, tokens, int(fault == "mask")) - lse[...][:, None])
            return total + (p * (dout[...] @ value.T - mix[...][:, None])) @ key / 4

        dq[...] = planted(fault, jax.lax.fori_loop(0, row + 1, step, jnp.zeros_like(q[...])))

    def key_kernel(tokens: int, q: Any, k: Any, v: Any, dout: Any, lse: Any, mix: Any, dk: Any, dv: Any) -> None:
        column, count = pl.program_id(0), pl.num_programs(0)

        def part(ref: Any, row: Any) -> Any:
            found = ref[pl.ds(row * TILE, TILE)]
            return jnp.where(row * TILE + jnp.arange(TILE) < tokens, found, 0)

        def step(row: Any, state: Any) -> Any:
            query, grad = tile(q, row, tokens), tile(dout, row, tokens)
            p = jnp.exp(scores(query, k[...], row, column, tokens) - part(lse, row)[:, None])
            p = jnp.where(row * TILE + jax.lax.broadcasted_iota(jnp.int32, p.shape, 0) < tokens, p, 0)
            ds = p * (grad @ v[...].T - part(mix, row)[:, None])
            ds = jnp.where(column * TILE + jax.lax.broadcasted_iota(jnp.int32, ds.shape, 1) < tokens, ds, 0)
            return state[0] + ds.T @ query / 4, state[1] + p.T @ grad

        zero = jnp.zeros_like(k[...])
        first = column + 1 if fault == "bounds" else column
        dk[...], dv[...] = jax.lax.fori_loop(first, count, step, (zero, zero))

    def specs(tokens: int, width: int) -> Any:
        whole = -(-tokens // TILE) * TILE  # a block that reaches beyond the array
        return (
            rows(TILE, width),
            pl.BlockSpec((whole, width), lambda i: (0, 0)),
            pl.BlockSpec((TILE,), lambda i: (i,)),
            pl.BlockSpec((whole,), lambda i: (0,)),
            pl.cdiv(tokens, TILE),
        )

    def forward(q: Any, k: Any, v: Any) -> Any:
        tokens, width = q.shape
        part, whole, line, _, count = specs(tokens, width)
        out, lse = pl.pallas_call(
            functools.partial(forward_kernel, tokens),
            out_shape=(SHAPE(q.shape, q.dtype), SHAPE((tokens,), q.dtype)),
            grid=(count,),
            in_specs=[part, whole, whole],
            out_specs=(part, line),
            interpret=interpret,
        )(q, k, v)
        return out, (q, k, v, out, lse)

    def backward(kept: Any, dout: Any) -> Any:
        q, k, v, out, lse = kept
        mix = (out * dout).sum(1)
        part, whole, line, lines, count = specs(*q.shape)
        shape = SHAPE(q.shape, q.dtype)
        dq = pl.pallas_call(
            functools.partial(query_kernel, q.shape[0]),
            out_shape=shape,
            grid=(count,),
            in_specs=[part, whole, whole, part, line, line],
            out_specs=part,
            interpret=interpret,
        )(q, k, v, dout, lse, mix)
        dk, dv = pl.pallas_call(
            functools.partial(key_kernel, q.shape[0]),
            out_shape=(shape, shape),
            grid=(count,),
            in_specs=[whole, part, part, whole, lines, lines],
            out_specs=(part, part),
            interpret=interpret,
        )(q, k, v, dout, lse, mix)
        return dq, dk, dv

    return ruled(forward, backward)


def plain_attention(q: Any, k: Any, v: Any) -> Any:
    """As `attention`."""
    s = q @ k.T / 4
    return jax.nn.softmax(jnp.where(jnp.tril(jnp.ones_like(s, bool)), s, -jnp.inf), 1) @ v


# Scan: a carry in scratch memory --------------------------------------------------------------------------------------


def scan(fault: str = "", interpret: Any = False, block: int = 8) -> Callable[..., Any]:
    """h of each step, h ← a h + x, in chunks of steps; the carry goes from chunk to chunk in scratch memory."""

    def forward_kernel(tokens: int, a: Any, x: Any, h: Any, carry: Any) -> None:
        @pl.when(pl.program_id(0) == 0)
        def _() -> None:
            carry[...] = jnp.zeros_like(carry)

        def step(t: Any, last: Any) -> Any:
            new = a[pl.ds(t, 1), :] * last + x[pl.ds(t, 1), :]
            h[pl.ds(t, 1), :] = new
            return new

        carry[...] = jax.lax.fori_loop(0, block, step, carry[...])

    def backward_kernel(tokens: int, a: Any, before: Any, dh: Any, da: Any, dx: Any, carry: Any) -> None:
        chunk = pl.num_programs(0) - 1 - pl.program_id(0)
        if fault != "uninitialised":

            @pl.when(pl.program_id(0) == 0)
            def _() -> None:
                carry[...] = jnp.zeros_like(carry)

        def step(i: Any, later: Any) -> Any:
            t = block - 1 - i
            here = pl.ds(t, 1)
            inside = chunk * block + t < tokens
            grad = jnp.where(inside, dh[here, :], 0) + later
            dx[here, :] = planted(fault, grad)
            da[here, :] = grad * before[here, :]
            return jnp.where(inside, a[here, :], 0) * grad

        carry[...] = jax.lax.fori_loop(0, block, step, carry[...])

    def forward(a: Any, x: Any) -> Any:
        tokens, width = x.shape
        h = pl.pallas_call(
            functools.partial(forward_kernel, tokens),
            out_shape=SHAPE(x.shape, x.dtype),
            grid=(pl.cdiv(tokens, block),),
            in_specs=[rows(block, width)] * 2,
            out_specs=rows(block, width),
            scratch_shapes=[pltpu.VMEM((1, width), x.dtype)],
            interpret=interpret,
        )(a, x)
        return h, (a, h)

    def backward(kept: Any, dh: Any) -> Any:
        a, h = kept
        tokens, width = a.shape
        before = jnp.concatenate([jnp.zeros_like(h[:1]), h[:-1]])
        count = pl.cdiv(tokens, block)
        back = rows(block, width, 0 if fault == "order" else count)
        return pl.pallas_call(
            functools.partial(backward_kernel, tokens),
            out_shape=(SHAPE(a.shape, a.dtype),) * 2,
            grid=(count,),
            in_specs=[back] * 3,
            out_specs=(back, back),
            scratch_shapes=[pltpu.VMEM((1, width), a.dtype)],
            interpret=interpret,
        )(a, before, dh)

    return ruled(forward, backward)


def plain_scan(a: Any, x: Any) -> Any:
    """As `scan`."""

    def step(h: Any, given: Any) -> Any:
        new = given[0] * h + given[1]
        return new, new

    return jax.lax.scan(step, jnp.zeros_like(x[0]), (a, x))[1]


@dataclass(frozen=True)
class Kernel:
    """A kernel to be judged.

    Attributes:
        make: (fault, interpret) -> function.
        faults: its own faults.
    """

    make: Callable[..., Any]
    plain: Callable[..., Any]
    inputs: dict[str, Any]
    dims: dict[str, tuple[int, ...]]
    faults: tuple[str, ...]


KERNELS = {
    "gate": Kernel(gate, plain_gate, {"x": normal("T H")}, {"T": (11,), "H": (5,)}, ("tail", "map")),
    "norm": Kernel(
        norm,
        plain_norm,
        {"x": normal("T H"), "w": normal("H")},
        {"T": (11,), "H": (5,)},
        ("mask", "tail", "uninitialised"),
    ),
    "softmax": Kernel(softmax, plain_softmax, {"x": normal("T H")}, {"T": (11,), "H": (5,)}, ("mask",)),
    "product": Kernel(
        product,
        plain_product,
        {"x": normal("T H"), "w": normal("H K")},
        {"T": (33,), "H": (35,), "K": (17,)},
        ("uninitialised", "map", "stale"),
    ),
    "attention": Kernel(
        attention,
        plain_attention,
        {name: normal("T D") for name in "qkv"},
        {"T": (37,), "D": (16,)},
        ("mask", "bounds"),
    ),
    "scan": Kernel(
        scan,
        plain_scan,
        {"a": normal("T H", scale=0.5), "x": normal("T H")},
        {"T": (19,), "H": (3,)},
        ("uninitialised", "order"),
    ),
}
