"""Causal linear attention as a function of queries, keys and values, in JAX.

The backward pass runs the sums of the chunks forward once more and takes the chunks from the last to the first. It
applies the rules of `attention`, which the methods of the paper apply too. States and sums are float32 at least.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from gradgate.references.errors import check_arrays
from gradgate.references.performer.features import mapped, orthogonal_rows
from gradgate.references.performer.in_jax.attention import attended, pull_block, pull_masked, summed, wide
from gradgate.references.performer.operands import CHUNK, How, check_features, check_projection_size, check_state, how
from gradgate.references.performer.problem import FLOOR


def linear_attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    feature_map: str | Callable[[Any], Any] = "elu",
    projection: Any = None,
    chunk: int = CHUNK,
    normalise: bool = True,
    causal: bool = True,
    state: Any = None,
    return_state: bool = False,
) -> Any:
    """Causal linear attention that keeps no prefix sum between its forward and its backward pass.

    y_l = Σ_{j≤l} (g(q_l)·g(k_j)) v_j / Σ_{j≤l} g(q_l)·g(k_j), in chunks of tokens.

    Args:
        q, k: (..., length, features), float64, float32 or bfloat16, such as (batch, heads, length, width).
        v: (..., length, values), with the leading sizes and the dtype of q.
        feature_map: g: ``identity``; ``relu``; ``elu``, which is elu(x) + 1; ``favor``, positive random features with
            E[g(q)·g(k)] = exp(q·k/√features); or a function (..., features) -> (..., M) of one token at a time.
        projection: (M, features), for ``favor`` only, such as `favor_projection` draws. It has a gradient too.
        chunk: tokens of a chunk, at least 1; it need not divide the length. It changes memory and work, but no value.
        normalise: whether to divide by the sum of weights. A sum of at most 1e-18 in absolute value counts as 1.
            Use False with features of both signs, such as ``identity`` has.
        causal: must be True. Bidirectional attention has no prefix sums; the error message says what to use.
        state: the state before the first token: the pair (S, z), S = Σ g(k_j) v_jᵀ (..., M, values) and z = Σ g(k_j)
            (..., M); without `normalise` S alone; None: zeros. Of any floating dtype; sums are float32 at least.
        return_state: whether the state after the last token is returned too.

    Returns:
        y, (..., length, values), in the dtype of v; with `return_state` (y, state), the state in the form of `state`
        and in at least float32. jit, vmap and a further derivative work; forward mode does not, as for every function
        with a custom VJP.

    Raises:
        UsageError: shapes, dtypes or options do not fit, or `causal` is not True; the message says what is legal.

    Source:
        SLiM Performers (2020), Eq. 2–4 and App. B, corrected. Unlike the paper, the backward pass adds up again
        instead of subtracting later terms: the work is the same, and no digit is lost.

    Stores:
        Between the passes q, k, v, y and one sum of weights per token, but no prefix sum. The backward pass holds one
        state per chunk, ⌈length/chunk⌉·M·(values + 1) numbers per head, float32 at least, and one chunk's chunk² or
        chunk·M·(values + 1) numbers, whichever are fewer. If `feature_map` is a function, its features are kept too:
        2·length·M numbers. In bfloat16 only q, k and v are kept. A given `state` is kept in one copy; the returned one
        is not kept.

    Computes:
        Four products of length·chunk·width or length·M·values numbers forward, and ten or eleven backward, two
        more in bfloat16, where the outputs are computed again in float32. FLOPs grow linearly with the length.

    Not for:
        Short sequences, of less than about M tokens, where the matrix of all weights is small: use softmax attention,
        or plain autodiff. Not for generating token by token: a call for each token, with `state`,
        does more work than one step of the recurrence.
    """
    check_arrays("q k v", (q, k, v), "an array of JAX or NumPy", _is_array)
    if callable(feature_map):
        shapes = (q.shape, k.shape, v.shape)
        how(shapes, _dtypes(q, k, v), feature_map, _shape(projection), chunk, normalise, causal)
        q, k = feature_map(q), feature_map(k)
        check_features(shapes[0], (q, k), _is_array)
    given = how(
        (q.shape, k.shape, v.shape), _dtypes(q, k, v), _name(feature_map), _shape(projection), chunk, normalise, causal
    )
    dtype = jnp.promote_types(q.dtype, jnp.float32)
    projection = None if projection is None else jnp.asarray(projection, dtype)
    start = None if state is None else _joined(given, state, q, v, projection)
    y, after = _attend(given, q, k, v, projection, start)
    return (y, _parted(given, after, q, v)) if return_state else y


def favor_projection(key: Any, features: int, width: int) -> Any:
    """A projection for ``feature_map="favor"``: normal rows, orthogonal within each block of `width`.

    Args:
        key: a key of `jax.random`.
        features: M, rows, at least 1.
        width: columns: the last size of q and k.

    Returns:
        (features, width), float32.

    Raises:
        UsageError: a size is not a whole number of at least 1.

    Source:
        Choromanski et al. (2020), §2.4.
    """
    check_projection_size(features, width)
    return orthogonal_rows(jax.random.normal(key, (features, width)), "jax", "float32")


def _is_array(x: Any) -> bool:
    return hasattr(x, "shape") and hasattr(x, "dtype")


def _name(feature_map: str | Callable[..., Any]) -> str:
    return "identity" if callable(feature_map) else feature_map


def _dtypes(*arrays: Any) -> tuple[str, ...]:
    return tuple(str(x.dtype) for x in arrays)


def _shape(projection: Any) -> tuple[int, ...] | None:
    return None if projection is None else tuple(jnp.shape(projection))


def _features(q: Any, projection: Any) -> int:
    """M."""
    return int(q.shape[-1] if projection is None else projection.shape[0])


def _joined(given: How, state: Any, q: Any, v: Any, projection: Any) -> Any:
    """The user's state as one array (batch, values + 1 or values, M), in at least float32."""
    S, *z = check_state(state, given.normalise, q.shape[:-2], _features(q, projection), v.shape[-1])
    dtype = jnp.promote_types(q.dtype, jnp.float32)
    rows = [jnp.asarray(x, dtype) for x in (jnp.swapaxes(S, -1, -2), *(x[..., None, :] for x in z))]
    joined = jnp.concatenate(rows, axis=-2)
    return joined.reshape(math.prod(q.shape[:-2]), *joined.shape[-2:])


