"""Gradients of the Performer in JAX: backprop, and Algorithm 1 of SLiM Performers.

In the words of the code: 𝓑^(n), the s running states U after slice n, is ``states`` (s, batch, k, d+1, M), float32 at
least; 𝓖^(n) = ∇_𝓑^(n) L is ``cotangents``; C is ``chunk`` and A_n ``start``. F is ``project`` and ``prepare``, G is
``attend`` and ``finish``, so that the iterative prefix sums never hold the slice's T.

In the sections Stores and Computes, a number is one array element of the problem's dtype, and letters are those of
`problem`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from gradgate.references.contract import Tree, check_integer
from gradgate.references.performer.in_jax.attention import Attention, attention, wide
from gradgate.references.performer.in_jax.pullback import Lean, without
from gradgate.references.performer.problem import PerformerProblem
from gradgate.references.performer.slicing import check_prefix_sum


def full(problem: PerformerProblem) -> tuple[Any, Tree]:
    """Loss and gradient by reverse-mode differentiation over the whole sequence at once.

    Args:
        problem: any `PerformerProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.

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
    return jax.value_and_grad(problem.loss)(problem.params)


def full_iterative(problem: PerformerProblem, *, prefix_sum: str = "block") -> tuple[Any, Tree]:
    """Loss and gradient by backprop over the whole sequence at once, with attention by App. B.

    Attention stores no prefix sums except with ``explicit``; its backward pass rebuilds them by subtraction. The paper
    measures this as its full algorithm (§4.2, Table 2).

    Args:
        problem: any `PerformerProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.
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
    inside = attention(check_prefix_sum(prefix_sum))
    return jax.value_and_grad(lambda params: whole_loss(problem, params, inside))(problem.params)


def whole_loss(problem: PerformerProblem, params: Tree, inside: Attention) -> Any:
    """The loss of the whole sequence as one slice.

    Args:
        problem: any PerformerProblem of JAX arrays.
        params: like ``problem.params``.
        inside: the attention.

    Returns:
        The loss, a scalar.
    """

    def layer(X: Any, xs: tuple[Tree, Any, Any]) -> tuple[Any, None]:
        p, r, state = xs
        out, _ = inside.attend(inside.prepare(*problem.project(p, X)), state)
        return problem.finish(p, X, out, r, 0), None

    X = problem.embed(params["embedding"], 0, problem.length)
    X, _ = jax.lax.scan(layer, X, (params["layers"], problem.layer_numbers(), problem.zero_states()))
    return problem.slice_loss(params, X)


def slim(problem: PerformerProblem, *, chunk: int, prefix_sum: str = "block") -> tuple[Any, Tree]:
    """Loss and exact gradient with the activations of one slice at a time; subtraction rebuilds the states.

    Args:
        problem: any `PerformerProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.
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
        s·L VJPs of F and of G. Evaluations: s·L of each, and s·C·⌊(L − 1)/C⌋ more of each, because every slice but the
        last runs forward twice. Eq. 19 takes s·L·D1 additions per sequence at most. At a fixed C FLOPs grow linearly
        with L.

    Not for:
        Sequences whose late tokens have much larger features than the early ones, so that most digits of a sum belong
        to the late tokens: the subtraction then loses the early states. Use `slim_kept`.
    """
    return _slices(problem, check_integer("chunk", chunk, 1), attention(check_prefix_sum(prefix_sum)), every=None)


def slim_kept(problem: PerformerProblem, *, chunk: int, prefix_sum: str = "block", every: int = 1) -> tuple[Any, Tree]:
    """Loss and exact gradient as by `slim`, but the states before every m-th slice are kept, not rebuilt.

    Inside a slice, the states before each block are kept too. The rounding errors of the subtraction add up over at
    most m − 1 slices. With m = 1 nothing is subtracted, and no digit is lost.

    Args:
        problem: any `PerformerProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.
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
        states before the ⌈C/c⌉ blocks of one slice: s·⌈C/c⌉·D1 numbers per sequence in the program, of which XLA may
        hold a second copy.

    Computes:
        s·L VJPs of F and of G. Evaluations: s·L of each, and s·C·⌊(L − 1)/C⌋ more of each, because every slice but the
        last runs forward twice. In JAX, with m > 1, Eq. 19 is computed before every slice and used where no state is
        kept.

    Not for:
        L/(C·m) so large that the kept states outweigh the activations that slicing saves. Use `slim`, or a larger m.
    """
    inside = attention(check_prefix_sum(prefix_sum), keep=True)
    return _slices(problem, check_integer("chunk", chunk, 1), inside, check_integer("every", every, 1))


