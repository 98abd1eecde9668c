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
    """The loss, and what App. B prints as the backward pass of a block, over one slice: a wrong gradient.

    Args:
        problem: any `PerformerProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.
        term: which misprint is kept, the rest corrected. ``key``: the gradient of K̃ is gradRᵀV alone, without gradS.
            ``query``: the gradient of Q̃ has curR, the state before the block, in place of blockR_l. ``suffix``: the
            sums gradR − PS(…)_l leave out each position's own term. ``all``: all three.

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


def printed_rule(
    term: str, state: torch.Tensor, after: torch.Tensor, before: torch.Tensor,
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
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


def eq16_printed(problem: PerformerProblem) -> tuple[torch.Tensor, Tree]:
    """Loss and gradient of what Eq. 16–18 define as printed: layer r reads its own output X^(r,n).

    That is an equation for X^(r,n), not a rule to compute it. The output of Algorithm 2, which reads X^(r−1,n), does
    not solve the equation: put into Eq. 16, it gives another X^(r,n) by Eq. 18, and this loss goes on from there.

    Args:
        problem: any `PerformerProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.

    Returns:
        A scalar that is not the loss, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Source:
        Eq. 16, as printed.

    Stores:
        Twice what `full` stores, because every layer runs twice.

    Computes:
        2·s·L evaluations and 2·s·L VJPs of F and of G, twice those of `full`.

    Not for:
        Any use but refuting Eq. 16. Use `full` or `slim`.
    """

    def loss(params: Tree) -> torch.Tensor:
        X: torch.Tensor = problem.embed(params["embedding"], 0, problem.length)
        for r in range(problem.spec.layers):
            for _ in range(2):
                T, gamma = problem.F(params, r, X)
                X = problem.G(params, r, problem.prefix_sum(T), gamma)
        result: torch.Tensor = problem.slice_loss(params, X)
        return result

    grads, value = torch.func.grad_and_value(loss)(problem.params)
    return value, grads
