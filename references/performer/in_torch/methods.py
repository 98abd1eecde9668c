"""Gradients of the Performer in PyTorch: backprop, and Algorithm 1 of SLiM Performers.

In the words of the code: 𝓑^(n), the running states U of the s layers after slice n, is ``states``, one (batch, k, d+1,
M) per layer, float32 at least; 𝓖^(n) = ∇_𝓑^(n) L is ``cotangents``; C is ``chunk``. F is ``project``, G the attention
and ``finish``, so that the iterative prefix sums never hold the slice's T.

Every method is written with `torch.func`, so that `torch.func.vmap` over the parameters and a further derivative work.

In the sections Stores and Computes, a number is one array element of the problem's dtype, and letters are those of
`problem`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from gradgate.references.backends import tree_map
from gradgate.references.contract import Tree, check_integer
from gradgate.references.performer.in_torch.attention import Attend, attention, summed, wide
from gradgate.references.performer.problem import PerformerProblem
from gradgate.references.performer.slicing import check_prefix_sum

vjp: Callable[..., Any] = torch.func.vjp  # its annotation allows a third value, which is not requested here
Before = Callable[[int, torch.Tensor, torch.Tensor], torch.Tensor]
"""(layer, its k, its v over the slice) -> its state before the slice."""


def full(problem: PerformerProblem) -> tuple[torch.Tensor, Tree]:
    """Loss and gradient by reverse-mode differentiation over the whole sequence at once.

    Args:
        problem: any `PerformerProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Source:
        The baseline of the paper, Eq. 5–10, with explicit prefix sums.

    Stores:
        The activations of all L tokens and s layers. The prefix sums U alone are s·L·D1 numbers per sequence, float32
        at least, where D1 = M(d + 1)k.

    Computes:
        s·L evaluations and s·L VJPs of F and of G. FLOPs grow linearly with L.

    Not for:
        Sequences whose activations do not fit in memory. Use `slim`; or `full_iterative` if only U does not fit.
    """
    grads, loss = torch.func.grad_and_value(problem.loss)(problem.params)
    return loss, grads


def full_iterative(problem: PerformerProblem, *, prefix_sum: str = "block") -> tuple[torch.Tensor, Tree]:
    """Loss and gradient by backprop over the whole sequence at once, with attention by App. B.

    Attention stores no prefix sums except with ``explicit``; its backward pass rebuilds them by subtraction. The paper
    measures this as its full algorithm (§4.2, Table 2).

    Args:
        problem: any `PerformerProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.
        prefix_sum: how sums are computed: ``explicit``, a parallel prefix sum; ``iterative``, token by token;
            ``block``, in blocks of c = min(64, ⌈√L⌉) tokens; or ``matrix``, no prefix sum but masked products of
            matrices in blocks of c = min(64, L) tokens.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        IllegalOption: `prefix_sum` is none of the four.

    Source:
        The baseline of Table 2, Eq. 5–10; App. B corrected.

    Stores:
        The activations of all L tokens and s layers. For attention, the states after the last token, s·D1 numbers per
        sequence, float32 at least, where D1 = M(d + 1)k, and the c·D1 numbers of one block at a time, or c²·k for
        ``matrix``. ``explicit`` adds 2·L·D1 numbers per layer and sequence.

    Computes:
        s·L evaluations and s·L VJPs of F and of G. FLOPs grow linearly with L.

    Not for:
        Sequences whose activations do not fit in memory: use `slim`. Sequences where subtraction loses the early
        states: use `slim_kept`.
    """
    return in_slices(problem, problem.length, attention(check_prefix_sum(prefix_sum)), None)


def slim(problem: PerformerProblem, *, chunk: int, prefix_sum: str = "block") -> tuple[torch.Tensor, Tree]:
    """Loss and exact gradient with the activations of one slice at a time; subtraction rebuilds the states.

    Args:
        problem: any `PerformerProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.
        chunk: C, tokens per slice, an integer of at least 1. The last slice may be shorter. L and more means one slice.
        prefix_sum: how sums inside a slice are computed: ``explicit``, a parallel prefix sum; ``iterative``, token by
            token; ``block``, in blocks of c = min(64, ⌈√C⌉) tokens; or ``matrix``, no prefix sum but masked products
            of matrices in blocks of c = min(64, C) tokens.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        IllegalOption: `chunk` is not an integer of at least 1, or `prefix_sum` is none of the four.

    Source:
        Algorithms 1 and 2, with X^(r−1,n) in place of the X^(r,n) of Eq. 16, and App. B corrected.

    Stores:
        States and their cotangents, 2·s·D1 numbers per sequence, float32 at least, where D1 = M(d + 1)k; and the
        activations of one slice in all s layers, which grow linearly with C and not with L. ``explicit`` adds 2·C·D1
        numbers per layer and sequence to these, ``block`` and ``iterative`` the c·D1 numbers of one block at a time
        (c = 1 for ``iterative``), ``matrix`` c²·k.

    Computes:
        s·L VJPs of F and of G. Evaluations: s·L of each, and s·C·⌊(L − 1)/C⌋ more of F, (s − 1)·C·⌊(L − 1)/C⌋ more of
        G, because every slice but the last runs forward twice. Eq. 19 takes s·L·D1 additions per sequence at most. At a
        fixed C FLOPs grow linearly with L.

    Not for:
        Sequences whose late tokens have much larger features than the early ones, so that most digits of a sum belong
        to the late tokens: the subtraction then loses the early states. Use `slim_kept`.
    """
    return in_slices(problem, check_integer("chunk", chunk, 1), attention(check_prefix_sum(prefix_sum)), None)


def slim_kept(
    problem: PerformerProblem, *, chunk: int, prefix_sum: str = "block", every: int = 1
) -> tuple[torch.Tensor, Tree]:
    """Loss and exact gradient as by `slim`, but the states before every m-th slice are kept, not rebuilt.

    Inside a slice, the states before each block are kept too. The rounding errors of the subtraction add up over at
    most m − 1 slices. With m = 1 nothing is subtracted, and no digit is lost.

    Args:
        problem: any `PerformerProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.
        chunk: C, tokens per slice, an integer of at least 1. The last slice may be shorter. L and more means one slice.
        prefix_sum: how sums inside a slice are computed: ``explicit``, a parallel prefix sum; ``iterative``, token by
            token; ``block``, in blocks of c = min(64, ⌈√C⌉) tokens; or ``matrix``, no prefix sum but masked products
            of matrices in blocks of c = min(64, C) tokens.
        every: m, an integer of at least 1: the states before every m-th slice are kept.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        IllegalOption: `chunk` or `every` is not an integer of at least 1, or `prefix_sum` is none of the four.

    Source:
        Beyond the paper: it keeps states that Eq. 19 rebuilds.

    Stores:
        As `slim`; ⌈L/(C·m)⌉·s·D1 numbers per sequence for the states before slices; and, but for ``explicit``, the
        states before the ⌈C/c⌉ blocks of one slice: s·⌈C/c⌉·D1 numbers per sequence.

    Computes:
        s·L VJPs of F and of G. Evaluations: s·L of each, and s·C·⌊(L − 1)/C⌋ more of F, (s − 1)·C·⌊(L − 1)/C⌋ more of
        G, because every slice but the last runs forward twice. Eq. 19 is computed only where no state is kept.

    Not for:
        L/(C·m) so large that the kept states outweigh the activations that slicing saves. Use `slim`, or a larger m.
    """
    inside = attention(check_prefix_sum(prefix_sum), keep=True)
    return in_slices(problem, check_integer("chunk", chunk, 1), inside, check_integer("every", every, 1))


def slim_checkpointed(problem: PerformerProblem, *, chunk: int, prefix_sum: str = "block") -> tuple[torch.Tensor, Tree]:
    """Loss and exact gradient as by `slim`, but a slice keeps only the inputs of its layers and runs each layer again.

    Args:
        problem: any `PerformerProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.
        chunk: C, tokens per slice, an integer of at least 1. The last slice may be shorter. L and more means one slice.
        prefix_sum: how sums inside a slice are computed: ``explicit``, a parallel prefix sum; ``iterative``, token by
            token; ``block``, in blocks of c = min(64, ⌈√C⌉) tokens; or ``matrix``, no prefix sum but masked products
            of matrices in blocks of c = min(64, C) tokens.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        IllegalOption: `chunk` is not an integer of at least 1, or `prefix_sum` is none of the four.

    Source:
        §5: "Checkpointing techniques can also be used to reduce the memory consumption for storing" Φ^(n).

    Stores:
        States and their cotangents as `slim`. For one slice, the input of each layer, s·C·d_model numbers per sequence,
        and the activations of one layer.

    Computes:
        As `slim`, and s·L more evaluations of F and of G.

    Not for:
        One layer, or slices whose activations are small compared with the states. Use `slim`.
    """
    inside = attention(check_prefix_sum(prefix_sum))
    return in_slices(problem, check_integer("chunk", chunk, 1), inside, None, again=True)


def in_slices(
    problem: PerformerProblem,
    chunk: int,
    inside: Attend,
    every: int | None,
    again: bool = False,
    pull: Callable[..., Any] | None = None,
) -> tuple[torch.Tensor, Tree]:
    """Algorithm 1. The states before the last slice are known, so the last slice is not run forward twice.

    Args:
        problem: any PerformerProblem of PyTorch tensors.
        chunk: C, tokens per slice, at least 1.
        inside: the attention inside a slice.
        every: m: the states before every m-th slice are kept; None: no states are kept.
        again: as for `pull_slice`.
        pull: takes the place of `pull_slice`, with its arguments but for `again`.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Source:
        Algorithm 1.

    Stores:
        As `slim`, or with `every` as `slim_kept`.

    Computes:
        As `slim`.
    """
    layers = [problem.layer(problem.params, r) for r in range(problem.spec.layers)]
    starts = list(range(0, problem.length, chunk))
    states, kept = list(problem.zero_states()), {}
    for i, start in enumerate(starts[:-1]):
        if every is not None and i % every == 0:
            kept[i] = states
        states = advance(problem, layers, inside, states, start, chunk)

    grads = tree_map(lambda leaf: wide(torch.zeros_like(leaf)), problem.params)
    cotangents, losses = [torch.zeros_like(state) for state in states], []
    kept[len(starts) - 1] = states
    for i in reversed(range(len(starts))):
        start = starts[i]
        before = _taken(kept.pop(i)) if i in kept else _subtracted(states)
        count = min(chunk, problem.length - start)
        given = (problem, layers, inside, before, cotangents, grads, start, count)
        loss, states, cotangents = pull(*given) if pull else pull_slice(*given, again)
        losses.append(loss)
    return torch.stack(losses).sum(), tree_map(lambda total, p: total.to(p.dtype), grads, problem.params)


def _subtracted(after: Sequence[torch.Tensor]) -> Before:
    """Eq. 19, from the states after the slice."""
    return lambda r, k, v: after[r] - summed(k, v)


def _taken(kept: Sequence[torch.Tensor]) -> Before:
    """States that were kept."""
    return lambda r, k, v: kept[r]


def advance(
    problem: PerformerProblem,
    layers: Sequence[Tree],
    inside: Attend,
    states: Sequence[torch.Tensor],
    start: int,
    count: int,
) -> list[torch.Tensor]:
    """Eq. 16–18 over one slice: the states before it -> the states after it."""
    X, afters = problem.embed(problem.params["embedding"], start, count), []
    for r, (p, state) in enumerate(zip(layers, states, strict=True)):
        out, after, _ = inside(*problem.project(p, X), state)
        afters.append(after)
        if r < len(layers) - 1:
            X = problem.finish(p, X, out, r, start)
    return afters


# Φ^(n)(θ, 𝓑^(n−1)) = L^(n) + ⟨𝓖^(n), 𝓑^(n)⟩ with 𝓖^(n) constant has ∇_θ^(n) L and 𝓖^(n−1) as its gradients (App. A). A
# layer of it is three functions, which are pulled back separately, last layer first:
#     (θ_r, X) -> Q̃, K̃, V;    (Q̃, K̃, V, 𝓑_r^(n−1)) -> out, 𝓑_r^(n);    (θ_r, X, out) -> X'.
# Between the first two 𝓑_r^(n−1) is computed from K̃ and V. For the second it is an ordinary input, so the subtraction
# is not differentiated here; but a further derivative of the whole goes through it.
def pull_slice(
    problem: PerformerProblem,
    layers: Sequence[Tree],
    inside: Attend,
    before: Before,
    cotangents: Sequence[torch.Tensor],
    grads: Tree,
    start: int,
    count: int,
    again: bool = False,
) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
    """Algorithm 2 on backprop: one slice forward once more, and back; adds its share to `grads`.

    Args:
        problem: supplies maps and parameters.
        layers: the parameters of each layer.
        inside: the attention.
        before: the function that gives the states before the slice.
        cotangents: the cotangents of the states after the slice.
        grads: the gradient of later slices.
        start, count: the slice.
        again: whether only the input of each layer is kept, and the layer is run again in the backward pass.

    Returns:
        The slice's loss, the states before it, and their cotangents.
    """
    params = problem.params
    X, pull_embedding = vjp(lambda e: problem.embed(e, start, count), params["embedding"])

    def layer(r: int, X: torch.Tensor, state: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor, Any]:
        first = {name: layers[r][name] for name in ("attention", "norms")}
        second = {name: layers[r][name] for name in layers[r] if name != "attention"}
        (q, k, v), pull_first = vjp(problem.project, first, X)
        state = before(r, k, v) if state is None else state
        out, _, pull_attention = inside(q, k, v, state)
        X, pull_second = vjp(lambda p, X, out, r=r: problem.finish(p, X, out, r, start), second, X, out)
        return X, state, (pull_first, pull_attention, pull_second)

    states, kept = [], []
    for r in range(len(layers)):
        given = X
        X, state, pulls = layer(r, X, None)
        states.append(state)
        kept.append(given if again else pulls)
        del pulls

    loss, pull_loss = vjp(lambda head, X: problem.slice_loss({"head": head}, X, start), params["head"], X)
    d_head, g = pull_loss(torch.ones_like(loss))
    _add(grads["head"], d_head)
    earlier: list[torch.Tensor] = []
    for r in reversed(range(len(layers))):
        last = kept.pop()
        pull_first, pull_attention, pull_second = layer(r, last, states[r])[2] if again else last
        d_second, g, d_out = pull_second(g)
        *d_qkv, cotangent = pull_attention(d_out, cotangents[r])
        d_first, g_first = pull_first(tuple(d_qkv))
        g = g + g_first
        earlier.insert(0, cotangent)
        for part in (d_first, d_second):
            _add({name: _row(grads["layers"][name], r) for name in part}, part)
    _add(grads["embedding"], pull_embedding(g)[0])
    return loss, states, earlier


def _row(tree: Tree, r: int) -> Tree:
    """Views of layer r's leaves."""
    return tree_map(lambda leaf: leaf[r], tree)


def _add(total: Tree, part: Tree) -> None:
    """Add in place, leaf by leaf."""
    tree_map(lambda leaf, d: leaf.add_(d), total, part)
