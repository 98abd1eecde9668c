"""Errata of SLiM Performers in PyTorch: what the paper prints, kept so that the suite refutes it."""

from __future__ import annotations

import functools

import torch

from gradgate.references.contract import Tree
from gradgate.references.performer.in_torch.attention import blocked, contract, pull_block, transposed
from gradgate.references.performer.in_torch.methods import in_slices
from gradgate.references.performer.problem import PerformerProblem, outer
from gradgate.references.performer.slicing import check_term


def block_printed(problem: PerformerProblem, *, term: str = "all") -> tuple[torch.Tensor, Tree]:
    """The loss, and the gradient by App. B's printed backward pass of a block, over one slice: it is wrong.

    Args:
        problem: any `PerformerProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.
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
    rule = functools.partial(printed_rule, check_term(term))
    return in_slices(problem, problem.length, blocked("block", rule=rule), None)


def one_by_one_printed(problem: PerformerProblem) -> tuple[torch.Tensor, Tree]:
    """The loss, and the gradient by App. B's printed backward pass of the iteration one by one: it is wrong.

    Args:
        problem: any `PerformerProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.

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
    return in_slices(problem, problem.length, blocked("iterative", rule=functools.partial(printed_rule, "key")), None)


def printed_rule(
    term: str,
    state: torch.Tensor,
    after: torch.Tensor,
    before: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
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
    own = outer(g, q)
    suffix = after + torch.cumsum(own.flip(0), 0).flip(0)
    if term in ("all", "suffix"):
        suffix = before - torch.cumsum(own, 0)
        dk, dv = transposed(suffix, v), contract(suffix, k)
    if term in ("all", "key"):
        dk = transposed(suffix[..., :-1, :], v[..., :-1])
    if term in ("all", "query"):
        S = state[..., -1, :] + torch.cumsum(k, 0)
        dq = g[..., -1:] * S + transposed(state[..., :-1, :], g[..., :-1])
    return dq, dk, dv
