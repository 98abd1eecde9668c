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
from gradgate.references.performer.operands import (
    CHUNK,
    How,
    check_features,
    check_mask,
    check_projection_size,
    check_state,
    how,
)
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
    mask: Any = None,
    state: Any = None,
    return_state: bool = False,
) -> Any:
    """Causal linear attention that keeps no prefix sum between its forward and its backward pass.

    y_l = Σ_{j≤l} (g(q_l)·g(k_j)) v_j / Σ_{j≤l} g(q_l)·g(k_j), in chunks of tokens.

    Args:
        q, k: (..., length, features), float64, float32 or bfloat16, such as (batch, heads, length, width).
        v: (..., length, values), with the leading sizes of k and the dtype of q. k and v may have fewer heads than q,
            (..., heads, length, …), whose number divides that of q: as many heads of q, one after another, share one,
            as in grouped attention.
        feature_map: g: ``identity``; ``relu``; ``elu``, which is elu(x) + 1; ``favor``, positive random features with
            E[g(q)·g(k)] = exp(q·k/√features); or a function (..., features) -> (..., M) of one token at a time.
        projection: (M, features), for ``favor`` only, such as `favor_projection` draws. It has a gradient too.
        chunk: tokens of a chunk, at least 1; it need not divide the length. It changes memory and work, but no value.
        normalise: whether to divide by the sum of weights. A sum of at most 1e-18 in absolute value counts as 1.
            Use False with features of both signs, such as ``identity`` has.
        causal: must be True. Bidirectional attention has no prefix sums; the error message says what to use.
        mask: booleans (..., length), False where a token is padding, with leading sizes 1 or those of k. Such a token
            changes nothing, whatever its numbers are: its y and its gradients are 0. None: all tokens count.
        state: the state before the first token: the pair (S, z), S = Σ g(k_j) v_jᵀ (..., M, values) and z = Σ g(k_j)
            (..., M), with the leading sizes of k; without `normalise` S alone; None: zeros. Of any floating dtype; sums
            are float32 at least.
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
        state per chunk, ⌈length/chunk⌉·M·(values + 1) numbers per head of k, float32 at least, and one chunk's chunk²
        or chunk·M·(values + 1) numbers, whichever are fewer. If `feature_map` is a function, its features are kept
        too: 2·length·M numbers. In bfloat16 only q, k and v are kept. A given `state` is kept in one copy; the
        returned one is not kept.

    Computes:
        Four products of length·chunk·width or length·M·values numbers forward, and ten or eleven backward, two
        more in bfloat16, where the outputs are computed again in float32. FLOPs grow linearly with the length.

    Not for:
        Short sequences, of less than about M tokens, where the matrix of all weights is small: use softmax attention,
        or plain autodiff. Not for generating token by token: a call for each token, with `state`,
        does more work than one step of the recurrence.
    """
    check_arrays("q k v", (q, k, v), "an array of JAX or NumPy", _is_array)
    shapes = q.shape, k.shape, v.shape
    given = how(shapes, _dtypes(q, k, v), feature_map, _shape(projection), chunk, normalise, causal)
    if mask is not None:
        check_mask(mask, k.shape)
        mask = jnp.asarray(mask)
    if callable(feature_map):
        there = _tokens(given, mask, k)
        q, k = (feature_map(_present(x, m)) for x, m in zip((q, k), there, strict=True))
        check_features(shapes, (q, k), _is_array)
        shapes = q.shape, k.shape, v.shape
        given = how(shapes, _dtypes(q, k, v), "identity", _shape(projection), chunk, normalise, causal)
    dtype = jnp.promote_types(q.dtype, jnp.float32)
    projection = None if projection is None else jnp.asarray(projection, dtype)
    start = None if state is None else _joined(given, state, k, v, projection)
    y, after = _attend(given, q, k, v, mask, projection, start)
    return (y, _parted(given, after, v)) if return_state else y


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


def _dtypes(*arrays: Any) -> tuple[str, ...]:
    return tuple(str(x.dtype) for x in arrays)


def _shape(projection: Any) -> tuple[int, ...] | None:
    return None if projection is None else tuple(jnp.shape(projection))


def _features(q: Any, projection: Any) -> int:
    """M."""
    return int(q.shape[-1] if projection is None else projection.shape[0])


def _joined(given: How, state: Any, k: Any, v: Any, projection: Any) -> Any:
    """The user's state as one array (batch, values + 1 or values, M), in at least float32."""
    S, *z = check_state(state, given.normalise, k.shape[:-2], _features(k, projection), v.shape[-1])
    dtype = jnp.promote_types(k.dtype, jnp.float32)
    rows = [jnp.asarray(x, dtype) for x in (jnp.swapaxes(S, -1, -2), *(x[..., None, :] for x in z))]
    joined = jnp.concatenate(rows, axis=-2)
    return joined.reshape(math.prod(k.shape[:-2]), *joined.shape[-2:])


