"""Linear attention over one slice in JAX: prefix sums, explicit, iterative or in blocks, or products of matrices.

Source: SLiM Performers, §2.1 and App. B.

In the words of the code, for one layer: Q̃ is ``q`` and K̃ is ``k`` (n, batch, k, M), V with a last column of ones is
``v`` (n, batch, k, d+1), so that R and S are one state U = Σ v kᵀ (batch, k, d+1, M), curR and curS one ``state``,
gradR and gradS one ``grad``, N and D one ``out`` = U q (n, batch, k, d+1). States and sums are float32 at least.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gradgate.references.performer.problem import outer
from gradgate.references.performer.slicing import PREFIX_SUMS, block_size


class Attention(NamedTuple):
    """One way to compute prefix sums inside a slice.

    Attributes:
        prepare: (q, k, v) -> the prepared values that the other two functions take.
        total: prepared values -> Σ v kᵀ over the slice (batch, k, d+1, M), which Eq. 19 subtracts.
        attend: (prepared values, the state before the slice) -> (out, the state after the slice) (Eq. 17, 4).
    """

    prepare: Callable[[Any, Any, Any], Any]
    total: Callable[[Any], Any]
    attend: Callable[[Any, Any], tuple[Any, Any]]


def explicit() -> Attention:
    """Every T and U of the slice, by a parallel prefix sum; stores 2·n·D1 numbers."""

    def prepare(q: Any, k: Any, v: Any) -> Any:
        return q, outer(v, k)

    def total(prepared: Any) -> Any:
        return wide(prepared[1]).sum(axis=0)

    def attend(prepared: Any, state: Any) -> tuple[Any, Any]:
        q, T = prepared
        U = state + jnp.cumsum(wide(T), axis=0)
        return contract(U, q), U[-1]

    return Attention(prepare, total, attend)


def blocked(
    prefix_sum: str, keep: bool = False, backward: Callable[..., Any] | None = None, size: int = 0
) -> Attention:
    """Attention with the T and U of one block at a time in memory.

    Args:
        prefix_sum: ``block``; ``iterative``: blocks of one token, the iteration of Katharopoulos et al. (2020); or
            ``matrix``: blocks without T and U, by masked products of matrices.
        keep: True: keep the state before each block, and do not rebuild it by subtraction.
        backward: the backward pass of a block; None: `pull_block`, or `pull_masked` of ``matrix``. An erratum gives
            another.
        size: c, tokens per block; 0: what `block_size` chooses.

    Returns:
        The attention.

    Source:
        App. B, Eq. 24 and 25, corrected; ``matrix`` is beyond the paper.

    Stores:
        q, k, v and the state after the slice; for a while one block's c·D1 numbers, or c²·k for ``matrix``; with
        `keep`, ⌈n/c⌉·D1 numbers, one state per block of the n tokens.

    Computes:
        Each block's sums once forward and once back; without `keep`, a subtraction per block.
    """
    run = _run_keeping if keep else _run

    @jax.custom_vjp
    def attend(prepared: Any, state: Any) -> tuple[Any, Any]:
        return _run(prefix_sum, size, prepared, state)[0]

    def forward(prepared: Any, state: Any) -> tuple[Any, Any]:
        result, states = run(prefix_sum, size, prepared, state)
        return result, (prepared, states)

    def pull(residuals: Any, cotangents: Any) -> tuple[Any, Any]:
        prepared, states = residuals
        g, grad = cotangents
        n = len(prepared[0])
        xs = jax.tree.map(lambda x: _blocks(wide(x), size or block_size(prefix_sum, n)), (*prepared, g))
        last, befores = (states[0], states) if keep else (states, None)
        own = pull_masked if prefix_sum == "matrix" else pull_block
        rule = functools.partial(_pulled, backward or own)
        (_, grad), pulled = jax.lax.scan(rule, (last, grad), (*xs, befores), reverse=True)
        back = (x.reshape(-1, *x.shape[2:])[:n].astype(like.dtype) for x, like in zip(pulled, prepared, strict=True))
        return tuple(back), grad

    attend.defvjp(forward, pull)
    return Attention(lambda q, k, v: (q, k, v), lambda prepared: summed(prepared[1], prepared[2]), attend)


def _run(prefix_sum: str, size: int, prepared: Any, state: Any) -> tuple[Any, Any]:
    """App. B, Eq. 24 and 25: ((out, state after the slice), the state from which the backward pass starts)."""
    (out, after), _ = _run_keeping(prefix_sum, size, prepared, state)
    return (out, after), after


def _run_keeping(prefix_sum: str, size: int, prepared: Any, state: Any) -> tuple[Any, Any]:
    """As `_run`, but the backward pass gets the state before each block."""
    n = len(prepared[0])

    def block(state: Any, xs: tuple[Any, Any, Any]) -> tuple[Any, Any]:
        out, after = attended(prefix_sum, state, *xs)
        return after, (out, state)

    blocks = jax.tree.map(lambda x: _blocks(wide(x), size or block_size(prefix_sum, n)), prepared)
    after, (out, states) = jax.lax.scan(block, state, blocks)
    return (out.reshape(-1, *out.shape[2:])[:n], after), states


def attended(prefix_sum: str, state: Any, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """One block.

    Args:
        prefix_sum: ``matrix``; anything else: with the block's T and U.
        state: U before the block, (…, d+1, M).
        q, k: (c, …, M).
        v: (c, …, d+1).

    Returns:
        out (c, …, d+1), and the state after the block.

    Source:
        App. B, Eq. 24 and 25; ``matrix`` is beyond the paper.
    """
    if prefix_sum == "matrix":
        return masked_product(scores(q, k), v) + queried(state, q), state + summed(k, v)
    U = state + jnp.cumsum(outer(v, k), axis=0)
    out = contract(U, q)
    return out, U[-1]


def _pulled(rule: Callable[..., Any], carry: tuple[Any, Any], xs: tuple[Any, ...]) -> tuple[tuple[Any, Any], Any]:
    """The state and its cotangent after a block -> before it, and the cotangents of the block's q, k, v."""
    state, grad = carry
    q, k, v, g, kept = xs
    state = state - summed(k, v) if kept is None else kept
    after, grad = grad, grad + summed(q, g)
    return (state, grad), rule(state, after, grad, q, k, v, g)


