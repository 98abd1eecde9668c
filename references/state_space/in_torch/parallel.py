"""What can run at once, in PyTorch: adjoint sharding's VJPs on many instances, and the recurrence as a parallel scan.

Notation and units are those of ``methods``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gradgate.references.backends import tree_map
from gradgate.references.contract import Tree, check_integer
from gradgate.references.state_space.in_torch.methods import (
    embedding_gradient,
    evaluate,
    matvec,
    outer,
    output_vjp,
    stack,
    unstack,
    vjp,
)
from gradgate.references.state_space.problem import StateSpaceProblem
from gradgate.references.state_space.walks import Walks


def adjoint_parallel(problem: StateSpaceProblem, *, instances: int) -> tuple[torch.Tensor, Tree]:
    """Loss and exact gradient as by `adjoint_sharding`; the VJPs of up to `instances` pairs of tokens run at once.

    Each adjoint state of one token t follows from the previous one. So each instance takes the tokens i that t depends
    on one after another, and different t run at the same time. The walks of a late and an early token are joined, so
    that all walks are equally long: no instance waits, and no VJP is masked out.

    Args:
        problem: any `StateSpaceProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.
        instances: m, an integer of at least 1. Instances beyond ⌈T/2⌉ have nothing to do.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        IllegalOption: `instances` is not an integer of at least 1.

    Source:
        §4.5, "7Υ instances", with Prop. 3 corrected.

    Stores:
        y and h of every layer, K·T·batch·(P + N) numbers. In the forward pass the nets of one layer for all T tokens,
        T·batch·O(N·P + |A|) numbers, where |A| is N² (unstructured), N (diagonal) or 1 (scalar). In the backward pass
        the intermediates of m VJPs, m·batch·O(N·P + |A|). A further derivative stores those of every VJP.

    Computes:
        K·T(T + 1)/2 VJPs of A and of B, and K·T of C. Evaluations: K·T + K·T(T + 1)/2 of A and of B, 2·K·T of C. For an
        even T they run in K·(T + 1)·⌈T/(2m)⌉ batches of A and B, for an odd one in K·T·⌈(T + 1)/(2m)⌉, and in K·⌈T/m⌉
        of C. FLOPs grow like T².

    Not for:
        Speed: `associative_scan` has a shorter chain of operations and needs K·T VJPs of each net.
    """
    instances = check_integer("instances", instances, 1)
    loss, head, g, trace = evaluate(problem)
    grads = []
    for p, y, h in reversed(trace):
        layer, g = _adjoint_layer(problem, p, y, h, g, instances)
        grads.append(layer)
    embedding = embedding_gradient(problem, problem.data["tokens"], g)
    return loss, {"embedding": embedding, "layers": stack(grads[::-1]), "head": head}


def _adjoint_layer(
    problem: StateSpaceProblem, p: Tree, y: torch.Tensor, h: torch.Tensor, g: torch.Tensor, instances: int
) -> tuple[Tree, torch.Tensor]:
    """dL/dy_k -> (gradient of the layer, dL/dy_{k-1}), as ``methods.adjoint_layer``."""
    x, norm_vjp = vjp(problem.norm, y)
    grads, tops, cotangents = tree_map(torch.zeros_like, p["C"]), [], []
    for start in range(0, len(x), instances):
        some = slice(start, start + instances)
        top, part, cotangent = output_vjp(problem, p, x[some], h[1:][some], g[some])
        grads = tree_map(torch.add, grads, part["C"])  # added at once: T/m gradients would be larger than y and h
        tops.append(top)
        cotangents.append(cotangent)
    top, g_x = torch.cat(tops), torch.cat(cotangents)
    nets = {net: tree_map(torch.zeros_like, p[net]) for net in "AB"}

    walks = Walks.of(len(x))
    for group in walks.groups(instances):
        places = list(group)
        mu = top[_index(places, x)]
        for step in range(walks.steps):
            where = [_place(walks, first, step) for first in group]
            t, i = (_index([place[k] for place in where], x) for k in (0, 1))
            if starts := [s for s, (token, reached) in enumerate(where) if token == reached]:
                mu = mu.index_copy(0, torch.tensor(starts, device=x.device), top[t[starts]])
            a, part, g_i = _pair_vjp(problem, p, x[i], h[i], mu)
            nets = tree_map(torch.add, nets, part)
            g_x = g_x.index_add(0, i, g_i)
            mu = problem.apply_transposed(a, mu)
    return {**nets, "C": grads}, g + norm_vjp(g_x)[0]


def _place(walks: Walks, first: int, step: int) -> tuple[int, int]:
    """Token t and token i ≤ t, counted from 1, at a step of the walk that begins with token `first`."""
    second = walks.second(first)
    return (first, first - step) if step < first else (second, second - (step - first))


def _index(places: Sequence[int], x: torch.Tensor) -> torch.Tensor:
    """Tokens counted from 1 as an index into (T, …)."""
    return torch.tensor(places, device=x.device) - 1


def _pair_vjp(
    problem: StateSpaceProblem, p: Tree, x: torch.Tensor, h_before: torch.Tensor, mu: torch.Tensor
) -> tuple[torch.Tensor, Tree, torch.Tensor]:
    """One VJP of A and of B for each of m pairs: A itself, their gradients, and the cotangents of x (m, batch, P)."""
    nets = {"A": p["A"], "B": p["B"]}
    (a, b), pull = vjp(lambda p, x: (problem.A(p, x), problem.B(p, x)), nets, x)
    grads, g_x = pull((problem.transition_cotangent(mu, h_before), outer(mu, x)))
    return a, grads, g_x + matvec(b.mT, mu)


def associative_scan(problem: StateSpaceProblem) -> tuple[torch.Tensor, Tree]:
    """Loss and gradient by plain reverse mode; the states of a layer are computed in about 2·log₂ T levels.

    h^t = A^t h^{t−1} + b^t is an affine map of h^{t−1}, and composition of affine maps is associative. So the states
    are a parallel prefix of these maps, and the backward pass is a parallel prefix too.

    Args:
        problem: any `StateSpaceProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Source:
        Beyond the paper: Blelloch, Prefix sums and their applications, 1990.

    Stores:
        Every intermediate of all K layers and T tokens, and the composed maps of all levels:
        K·T·batch·O(N·P + |A| + N + P) numbers, where |A| is N² (unstructured), N (diagonal) or 1 (scalar).

    Computes:
        K·T evaluations and K·T VJPs of each net A, B and C, and fewer than 2·K·T products of two A, of N³ FLOPs each
        if A is unstructured. FLOPs grow linearly with T; the longest chain of operations grows like K·log T.

    Not for:
        Sequences whose activations do not fit in memory. Use `reverse_recurrence`.
    """

    def loss(params: Tree) -> torch.Tensor:
        y = problem.embed(params["embedding"], problem.data["tokens"])
        for p in unstack(params["layers"]):
            x = problem.norm(y)
            a, b = problem.A(p, x), matvec(problem.B(p, x), x)
            first = problem.apply(a[:1], torch.zeros_like(b[:1])) + b[:1]  # h^1 = A^1 h^0 + b^1
            _, states = _prefixes(problem, a, torch.cat([first, b[1:]]))
            y = y + matvec(problem.C(p, x), states)
        found: torch.Tensor = problem.token_loss(params["head"], y, problem.data["targets"], problem.data["upstream"])
        return found

    grads, value = torch.func.grad_and_value(loss)(problem.params)
    return value, grads


def _prefixes(problem: StateSpaceProblem, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """From maps (A^t, b^t), t = 1 … T, the compositions of the first t maps, for all t; pairs first, then the rest."""
    if len(a) == 1:
        return a, b
    odd = _prefixes(problem, *_after(problem, (a[:-1:2], b[:-1:2]), (a[1::2], b[1::2])))
    n = (len(a) - 1) // 2
    between = _after(problem, (odd[0][:n], odd[1][:n]), (a[2::2], b[2::2]))
    even = torch.cat([a[:1], between[0]]), torch.cat([b[:1], between[1]])
    return _interleaved(even[0], odd[0]), _interleaved(even[1], odd[1])


def _interleaved(even: torch.Tensor, odd: torch.Tensor) -> torch.Tensor:
    """The entries in turn: even[0], odd[0], even[1] and so on."""
    both = torch.stack([even[: len(odd)], odd], 1).flatten(0, 1)
    return torch.cat([both, even[len(odd) :]])


def _after(problem: StateSpaceProblem, first: Any, then: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The affine map (A, b) that applies `first`, then `then`: (A₂A₁, A₂b₁ + b₂)."""
    (a, b), (c, d) = first, then
    return (c @ a if problem.spec.structure == "unstructured" else c * a), problem.apply(c, b) + d