def _parted(given: How, after: Any, v: Any) -> Any:
    """The inverse of `_joined`."""
    after = after.reshape(*v.shape[:-2], *after.shape[1:])
    S = jnp.swapaxes(after[..., : v.shape[-1], :], -1, -2)
    return (S, after[..., -1, :]) if given.normalise else S


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(given: How, q: Any, k: Any, v: Any, mask: Any, projection: Any, start: Any) -> tuple[Any, Any]:
    return _forward(given, q, k, v, mask, projection, start)[0]


def _tokens(given: How, mask: Any, k: Any) -> tuple[Any, Any]:
    """The mask for the tokens of q, and that for those of k."""
    if mask is None:
        return None, None
    mask = jnp.broadcast_to(mask, k.shape[:-1])
    return (mask if given.group == 1 else jnp.repeat(mask, given.group, -2)), mask


def _present(x: Any, there: Any) -> Any:
    """`x` (…, d) with zeros for the tokens that are padding; `there` has no last axis."""
    return x if there is None else jnp.where(there[..., None], x, jnp.zeros((), x.dtype))


# Functions of a chunk take one sequence, (c, d), and `jax.vmap` makes a batch of it. The batch is then the first axis,
# and XLA transposes nothing before it multiplies. Where heads of q share keys, q has one axis more, (group, c, d).
def _prepared(given: How, q: Any, k: Any, v: Any, projection: Any, there: Any) -> tuple[Any, Any, Any]:
    """A chunk of q, k and v, in at least float32: features, and v with a last column of ones if it is needed.

    Only the first `there` tokens exist, all if it is None. The others get zeros in v, so they are in no state. With a
    mask `there` has a boolean for each token, and padding gets zeros in q and k too, whatever its numbers are.
    """
    masked = there if getattr(there, "ndim", 0) else None
    q, k, v = _present(wide(q), masked), _present(wide(k), masked), wide(v)
    made = (mapped(jnp, given.feature_map, x, projection) for x in (q, k))
    v = jnp.pad(v, ((0, 0), (0, int(given.normalise))), constant_values=1)
    if masked is not None:
        return *made, _present(v, masked)
    return *made, v if there is None else v * (jnp.arange(len(v)) < there)[:, None]


def _there(given: How, mask: Any, k: Any) -> Any:
    """How many tokens of each chunk exist, (chunks,), or which, (chunks, batch, size); None: all of all chunks."""
    if mask is not None:
        return _chunks(jnp.broadcast_to(mask, k.shape[:-1])[..., None], given.chunk)[..., 0]
    length = k.shape[-2]
    if length % given.chunk == 0:
        return None
    return jnp.minimum(given.chunk, length - jnp.arange(0, length, given.chunk))


def _heads(given: How, function: Any, shared: tuple[int, ...], out: Any = 0) -> Any:
    """`function` of the chunk of one head, for all heads of q that share keys; the arguments at `shared` are shared."""
    return function if given.group == 1 else _batch(function, *shared, out=out)


def _batch(function: Any, *shared: int, out: Any = 0) -> Any:
    """`function` vectorised over a batch; the arguments at the places `shared` have no batch axis."""
    count = len(inspect.signature(function).parameters)
    return jax.vmap(function, tuple(None if place in shared else 0 for place in range(count)), out)


