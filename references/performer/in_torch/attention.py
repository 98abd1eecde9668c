"""Linear attention over one slice in PyTorch: prefix sums, explicit, iterative or in blocks, or products of matrices.

Source: SLiM Performers, §2.1 and App. B.

In the words of the code, for one layer: Q̃ is ``q`` and K̃ is ``k`` (n, batch, k, M), V with a last column of ones is
``v`` (n, batch, k, d+1), so that R and S are one state U = Σ v kᵀ (batch, k, d+1, M), curR and curS one ``state``,
gradR and gradS one ``grad``, N and D one ``out`` = U q (n, batch, k, d+1). States and sums are float32 at least.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gradgate.references.performer.problem import outer
from gradgate.references.performer.slicing import PREFIX_SUMS, block_size

Pull = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]]
"""Cotangents of (out, state after) -> cotangents of (q, k, v, state before)."""
Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor, Pull]]
"""(q, k, v, state before) -> (out, state after, how to pull back)."""


def attention(prefix_sum: str, keep: bool = False) -> Attend:
    """The attention over one slice by the name of its prefix sums.

    Args:
        prefix_sum: ``explicit``, ``iterative``, ``matrix`` or ``block``.
        keep: as for `blocked`; ``explicit`` ignores it.

    Returns:
        The attention.
    """
    return explicit if prefix_sum == PREFIX_SUMS[0] else blocked(prefix_sum, keep)


def explicit(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, state: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, Pull]:
    """Every T and U of the slice at once (Eq. 17, 4); stores 2·n·D1 numbers."""

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        U = state + torch.cumsum(outer(wide(v), wide(k)), 0)
        return contract(U, q), U[-1].clone()  # a view would keep all of U alive

    (out, after), pull = torch.func.vjp(run, q, k, v, state)  # type: ignore[misc]
    return out, after, lambda g, grad: pull((g, grad))


def blocked(prefix_sum: str, keep: bool = False, rule: Callable[..., Any] | None = None) -> Attend:
    """Attention with the T and U of one block at a time in memory.

    Args:
        prefix_sum: ``block``; ``iterative``: blocks of one token, the iteration of Katharopoulos et al. (2020); or
            ``matrix``: blocks without T and U, by masked products of matrices.
        keep: True: keep the state before each block, and do not rebuild it by subtraction.
        rule: the backward pass of a block; None: `pull_block`, or `pull_masked` of ``matrix``. An erratum gives
            another.

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
    rule = rule or (pull_masked if prefix_sum == "matrix" else pull_block)
    run = masked_block if prefix_sum == "matrix" else summed_block

    def attend(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, Pull]:
        size, outs, kept = block_size(prefix_sum, len(q)), [], []
        spans = [slice(first, first + size) for first in range(0, len(q), size)]
        for span in spans:
            kept += [state] if keep else []
            out, state = run(state, wide(q[span]), wide(k[span]), wide(v[span]))
            outs.append(out)
        after = state

        def pull(g: torch.Tensor, grad: torch.Tensor) -> tuple[torch.Tensor, ...]:
            state, parts = after, []
            for i, span in reversed(list(enumerate(spans))):
                block = wide(q[span]), wide(k[span]), wide(v[span]), g[span]
                state = kept[i] if keep else state - summed(block[1], block[2])
                before = grad + summed(block[0], block[3])
                parts.append(rule(state, grad, before, *block))
                grad = before
            return *(torch.cat(p[::-1]).to(q.dtype) for p in zip(*parts, strict=True)), grad

        return torch.cat(outs), after, pull

    return attend


def summed_block(
    state: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """App. B, Eq. 24 and 25: out of a block, and the state after it."""
    U = state + torch.cumsum(outer(v, k), 0)
    return contract(U, q), U[-1].clone()  # a view would keep all of U alive


def masked_block(
    state: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """`summed_block` by products of matrices, without T and U."""
    return masked_product(scores(q, k), v) + queried(state, q), state + summed(k, v)


# out_l = U_l q_l with U_l = U_0 + Σ_{j≤l} v_j k_jᵀ, j in the block. With g_l the cotangent of out_l and G that of the
# state after the block, v_j k_jᵀ is read by out_j itself and by all later ones, so its cotangent is
#     G_j = G + Σ_{l≥j} g_l q_lᵀ,
# and dq_l = U_lᵀ g_l, dv_j = G_j k_j, dk_j = G_jᵀ v_j; G_1 goes to the block before. Row d of v is 1, and row d of out
# is D, so dk_j has the term gradS besides gradRᵀ V. App. B as printed leaves gradS out of dk, takes U_0 in place of U_l
# for the numerator's part of dq, and takes G + Σ_{l>j}, without the position's own term, for G_j: see
# `as_printed_torch`.
def pull_block(
    state: torch.Tensor,
    after: torch.Tensor,
    before: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
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
    U = state + torch.cumsum(outer(v, k), 0)
    suffix = after + torch.cumsum(outer(g, q).flip(0), 0).flip(0)
    return transposed(U, g), transposed(suffix, v), contract(suffix, k)


# out = tril(q kᵀ) v + q U_0ᵀ has the same sums in another order: the c² numbers q_l·k_j per head replace the c·D1
# of U. With s_lj = q_l·k_j and t_lj = g_l·v_j for j ≤ l, and G the cotangent of the state after the block,
#     dq = t k + g U_0,    dk = tᵀ q + v G,    dv = sᵀ g + k Gᵀ.
def pull_masked(
    state: torch.Tensor,
    after: torch.Tensor,
    before: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
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


def scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """(c, …, M) and (c, …, M) -> q_l·k_j where j ≤ l, else 0: (…, c, c)."""
    return torch.tril(torch.einsum("i...m,j...m->...ij", q, k))


def masked_product(weights: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """(…, c, c) and (c, …, D) -> (c, …, D): Σ_j weights_lj v_j."""
    return torch.einsum("...ij,j...d->i...d", weights, v)


def queried(state: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """(…, d+1, M) and (c, …, M) -> (c, …, d+1): one state for all tokens."""
    return torch.einsum("...dm,i...m->i...d", state, q)


def turned(state: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """(…, d+1, M) and (c, …, d+1) -> (c, …, M): the transpose of one state for all tokens."""
    return torch.einsum("...dm,i...d->i...m", state, g)


def contract(U: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """(…, d+1, M) and (…, M) -> (…, d+1)."""
    return (U @ wide(q)[..., None])[..., 0]


def transposed(U: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """(…, d+1, M) and (…, d+1) -> (…, M): Uᵀ g."""
    return (U.mT @ g[..., None])[..., 0]


def summed(k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Σ v kᵀ over tokens: (n, …, M) and (n, …, d+1) -> (…, d+1, M), without n products in memory."""
    return torch.einsum("n...d,n...m->...dm", wide(v), wide(k))


def wide(x: torch.Tensor) -> torch.Tensor:
    """`x` in at least float32."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
