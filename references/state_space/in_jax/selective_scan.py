"""The recurrence of a selective state space model as a function, in JAX.

The forward pass keeps one state for each chunk. The backward pass takes the chunks from the last to the first,
computes the states of each chunk again, and runs the reverse recurrence μ_t = c_t g_t + a_{t+1} μ_{t+1} through it.
Adjoint sharding reduces to this recurrence when the sum over later tokens is carried out first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from gradgate.references.errors import check_arrays
from gradgate.references.state_space.operands import How, check_segments, how, prepared, read, starts_of


def selective_scan(
    a: Any,
    b: Any,
    c: Any,
    x: Any,
    *,
    delta: Any = None,
    state: Any = None,
    chunk: int | None = None,
    associative: bool = False,
    lengths: Sequence[int] | None = None,
    segments: Any = None,
    return_state: bool = False,
) -> Any:
    """Outputs y_t = c_t·h_t of the states h_t = a_t h_{t−1} + b_t x_t, in memory for about √length states.

    Args:
        a: decays, (batch, length, channels, state), diagonal as in Mamba 1; or (batch, length, heads), one number per
            head, as in Mamba 2. With `delta`: (channels, state) or (heads,), and the decays are exp(delta·a).
        b, c: (batch, length, state) in the first form; (batch, length, groups, state) in the second, where `groups`
            divides the heads. float64, float32 or bfloat16, as x; sums are float32 at least.
        x: (batch, length, channels), or (batch, length, heads, width).
        delta: steps, (batch, length, channels) or (batch, length, heads). The recurrence is then
            h_t = exp(delta_t·a) h_{t−1} + b_t delta_t x_t: delta multiplies x too, so do not multiply x or b by it
            yourself. The decays are computed chunk by chunk, so that all decays are never in memory at once.
        state: the state before the first token, (batch, channels, state) or (batch, heads, width, state); None: zeros.
        chunk: tokens of a chunk, at least 1, which need not divide the length; None: about √length.
        associative: whether a chunk's states are computed as a parallel prefix, and not one after another: this takes
            about 2·log₂(chunk) steps and twice the work.
        lengths: tokens of the sequences that are packed into `length`. Each sequence starts from the state zero, but
            the first starts from `state`.
        segments: in place of `lengths`, integers (length,) or (batch, length): a sequence begins where they change.
        return_state: whether the state after the last token is returned too.

    Returns:
        y, shaped like x and in its dtype; with `return_state` (y, state), the state in at least float32. `state`
        belongs to the first packed sequence, the one returned to the last. jit, vmap and a further derivative work;
        forward mode does not.

    Raises:
        UsageError: shapes, dtypes, lengths or options do not fit; the message says what is legal.

    Source:
        Adjoint sharding (2024), Prop. 2, with the sum over later tokens carried out first; Gu and Dao, Mamba (2023),
        Eq. 2; Dao and Gu, Transformers are SSMs (2024), Eq. 1. Chunks are beyond the papers.

    Stores:
        Between the passes the inputs and ⌈length/chunk⌉ states. Each pass also holds the states of one chunk, some of
        them three times. With a chunk of √length both grow like √length.

    Computes:
        Every state twice, and the reverse recurrence once. FLOPs grow linearly with the length.

    Not for:
        Heads with scalar decays on accelerators at full speed: products of masked matrices, which hold no states inside
        a chunk, use matrix units there. Not for a and b that do not depend on the token: use a convolution.
    """
    operands = {"a": a, "b": b, "c": c, "x": x, "state": state, "delta": delta}
    for name, leaf in operands.items():
        if leaf is not None or name in "abcx":
            check_arrays(
                name, (leaf,), "an array of JAX or NumPy", lambda x: hasattr(x, "shape") and hasattr(x, "dtype")
            )
    given = how(
        {name: None if leaf is None else tuple(leaf.shape) for name, leaf in operands.items()},
        {name: str(leaf.dtype) for name, leaf in operands.items() if leaf is not None},
        chunk,
        associative,
    )
    first = _first(x, lengths, segments)
    tokens = {"b": b, "c": c, "x": x, **({"a": a} if delta is None else {"delta": delta})}
    wide = jnp.promote_types(x.dtype, jnp.float32)
    start = jnp.zeros((x.shape[0], *x.shape[2:], b.shape[-1]), wide) if state is None else state.astype(wide)
    y, after = _scan(given, tokens, None if delta is None else a.astype(wide), start, first)
    return (y, after) if return_state else y


def _first(x: Any, lengths: Sequence[int] | None, segments: Any) -> Any:
    """(length, batch): whether a packed sequence other than the first begins at a token; None: none are packed."""
    from gradgate.references.errors import UsageError

    if lengths is not None and segments is not None:
        raise UsageError("lengths and segments say the same thing: give one of them")
    if lengths is not None:
        begins = jnp.asarray(starts_of(lengths, x.shape[1]), bool)
        return jnp.broadcast_to(begins[:, None], (x.shape[1], x.shape[0]))
    if segments is None:
        return None
    segments = jnp.asarray(segments)
    check_segments(tuple(segments.shape), str(segments.dtype), tuple(x.shape))
    rows = jnp.broadcast_to(segments, x.shape[:2]).T
    return jnp.concatenate([jnp.zeros_like(rows[:1], bool), rows[1:] != rows[:-1]])


def _exactly(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` in full precision; by default some accelerators round factors of float32 products to bfloat16."""

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        with jax.default_matmul_precision("highest"):
            return function(*args)

    return call


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _scan(given: How, tokens: dict[str, Any], shared: Any, start: Any, first: Any) -> tuple[Any, Any]:
    return _forward(given, tokens, shared, start, first)[0]