# out_l = U_l q_l with U_l = U_0 + Σ_{j≤l} v_j k_jᵀ, j in the block. With g_l the cotangent of out_l and G that of the
# state after the block, the state U_j + … receives from all later uses
#     G_j = G + Σ_{l≥j} g_l q_lᵀ,                 l = j included: out_j itself reads v_j k_jᵀ,
# so dq_l = U_lᵀ g_l, dv_j = G_j k_j, dk_j = G_jᵀ v_j, and G_1 goes to the block before. Row d of v is 1, and row d of
# out is D, so dk_j has the term gradS besides gradRᵀ V. App. B as printed (i) leaves gradS out of dk, (ii) takes U_0,
# the state without the block's prefix, in place of U_l for the numerator's part of dq, and (iii) takes G + Σ_{l>j} as
# the sum, without the position's own term: see `as_printed_jax`.
def pull_block(state: Any, after: Any, before: Any, q: Any, k: Any, v: Any, g: Any) -> tuple[Any, Any, Any]:
    """The cotangents of a block's q, k and v.

    Args:
        state: U before the block, (batch, k, d+1, M).
        after: cotangent of the state after the block, shaped like it.
        before: cotangent of the state before the block; only errata read it.
        q, k: (c, batch, k, M).
        v: (c, batch, k, d+1).
        g: cotangent of out, (c, batch, k, d+1).

    Returns:
        The three cotangents, each shaped like its primal.

    Source:
        App. B, corrected.

    Stores:
        A few times c·D1 numbers.
    """
    U = state + jnp.cumsum(outer(v, k), axis=0)
    suffix = after + reverse_cumsum(outer(g, q))
    return transposed(U, g), transposed(suffix, v), contract(suffix, k)  # of q, k, v