def _parted(given: How, after: Any, q: Any, v: Any) -> Any:
    """The inverse of `_joined`."""
    after = after.reshape(*q.shape[:-2], *after.shape[1:])
    S = jnp.swapaxes(after[..., : v.shape[-1], :], -1, -2)
    return (S, after[..., -1, :]) if given.normalise else S


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(given: How, q: Any, k: Any, v: Any, projection: Any, start: Any) -> tuple[Any, Any]:
    return _forward(given, q, k, v, projection, start)[0]


# Functions of a chunk take one sequence, (c, d), and `jax.vmap` makes a batch of it. The batch is then the first axis,
# and XLA transposes nothing before it multiplies.
def _prepared(given: How, q: Any, k: Any, v: Any, projection: Any, there: Any) -> tuple[Any, Any, Any]:
    """A chunk of q, k and v, in at least float32: features, and v with a last column of ones if it is needed.

    Only the first `there` tokens exist, all if it is None. The others get zeros in v, so they are in no state.
    """
    q, k, v = wide(q), wide(k), wide(v)
    made = (mapped(jnp, given.feature_map, x, projection) for x in (q, k))
    v = jnp.pad(v, ((0, 0), (0, int(given.normalise))), constant_values=1)
    return *made, v if there is None else v * (jnp.arange(len(v)) < there)[:, None]


def _there(given: How, length: int) -> Any:
    """How many tokens of each chunk exist, (chunks,); None: all tokens of all chunks."""
    if length % given.chunk == 0:
        return None
    return jnp.minimum(given.chunk, length - jnp.arange(0, length, given.chunk))


def _batch(function: Any, *shared: int) -> Any:
    """`function` vectorised over a batch; the arguments at the places `shared` have no batch axis."""
    count = len(inspect.signature(function).parameters)
    return jax.vmap(function, tuple(None if place in shared else 0 for place in range(count)))