def _repeated(array: Any, times: int) -> Any:
    return jnp.repeat(array, times, axis=-2)


# XLA's CPU compiler makes sums over axes of broadcast factors into kernels of a library for neural networks, which take
# twice the time of the rest of the backward pass. The transposes of this product are products of matrices.
def _scaled(delta: Any, a: Any) -> Any:
    """delta·a for all tokens: (c, B, channels, N) or (c, B, heads)."""
    return jnp.einsum("tbc,cn->tbcn" if a.ndim == 2 else "tbh,h->tbh", delta, a)


def _split(given: How, tree: Any, axis: int) -> tuple[Any, Any]:
    """Full chunks (chunks, c, batch, …), and the rest (c', batch, …), of leaves whose time axis is `axis`."""

    def full(leaf: Any) -> Any:
        leaf = jnp.moveaxis(leaf, axis, 0)
        count = len(leaf) // given.chunk
        return leaf[: count * given.chunk].reshape(count, given.chunk, *leaf.shape[1:])

    def rest(leaf: Any) -> Any:
        leaf = jnp.moveaxis(leaf, axis, 0)
        return leaf[len(leaf) // given.chunk * given.chunk :]

    return jax.tree.map(full, tree), jax.tree.map(rest, tree)


def _joined(full: Any, rest: Any) -> Any:
    """The inverse of `_split` for a leaf with the batch in front."""
    leaf = full.reshape(full.shape[0] * full.shape[1], *full.shape[2:])
    return jnp.moveaxis(leaf if rest is None else jnp.concatenate([leaf, rest]), 0, 1)


def _wide(tokens: dict[str, Any], start: Any) -> dict[str, Any]:
    """A chunk's tokens in the dtype of the state."""
    return {name: leaf.astype(start.dtype) for name, leaf in tokens.items()}


def _advance(given: How, decay: Any, drive: Any, start: Any) -> Any:
    """h_t = decay_t h_{t−1} + drive_t: all states of a chunk."""
    if given.associative:
        return _prefix(decay, drive.at[0].add(decay[0] * start))

    def step(h: Any, xs: tuple[Any, Any]) -> tuple[Any, Any]:
        h = xs[0] * h + xs[1]
        return h, h

    return jax.lax.scan(step, start, (decay, drive))[1]


def _retreat(given: How, decay: Any, direct: Any, carry: Any) -> tuple[Any, Any]:
    """μ_t = direct_t + decay_{t+1} μ_{t+1} for all tokens of a chunk, and decay·μ of its first token.

    Args:
        given: how the call is computed.
        decay: the decays of the chunk's tokens.
        direct: the cotangents of its states that come from its own outputs.
        carry: decay·μ of the first token after the chunk.
    """
    if given.associative:
        later = jnp.concatenate([decay[1:], jnp.zeros_like(decay[:1])])
        mus = _prefix(later, direct.at[-1].add(carry), reverse=True)
        return mus, decay[0] * mus[0]

    def step(carry: Any, xs: tuple[Any, Any]) -> tuple[Any, Any]:
        mu = xs[1] + carry
        return xs[0] * mu, mu

    carry, mus = jax.lax.scan(step, carry, (decay, direct), reverse=True)
    return mus, carry


def _prefix(decay: Any, drive: Any, reverse: bool = False) -> Any:
    """States as the parallel prefix of the affine maps h -> decay h + drive."""

    def after(first: tuple[Any, Any], then: tuple[Any, Any]) -> tuple[Any, Any]:
        return first[0] * then[0], then[0] * first[1] + then[1]

    return jax.lax.associative_scan(after, (decay, drive), reverse=reverse)[1]


@_exactly
def _forward(given: How, tokens: dict[str, Any], shared: Any, start: Any, first: Any) -> tuple[Any, tuple[Any, ...]]:
    dtype = tokens["x"].dtype

    def chunk(start: Any, xs: tuple[dict[str, Any], Any]) -> tuple[Any, tuple[Any, Any]]:
        own, first = _wide(xs[0], start), xs[1]
        decay, drive = prepared(jnp, given, own, shared, first, _repeated, _scaled)
        h = _advance(given, decay, drive, start)
        return h[-1], (read(jnp, given, h, own["c"], _repeated).astype(dtype), start)

    full, rest = _split(given, tokens, 1)
    full_first, rest_first = _split(given, first, 0)
    state, (ys, starts) = jax.lax.scan(chunk, start, (full, full_first))
    if not rest["x"].shape[0]:
        return (_joined(ys, None), state), (tokens, shared, starts, state, first)
    after, (y, _) = chunk(state, (rest, rest_first))
    return (_joined(ys, y), after), (tokens, shared, starts, state, first)


@_exactly
def _backward(given: How, kept: tuple[Any, ...], cotangents: tuple[Any, Any]) -> tuple[Any, ...]:
    tokens, shared, starts, last, first = kept
    full, rest = _split(given, tokens, 1)
    full_first, rest_first = _split(given, first, 0)
    full_g, rest_g = _split(given, cotangents[0], 1)
    carry = cotangents[1]
    total, tail = jax.tree.map(jnp.zeros_like, shared), dict.fromkeys(tokens)
    if rest["x"].shape[0]:
        carry, total, tail = _pull_chunk(given, rest, shared, last, rest_first, rest_g, carry)

    def back(carry: tuple[Any, Any], xs: tuple[Any, ...]) -> tuple[tuple[Any, Any], Any]:
        mu, total = carry
        mu, part, pulled = _pull_chunk(given, xs[0], shared, xs[1], xs[2], xs[3], mu)
        return (mu, jax.tree.map(jnp.add, total, part)), pulled

    (carry, total), pulled = jax.lax.scan(back, (carry, total), (full, starts, full_first, full_g), reverse=True)
    return {name: _joined(leaf, tail[name]) for name, leaf in pulled.items()}, total, carry, None


def _pull_chunk(
    given: How, tokens: dict[str, Any], shared: Any, start: Any, first: Any, g: Any, carry: Any
) -> tuple[Any, Any, dict[str, Any]]:
    """Run one chunk forward once more, and back.

    Args:
        given: how the call is computed.
        tokens, shared, first: the inputs.
        start: the state before the chunk.
        g: cotangent of y.
        carry: cotangent of the state after the chunk.

    Returns:
        The cotangents of `start`, of `shared`, and of the tokens.
    """
    prepare: Callable[..., Any] = lambda tokens, shared: prepared(  # noqa: E731 - differentiated at once
        jnp, given, _wide(tokens, start), shared, first, _repeated, _scaled
    )
    (decay, drive), pull = jax.vjp(prepare, {name: leaf for name, leaf in tokens.items() if name != "c"}, shared)
    h = _advance(given, decay, drive, start)
    _, pull_read = jax.vjp(lambda h, c: read(jnp, given, h, c.astype(h.dtype), _repeated), h, tokens["c"])
    direct, of_c = pull_read(g.astype(h.dtype))
    mus, carry = _retreat(given, decay, direct, carry)
    products = mus * jnp.concatenate([start[None], h[:-1]])
    alone = tuple(axis for axis, size in enumerate(decay.shape) if size == 1)
    of_tokens, of_shared = pull((products.sum(alone, keepdims=True), mus))
    return carry, of_shared, {**of_tokens, "c": of_c}


_scan.defvjp(_forward, _backward)
