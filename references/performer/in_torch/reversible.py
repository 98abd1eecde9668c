"""Algorithm 1 over reversible layers in PyTorch: Φ^(n) keeps the last layer's output alone.

A layer of two streams, Y₁ = X₁ + attention(X₂) and Y₂ = X₂ + feed_forward(Y₁), is undone from Y: first X₂, then X₁. In
the words of the code, ``H`` is Y₁; the rest is as in `methods`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gradgate.references.backends import tree_map
from gradgate.references.contract import Tree, check_integer
from gradgate.references.performer.in_torch.attention import Attend, attention
from gradgate.references.performer.in_torch.methods import Before, in_slices, vjp
from gradgate.references.performer.problem import PerformerProblem
from gradgate.references.performer.slicing import check_reversible


def slim_reversible(problem: PerformerProblem, *, chunk: int) -> tuple[torch.Tensor, Tree]:
    """Loss and exact gradient as by `slim`, but a slice keeps only its last layer's output and undoes layer by layer.

    Args:
        problem: a `PerformerProblem` of PyTorch tensors with ``residual="reversible"``, float64, float32 or bfloat16;
            its class lists the shapes.
        chunk: C, tokens per slice, an integer of at least 1. The last slice may be shorter. L and more means one slice.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        IllegalOption: `chunk` is not an integer of at least 1.
        UsageError: the layers of the problem are not reversible.

    Source:
        §5: "compatible with the reversible layer design"; the layers are those of Kitaev et al. (2020). Attention is by
        masked products of matrices in blocks of min(64, C) tokens.

    Stores:
        States and their cotangents as `slim`, and the states before a slice once more. For one slice, the last layer's
        output, 2·C·d_model numbers per sequence, and the activations of one layer.

    Computes:
        As `slim`, and s·L more evaluations of F and of both halves of G.

    Not for:
        Layers with one stream: use `slim_checkpointed`. Many layers in few digits: each layer's input is computed by a
        subtraction, whose rounding errors add up over the layers.
    """
    check_reversible(problem.spec.residual)
    return in_slices(problem, check_integer("chunk", chunk, 1), attention("matrix"), None, pull=_pull_slice)


def _pull_slice(
    problem: PerformerProblem,
    layers: Sequence[Tree],
    inside: Attend,
    before: Before,
    cotangents: Sequence[torch.Tensor],
    grads: Tree,
    start: int,
    count: int,
) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
    """Algorithm 2: one slice forward once more, and back with each layer's input computed from its output."""
    params = problem.params
    X, pull_embedding = vjp(lambda e: problem.embed(e, start, count), params["embedding"])
    states = []
    for r, p in enumerate(layers):
        q, k, v = problem.project(p, X)
        states.append(before(r, k, v))
        X = problem.finish(p, X, inside(q, k, v, states[r])[0], r, start)

    loss, pull_loss = vjp(lambda head, X: problem.slice_loss({"head": head}, X, start), params["head"], X)
    d_head, g = pull_loss(torch.ones_like(loss))
    _add(grads["head"], d_head)
    earlier: list[torch.Tensor] = []
    for r in reversed(range(len(layers))):
        X, g, cotangent, parts = _pull_layer(problem, layers[r], inside, r, start, states[r], X, g, cotangents[r])
        earlier.insert(0, cotangent)
        own = tree_map(lambda leaf, r=r: leaf[r], grads["layers"])
        for part in parts:
            _add({name: own[name] for name in part}, part)
    _add(grads["embedding"], pull_embedding(g)[0])
    return loss, states, earlier


def _pull_layer(
    problem: PerformerProblem,
    p: Tree,
    inside: Attend,
    r: int,
    start: int,
    state: torch.Tensor,
    Y: torch.Tensor,
    g: torch.Tensor,
    cotangent: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, list[Tree]]:
    """Y and its cotangent -> X, the cotangents of X and of the layer's state, and parts of its parameters' gradient."""
    D = problem.spec.width
    H, g_second = Y[..., :D], g[..., D:]
    first = {name: p[name] for name in ("attention", "norms")}
    second = {name: p[name] for name in ("norms", "feed_forward")}

    grown, pull_fed = vjp(lambda p, H: problem.fed(p, H, r, start), second, H)
    X_second = Y[..., D:] - grown
    d_fed, d_H = pull_fed(g_second)
    g_first = g[..., :D] + d_H

    def project(p: Tree, second: torch.Tensor) -> Any:
        return problem.project(p, torch.cat([second, second], dim=-1))  # only the second stream is read

    (q, k, v), pull_project = vjp(project, first, X_second)
    out, _, pull_attention = inside(q, k, v, state)
    norms = {"norms": p["norms"]}
    grown, pull_attended = vjp(lambda p, out: problem.attended(p, out, r, start), norms, out)
    d_norms, d_out = pull_attended(g_first)
    *d_qkv, cotangent = pull_attention(d_out, cotangent)
    d_first, d_second = pull_project(tuple(d_qkv))
    X = torch.cat([H - grown, X_second], dim=-1)
    return X, torch.cat([g_first, g_second + d_second], dim=-1), cotangent, [d_fed, d_norms, d_first]


def _add(total: Tree, part: Tree) -> None:
    """Add in place, leaf by leaf."""
    tree_map(lambda leaf, d: leaf.add_(d), total, part)