def slim_checkpointed(problem: PerformerProblem, *, chunk: int, prefix_sum: str = "block") -> tuple[Any, Tree]:
    """Loss and exact gradient as by `slim`, but a slice keeps only the inputs of its layers and runs each layer again.

    Args:
        problem: any `PerformerProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.
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
    return _slices(problem, check_integer("chunk", chunk, 1), inside, every=None, again=True)


def _slices(
    problem: PerformerProblem, chunk: int, inside: Attention, every: int | None, again: bool = False
) -> tuple[Any, Tree]:
    """`in_slices` with Algorithm 2 on backprop."""

    def pull(before: Before, cotangents: Any, grads: Tree, start: Any, count: int) -> tuple[Any, Any, Any, Tree]:
        return _pull_slice(problem, inside, before, cotangents, grads, start, count, again)

    return in_slices(problem, chunk, inside, every, pull)


def in_slices(
    problem: PerformerProblem, chunk: int, inside: Attention, every: int | None, pull: Callable[..., Any]
) -> tuple[Any, Tree]:
    """Algorithm 1. The last slice, of 1 … C tokens, is treated by itself, because the states before it are known.

    Args:
        problem: any PerformerProblem of JAX arrays.
        chunk: C, tokens per slice, at least 1.
        inside: the attention inside a slice.
        every: m: the states before every m-th slice are kept; None: no states are kept.
        pull: Algorithm 2: (the function that gives the states before the slice, cotangents of the states after it,
            gradient of later slices, start, count) -> (loss, states before, their cotangents, gradient).

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Source:
        Algorithm 1.

    Stores:
        As `slim`, or with `every` as `slim_kept`.

    Computes:
        As `slim`.
    """
    n = (problem.length - 1) // chunk  # full slices before the last one
    zero = problem.zero_states()
    kept = None if every is None else jnp.zeros((-(-n // every), *zero.shape), zero.dtype)

    def forward(carry: tuple[Any, Any], i: Any) -> tuple[tuple[Any, Any], None]:
        states, kept = carry
        if every is not None:
            kept = kept.at[i // every].set(jnp.where(i % every == 0, states, kept[i // every]))
        return (_advance(problem, inside, states, i * chunk, chunk), kept), None

    def backward(carry: tuple[Any, ...], i: Any) -> tuple[tuple[Any, ...], None]:
        states, cotangents, loss, grads = carry
        before = _subtracted(states)
        if every is not None:
            before = _taken(kept, i // every, before if every > 1 else None, i % every == 0)
        part, states, cotangents, grads = pull(before, cotangents, grads, i * chunk, chunk)
        return (states, cotangents, loss + part, grads), None

    numbers = jnp.arange(n, dtype=jnp.int32)
    (states, kept), _ = jax.lax.scan(forward, (zero, kept), numbers) if n else ((zero, kept), None)
    grads = jax.tree.map(lambda leaf: wide(jnp.zeros_like(leaf)), problem.params)
    loss, states, cotangents, grads = pull(
        lambda r, total: states[r], zero, grads, n * chunk, problem.length - n * chunk
    )
    if n:
        carry = (states, cotangents, loss, grads)
        (_, _, loss, grads), _ = jax.lax.scan(backward, carry, numbers, reverse=True)
    return loss, jax.tree.map(lambda leaf, p: leaf.astype(p.dtype), grads, problem.params)


Before = Callable[[Any, Callable[[], Any]], Any]
"""(layer r, function that sums the slice's T of that layer) -> its state before the slice, (batch, k, d+1, M)."""


def _subtracted(after: Any) -> Before:
    """Eq. 19, from the states after the slice."""
    return lambda r, total: after[r] - total()


def _taken(kept: Any, place: Any, otherwise: Before | None, there: Any) -> Before:
    """The states kept at `place`; if `there` is false, those of `otherwise`."""
    if otherwise is None:
        return lambda r, total: kept[place, r]
    return lambda r, total: jnp.where(there, kept[place, r], otherwise(r, total))


def _advance(problem: PerformerProblem, inside: Attention, states: Any, start: Any, count: int) -> Any:
    """Eq. 16–18 over one slice: the states before it -> the states after it."""

    def layer(X: Any, xs: tuple[Tree, Any, Any]) -> tuple[Any, Any]:
        p, r, state = xs
        out, state = inside.attend(inside.prepare(*problem.project(p, X)), state)
        return problem.finish(p, X, out, r, start), state

    X = problem.embed(problem.params["embedding"], start, count)
    _, states = jax.lax.scan(layer, X, (problem.params["layers"], problem.layer_numbers(), states))
    return states


# Φ^(n)(θ, 𝓑^(n−1)) = L^(n) + ⟨𝓖^(n), 𝓑^(n)⟩ with 𝓖^(n) constant has ∇_θ^(n) L and 𝓖^(n−1) as its gradients (App. A). A
# layer of it is two functions, which are pulled back separately, last layer first:
#     (θ_r, X) -> prepared = (Q̃, T), or (Q̃, K̃, V);    (θ_r, X, prepared, 𝓑_r^(n−1)) -> X', 𝓑_r^(n).
# Between them 𝓑_r^(n−1) is computed from the output of the first. For the second it is an ordinary input, so the
# subtraction is not differentiated here; but a further derivative of the whole goes through it.
def _pull_slice(
    problem: PerformerProblem,
    inside: Attention,
    before: Before,
    cotangents: Any,
    grads: Tree,
    start: Any,
    count: int,
    again: bool,
) -> tuple[Any, Any, Any, Tree]:
    """Algorithm 2 on backprop: one slice forward once more, and back.

    Args:
        problem: supplies maps and parameters.
        inside: the attention.
        before: the function that gives the states before the slice.
        cotangents: the cotangents of the states after the slice.
        grads: the gradient of later slices, in at least float32.
        start, count: the slice.
        again: whether only the input of each layer is kept, and the layer is run again in the backward pass.

    Returns:
        The slice's loss, the states before it, their cotangents, and `grads` with its share added.
    """
    params = problem.params
    X, pull_embedding = jax.vjp(lambda e: problem.embed(e, start, count), params["embedding"])

    def layer(X: Any, p: Tree, r: Any, state: Any) -> tuple[Any, Any, Lean, Lean]:
        mine, rest = _first(p), _second(p)
        prepared, pull_first = jax.vjp(lambda p, X: inside.prepare(*problem.project(p, X)), mine, X)
        state = before(r, lambda: inside.total(prepared)) if state is None else state

        def second(p: Tree, X: Any, prepared: Any, state: Any) -> tuple[Any, Any]:
            out, after = inside.attend(prepared, state)
            return problem.finish(p, X, out, r, start), after

        (X, _), pull_second = jax.vjp(second, rest, X, prepared, state)
        return X, state, without(mine, pull_first), without(rest, pull_second)

    def forward(X: Any, xs: tuple[Tree, Any]) -> tuple[Any, Any]:
        after, state, *pulls = layer(X, *xs, None)
        return after, (state, X if again else pulls)

    layers, numbers = params["layers"], problem.layer_numbers()
    X, (states, kept) = jax.lax.scan(forward, X, (layers, numbers))
    loss, pull_loss = jax.vjp(lambda head, X: problem.slice_loss({"head": head}, X, start), params["head"], X)
    d_head, g = pull_loss(jnp.ones_like(loss))

    def backward(carry: tuple[Any, Tree], xs: tuple[Any, ...]) -> tuple[tuple[Any, Tree], Any]:
        g, grads = carry
        p, r, cotangent, state, kept = xs
        pull_first, pull_second = layer(kept, p, r, state)[2:] if again else kept
        d_second, g, d_prepared, cotangent = pull_second(_second(p), (g, cotangent))
        d_first, g_first = pull_first(_first(p), d_prepared)
        grads = _added_at(_added_at(grads, d_second, r), d_first, r)
        return (g + g_first, grads), cotangent

    xs = (layers, numbers, cotangents, states, kept)
    (g, d_layers), cotangents = jax.lax.scan(backward, (g, grads["layers"]), xs, reverse=True)
    (d_embedding,) = pull_embedding(g)
    grads = {
        "layers": d_layers,
        "head": jax.tree.map(jnp.add, grads["head"], d_head),
        "embedding": grads["embedding"] + d_embedding,
    }
    return loss, states, cotangents, grads


def _first(p: Tree) -> Tree:
    """What F reads of a layer."""
    return {"attention": p["attention"], "norms": p["norms"]}


def _second(p: Tree) -> Tree:
    """What G reads of a layer."""
    return {name: p[name] for name in p if name != "attention"}


def _added_at(grads: Tree, part: Tree, r: Any) -> Tree:
    """Stacked `grads` with one layer's part added in place at r; leaves that `part` lacks do not change."""
    added = {
        name: jax.tree.map(lambda leaf, d: leaf.at[r].add(d.astype(leaf.dtype)), grads[name], part[name])
        for name in part
    }
    return {**grads, **added}