def _chunks(x: Any, size: int) -> Any:
    """(…, length, d) -> (chunks, batch, size, d), filled up with zeros."""
    x = x.reshape(math.prod(x.shape[:-2]), *x.shape[-2:])
    x = jnp.pad(x, ((0, 0), (0, -x.shape[1] % size), (0, 0)))
    return jnp.moveaxis(x.reshape(len(x), x.shape[1] // size, size, x.shape[2]), 1, 0)


def _whole(x: Any, shape: tuple[int, ...]) -> Any:
    """(chunks, batch, size, d) -> (…, length, d), with the leading sizes and the length from `shape`."""
    x = jnp.moveaxis(x, 0, 1)
    return x.reshape(x.shape[0], x.shape[1] * x.shape[2], x.shape[3])[:, : shape[-1]].reshape(*shape, x.shape[3])


def _zeros(given: How, q: Any, v: Any, projection: Any) -> Any:
    """The states before the first token if none is given, (batch, values + 1 or values, M)."""
    dtype = jnp.promote_types(q.dtype, jnp.float32)
    return jnp.zeros((math.prod(q.shape[:-2]), v.shape[-1] + given.normalise, _features(q, projection)), dtype)


# y = N/D. For the cotangent g of y, that of N is g/D and that of D is −(g·y)/D. So only y and D are kept from the
# forward pass. A y of 16 bits is too coarse: where N and D cancel in the gradient of q, its rounding remains. It is
# then not kept, and the backward pass computes N and D again.
def _forward(
    given: How, q: Any, k: Any, v: Any, projection: Any, start: Any
) -> tuple[tuple[Any, Any], tuple[Any, ...]]:
    width = v.shape[-1]

    def chunk(state: Any, q: Any, k: Any, v: Any, there: Any) -> tuple[Any, tuple[Any, Any]]:
        out, state = attended(given.form, state, *_prepared(given, q, k, v, projection, there))
        N, D = out[:, :width], out[:, width:]
        return state, ((N / _safe(D) if given.normalise else N).astype(v.dtype), D)

    chunks = *(_chunks(x, given.chunk) for x in (q, k, v)), _there(given, q.shape[-2])
    before = _zeros(given, q, v, projection) if start is None else start
    after, found = jax.lax.scan(lambda state, xs: _batch(chunk, 4)(state, *xs), before, chunks)
    y, D = (_whole(x, q.shape[:-1]) for x in found)
    kept = (None, None) if _again(given, v) else (y, D)
    return (y, after), (start, q, k, v, projection, *kept)


def _again(given: How, v: Any) -> bool:
    """Whether the backward pass computes N and D again, because y is coarser than the sums."""
    return given.normalise and v.dtype != jnp.promote_types(v.dtype, jnp.float32)


def _of_sums(g: Any, y: Any, D: Any) -> Any:
    """The cotangents of N and D, side by side, from g, that of y."""
    g = g / _safe(D)
    of_D = jnp.where(jnp.abs(D) > FLOOR, -(g * wide(y)).sum(-1, keepdims=True), jnp.zeros_like(D))
    return jnp.concatenate([g, of_D], axis=-1)


def _safe(D: Any) -> Any:
    """Denominators, with 1 in place of those that count as zero."""
    return jnp.where(jnp.abs(D) > FLOOR, D, jnp.ones_like(D))


def _backward(given: How, kept: tuple[Any, ...], cotangents: tuple[Any, Any]) -> tuple[Any, ...]:
    start, q, k, v, projection, y, D = kept
    g, of_after = wide(cotangents[0]), cotangents[1]
    if given.normalise and y is not None:
        g = _of_sums(g, y, D)
    chunks = *(_chunks(x, given.chunk) for x in (q, k, v)), _there(given, q.shape[-2])

    def again(state: Any, q: Any, k: Any, v: Any, there: Any) -> tuple[Any, Any]:
        _, key, value = _prepared(given, q, k, v, projection, there)
        return state + summed(key, value), state

    first = _zeros(given, q, v, projection) if start is None else start
    _, befores = jax.lax.scan(lambda state, xs: _batch(again, 4)(state, *xs), first, chunks)
    rule = _batch(pull_masked if given.form == "matrix" else pull_block)
    prepare = _batch(functools.partial(_prepared, given), 3, 4)
    run = functools.partial(attended, given.form)

    def back(carry: Any, xs: Any) -> tuple[Any, Any]:
        after, total = carry
        state, g, *own, there = xs
        prepared, pull = jax.vjp(lambda *own: prepare(*own, there), *own, projection)
        if _again(given, v):
            out, _ = _batch(run)(state, *prepared)
            N, D = out[..., : v.shape[-1]], out[..., v.shape[-1] :]
            g = _of_sums(g, N / _safe(D), D)
        before = after + _batch(summed)(prepared[0], g)
        *pulled, part = pull(rule(state, after, before, *prepared, g))
        return (before, jax.tree.map(jnp.add, total, part)), tuple(pulled)

    carry = of_after, jax.tree.map(jnp.zeros_like, projection)
    (of_start, total), pulled = jax.lax.scan(back, carry, (befores, _chunks(g, given.chunk), *chunks), reverse=True)
    return *(_whole(x, q.shape[:-1]) for x in pulled), total, None if start is None else of_start


_attend.defvjp(_forward, _backward)
