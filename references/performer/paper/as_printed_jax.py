"""Errata of SLiM Performers in JAX: what the paper prints, which must be refuted."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from gradgate.references.contract import Tree
from gradgate.references.performer.in_jax.attention import (
    blocked,
    contract,
    pull_block,
    transposed,
)
from gradgate.references.performer.in_jax.methods import whole_loss
from gradgate.references.performer.problem import PerformerProblem, outer
from gradgate.references.performer.slicing import check_term


def block_printed(problem: PerformerProblem, *, term: str = "all") -> tuple[Any, Tree]:
    """The loss, and the gradient by App. B's printed backward pass of a block, over one slice: it is wrong.

    Args:
        problem: any `PerformerProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.
        term: which misprint is kept; the rest is corrected. ``key``: the gradient of K̃ is gradRᵀV alone, without
            gradS. ``query``: the gradient of Q̃ has curR, the state before the block, in place of blockR_l. ``suffix``:
            the sums gradR − PS(…)_l leave out each position's own term. ``all``: all three.

    Returns:
        The loss, a scalar and right, and the printed gradient, a tree like ``problem.params`` with the same shapes and
        dtypes.

    Raises:
        IllegalOption: `term` is none of these.

    Source:
        App. B, as printed.

    Stores:
        As `slim` with one slice and ``block``: activations linear in L.

    Computes:
        s·L evaluations and s·L VJPs of F and of G.

    Not for:
        Any use but refuting App. B. Use `slim` with C = L, which corrects it.
    """
    inside = blocked("block", backward=functools.partial(printed_rule, check_term(term)))
    return jax.value_and_grad(lambda params: whole_loss(problem, params, inside))(problem.params)


def one_by_one_printed(problem: PerformerProblem) -> tuple[Any, Tree]:
    """The loss, and the gradient by App. B's printed backward pass of the iteration one by one: it is wrong.

    Args:
        problem: any `PerformerProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.

    Returns:
        The loss, a scalar and right, and the printed gradient, a tree like ``problem.params`` with the same shapes and
        dtypes.

    Source:
        App. B, as printed: ∇_K̃ is gradRᵀV, without gradS, which is summed up and never read.

    Stores:
        As `full_iterative` with ``iterative``: activations linear in L.

    Computes:
        s·L evaluations and s·L VJPs of F and of G.

    Not for:
        Any use but refuting App. B. Use `full_iterative` with ``iterative``, which corrects it.
    """
    inside = blocked("iterative", backward=functools.partial(printed_rule, "key"))
    return jax.value_and_grad(lambda params: whole_loss(problem, params, inside))(problem.params)


def printed_rule(
    term: str, state: Any, after: Any, before: Any, q: Any, k: Any, v: Any, g: Any
) -> tuple[Any, Any, Any]:
    """`pull_block` with App. B's terms in place of some of its own.

    Args:
        term: which misprint is kept: ``key``, ``query``, ``suffix`` or ``all``.
        state, after, before, q, k, v, g: as for `pull_block`.

    Returns:
        The cotangents of q, k and v, as printed.

    Source:
        App. B, as printed.
    """
    dq, dk, dv = pull_block(state, after, before, q, k, v, g)
    suffix = after + jax.lax.cumsum(outer(g, q), axis=0, reverse=True)
    if term in ("all", "suffix"):
        suffix = before - jnp.cumsum(outer(g, q), axis=0)
        dk, dv = transposed(suffix, v), contract(suffix, k)
    if term in ("all", "key"):
        dk = transposed(suffix[..., :-1, :], v[..., :-1])
    if term in ("all", "query"):
        S = state[..., -1, :] + jnp.cumsum(k, axis=0)
        dq = g[..., -1:] * S + transposed(state[..., :-1, :], g[..., :-1])
    return dq, dk, dv