def _chunks(x: Any, size: int, group: int = 1) -> Any:
    """(…, length, d) -> (chunks, batch, size, d), or (chunks, batch, group, size, d), filled up with zeros."""
    heads = () if group == 1 else (group,)
    x = x.reshape(math.prod(x.shape[:-2]) // group, *heads, *x.shape[-2:])
    x = jnp.pad(x, (*((0, 0),) * (x.ndim - 2), (0, -x.shape[-2] % size), (0, 0)))
    return jnp.moveaxis(x.reshape(*x.shape[:-2], x.shape[-2] // size, size, x.shape[-1]), -3, 0)


def _whole(x: Any, shape: tuple[int, ...]) -> Any:
    """The inverse of `_chunks`: (…, length, d), with the leading sizes and the length from `shape`."""
    x = jnp.moveaxis(x, 0, -3)
    x = x.reshape(*x.shape[:-3], x.shape[-3] * x.shape[-2], x.shape[-1])
    return x[..., : shape[-1], :].reshape(*shape, x.shape[-1])


def _zeros(given: How, k: Any, v: Any, projection: Any) -> Any:
    """The states before the first token if none is given, (batch, values + 1 or values, M)."""
    dtype = jnp.promote_types(k.dtype, jnp.float32)
    return jnp.zeros((math.prod(k.shape[:-2]), v.shape[-1] + given.normalise, _features(k, projection)), dtype)


# y = N/D. For the cotangent g of y, that of N is g/D and that of D is −(g·y)/D. So only y and D are kept from the
# forward pass. A y of 16 bits is too coarse: where N and D cancel in the gradient of q, its rounding remains. It is
# then not kept, and the backward pass computes N and D again.
def _forward(
    given: How, q: Any, k: Any, v: Any, mask: Any, projection: Any, start: Any
) -> tuple[tuple[Any, Any], tuple[Any, ...]]:
    width, run = v.shape[-1], _run(given)

    def chunk(state: Any, q: Any, k: Any, v: Any, there: Any) -> tuple[Any, tuple[Any, Any]]:
        out, state = run(state, *_prepared(given, q, k, v, projection, there))
        out = _present(out, None if mask is None else there)
        N, D = out[..., :width], out[..., width:]
        return state, ((N / _safe(D) if given.normalise else N).astype(v.dtype), D)

    chunks = *_operands(given, q, k, v), _there(given, mask, k)
    before = _zeros(given, k, v, projection) if start is None else start
    rule = _batch(chunk, *_shared(mask))
    after, found = jax.lax.scan(lambda state, xs: rule(state, *xs), before, chunks)
    y, D = (_whole(x, q.shape[:-1]) for x in found)
    kept = (None, None) if _again(given, v) else (y, D)
    return (y, after), (start, q, k, v, mask, projection, *kept)


def _run(given: How) -> Any:
    """`attended` for all heads of q that share keys: the state is the same for all."""

    def run(state: Any, q: Any, k: Any, v: Any) -> Any:
        return attended(given.form, state, q, k, v)

    return _heads(given, run, (0, 2, 3), (0, None))


def _operands(given: How, q: Any, k: Any, v: Any) -> tuple[Any, Any, Any]:
    return _chunks(q, given.chunk, given.group), _chunks(k, given.chunk), _chunks(v, given.chunk)


def _shared(mask: Any) -> tuple[int, ...]:
    """The place of what says which tokens of a chunk exist, if it is the same for the whole batch."""
    return (4,) if mask is None else ()


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
    start, q, k, v, mask, projection, y, D = kept
    g, of_after = wide(cotangents[0]), cotangents[1]
    if given.normalise and y is not None:
        g = _of_sums(g, y, D)
    chunks = *_operands(given, q, k, v), _there(given, mask, k)

    def again(state: Any, q: Any, k: Any, v: Any, there: Any) -> tuple[Any, Any]:
        _, key, value = _prepared(given, q, k, v, projection, there)
        return state + summed(key, value), state

    first = _zeros(given, k, v, projection) if start is None else start
    again_all = _batch(again, *_shared(mask))
    _, befores = jax.lax.scan(lambda state, xs: again_all(state, *xs), first, chunks)
    rule = _batch(_heads(given, pull_masked if given.form == "matrix" else pull_block, (0, 4, 5)))
    prepare = _batch(functools.partial(_prepared, given), 3, *_shared(mask))
    run, sums = _batch(_run(given)), _batch(_heads(given, summed, ()))

    def back(carry: Any, xs: Any) -> tuple[Any, Any]:
        after, total = carry
        state, g, *own, there = xs
        prepared, pull = jax.vjp(lambda *own: prepare(*own, there), *own, projection)
        if _again(given, v):
            out, _ = run(state, *prepared)
            N, D = out[..., : v.shape[-1]], out[..., v.shape[-1] :]
            g = _of_sums(g, N / _safe(D), D)
        if mask is not None:
            g = _present(g, there if given.group == 1 else there[:, None])
        before = after + sums(prepared[0], g)
        of_q, *of_held = rule(state, after, before, *prepared, g)
        *pulled, part = pull((of_q, *(_over_heads(given, x) for x in of_held)))
        return (before, jax.tree.map(jnp.add, total, part)), tuple(pulled)

    carry = _spread(given, of_after), jax.tree.map(jnp.zeros_like, projection)
    xs = befores, _chunks(g, given.chunk, given.group), *chunks
    (of_start, total), pulled = jax.lax.scan(back, carry, xs, reverse=True)
    of_own = (_whole(x, like.shape[:-1]) for x, like in zip(pulled, (q, k, v), strict=True))
    return *of_own, None, total, None if start is None else _over_heads(given, of_start)


def _spread(given: How, after: Any) -> Any:
    """The cotangent of the last state as one for each of the heads that share it, whose sum it is."""
    if given.group == 1:
        return after
    return jnp.pad(after[:, None], ((0, 0), (0, given.group - 1), (0, 0), (0, 0)))


def _over_heads(given: How, x: Any) -> Any:
    """The sum over the heads that share keys."""
    return x if given.group == 1 else x.sum(1)


_attend.defvjp(_forward, _backward)