# out = tril(q kᵀ) v + q U_0ᵀ has the same sums in another order: the c² numbers q_l·k_j per head replace the c·D1
# of U. With s_lj = q_l·k_j and t_lj = g_l·v_j for j ≤ l, and G the cotangent of the state after the block,
#     dq = t k + g U_0,    dk = tᵀ q + v G,    dv = sᵀ g + k Gᵀ.
def pull_masked(state: Any, after: Any, before: Any, q: Any, k: Any, v: Any, g: Any) -> tuple[Any, Any, Any]:
    """`pull_block` by products of matrices: the same cotangents without T and U.

    Args:
        state: U before the block, (batch, k, d+1, M).
        after: cotangent of the state after the block, shaped like it.
        before: cotangent of the state before the block; not read.
        q, k: (c, batch, k, M).
        v: (c, batch, k, d+1).
        g: cotangent of out, (c, batch, k, d+1).

    Returns:
        The cotangents of q, k and v, each shaped like its primal.

    Source:
        Beyond the paper: Eq. 2 in its first form within a block, and in its second between blocks.

    Stores:
        2·c² numbers per head.
    """
    s, t = scores(q, k), scores(g, v)
    dq = masked_product(t, k) + turned(state, g)
    dk = masked_product(t.mT, q) + turned(after, v)
    return dq, dk, masked_product(s.mT, g) + queried(after, k)


def scores(q: Any, k: Any) -> Any:
    """(c, …, M) and (c, …, M) -> q_l·k_j where j ≤ l, else 0: (…, c, c)."""
    return jnp.tril(jnp.einsum("i...m,j...m->...ij", q, k))


def masked_product(weights: Any, v: Any) -> Any:
    """(…, c, c) and (c, …, D) -> (c, …, D): Σ_j weights_lj v_j."""
    return jnp.einsum("...ij,j...d->i...d", weights, v)


def queried(state: Any, q: Any) -> Any:
    """(…, d+1, M) and (c, …, M) -> (c, …, d+1): one state for all tokens."""
    return jnp.einsum("...dm,i...m->i...d", state, q)


def turned(state: Any, g: Any) -> Any:
    """(…, d+1, M) and (c, …, d+1) -> (c, …, M): the transpose of one state for all tokens."""
    return jnp.einsum("...dm,i...d->i...m", state, g)


def reverse_cumsum(x: Any) -> Any:
    """Sums over this position and all later ones, along axis 0."""
    return jax.lax.cumsum(x, axis=0, reverse=True)


def contract(U: Any, q: Any) -> Any:
    """(…, d+1, M) and (…, M) -> (…, d+1)."""
    return jnp.matmul(U, wide(q)[..., None])[..., 0]


def transposed(U: Any, g: Any) -> Any:
    """(…, d+1, M) and (…, d+1) -> (…, M): Uᵀ g."""
    return jnp.matmul(U.mT, g[..., None])[..., 0]


def summed(k: Any, v: Any) -> Any:
    """Σ v kᵀ over tokens: (n, …, M) and (n, …, d+1) -> (…, d+1, M), without n products in memory."""
    return jnp.einsum("n...d,n...m->...dm", wide(v), wide(k))


def wide(x: Any) -> Any:
    """`x` in at least float32."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def _blocks(x: Any, size: int) -> Any:
    """(n, …) -> (⌈n/size⌉, size, …), filled up with zeros: tokens without key or query, which change nothing."""
    missing = -len(x) % size
    return jnp.pad(x, ((0, missing), *((0, 0),) * (x.ndim - 1))).reshape(-1, size, *x.shape[1:])


def attention(prefix_sum: str, keep: bool = False) -> Attention:
    """The attention over one slice by the name of its prefix sums.

    Args:
        prefix_sum: ``explicit``, ``iterative``, ``matrix`` or ``block``.
        keep: as for `blocked`; ``explicit`` ignores it.

    Returns:
        The attention.
    """
    return explicit() if prefix_sum == PREFIX_SUMS[0] else blocked(prefix_sum, keep)
