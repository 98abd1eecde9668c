"""Adjoint sharding and its relatives in JAX.

Notation of the paper (Adjoint sharding, §3–4) in words of the code: ŷ is ``x``, h is ``states`` (h^0 first, so h^i is
``states[i]`` for tokens counted from 1), dl/dy carried through the residual stream is ``g``, and dl^t/dỹ^t λ^{t,i}, the
adjoint state contracted with the token's cotangent, is ``mu``.

In the sections Stores and Computes, a number is one array element of the problem's dtype, and letters are those of
`problem`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from gradgate.references.contract import NotComposable, Tree, check_integer
from gradgate.references.state_space.problem import StateSpaceProblem, matvec, outer


def backprop(problem: StateSpaceProblem) -> tuple[Any, Tree]:
    """Loss and gradient by reverse-mode differentiation of the whole loss.

    Args:
        problem: any `StateSpaceProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Source:
        The baseline of the paper, Eq. 1.

    Stores:
        Every intermediate of all K layers and T tokens: K·T·batch·O(N·P + |A| + N + P) numbers, where |A| is N²
        (unstructured), N (diagonal) or 1 (scalar).

    Computes:
        K·T evaluations and K·T VJPs of each net A, B and C. FLOPs grow linearly with T.

    Not for:
        Sequences whose activations do not fit in memory. Use `reverse_recurrence`.
    """
    return jax.value_and_grad(problem.loss)(problem.params)


def adjoint_sharding(problem: StateSpaceProblem) -> tuple[Any, Tree]:
    """Loss and exact gradient from one VJP per token t and token i ≤ t that t depends on.

    Prop. 2 holds for each layer by itself. The layers are joined by g_{k−1} = g_k + (∂ỹ_k/∂y_{k−1})ᵀ g_k. Prop. 3
    leaves this out: as printed, every layer gets the cotangent dl/dy_K.

    Args:
        problem: any `StateSpaceProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Source:
        Prop. 2 and Alg. 1–4, with Prop. 3 corrected.

    Stores:
        y and h of every layer, K·T·batch·(P + N) numbers, T·batch·O(P + N) numbers for the current layer, and the
        intermediates of one VJP at a time. A further derivative stores those of every VJP.

    Computes:
        K·T(T + 1)/2 VJPs of A and of B, and K·T of C. Evaluations: K·T + K·T(T + 1)/2 of A and of B, 2·K·T of C. FLOPs
        grow like T².

    Not for:
        Speed: `reverse_recurrence` gives the same gradient with K·T VJPs of each net.
    """
    return _sharded(problem, problem.data["tokens"].shape[0])


def adjoint_truncated(problem: StateSpaceProblem, *, window: int) -> tuple[Any, Tree]:
    """The loss, and the gradient in which each token reaches back over at most `window` tokens.

    The loss l^t of token t reaches A^i and B^i only for t − T̄ < i ≤ t. With window ≥ T the gradient is exact.

    Args:
        problem: any `StateSpaceProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.
        window: T̄, an integer of at least 1: how many tokens i each token t reaches, itself included.

    Returns:
        The loss, a scalar and not truncated, and the gradient of ``problem.cut_loss``, a tree like ``problem.params``
        with the same shapes and dtypes.

    Raises:
        IllegalOption: `window` is not an integer of at least 1.
        NotComposable: the gradient is differentiated again.

    Source:
        §4.3, Eq. 7, corrected as `adjoint_sharding` is.

    Stores:
        As `adjoint_sharding`.

    Computes:
        K·(T̄·T − T̄(T̄ − 1)/2) VJPs of A and of B for T̄ ≤ T, and K·T of C. Each VJP evaluates its net again, as in
        `adjoint_sharding`. At a fixed T̄ FLOPs grow linearly with T.

    Not for:
        Problems in which dependencies longer than `window` tokens matter: the gradient drops them and is biased.
    """
    window = check_integer("window", window, 1)
    params = first_order_only(
        problem.params,
        "adjoint_truncated cannot be differentiated again: the states before the window are constants in its gradient "
        "but depend on the parameters, so its derivative is no Hessian; use adjoint_sharding or reverse_recurrence",
    )
    return _sharded(problem.with_params(params), window)


def _sharded(problem: StateSpaceProblem, window: int) -> tuple[Any, Tree]:
    return by_layers(problem, lambda p, saved, g: pull_layer(problem, p, saved, g, window))


def by_layers(problem: StateSpaceProblem, pull: Callable[[Tree, Any, Any], tuple[Any, Tree]]) -> tuple[Any, Tree]:
    """Alg. 4 on one device: forward through all layers, then each layer's gradient from the last to the first.

    `pull` maps (parameters of layer k, what `run_layer` kept of it, g_k) to (g_{k−1}, gradient of its parameters).
    """
    params, data = problem.params, problem.data
    y, pull_embedding = jax.vjp(lambda e: problem.embed(e, data["tokens"]), params["embedding"])
    y, saved = jax.lax.scan(lambda y, p: run_layer(problem, p, y), y, params["layers"])
    loss, (d_head, g) = head_gradients(problem, params["head"], y, data["targets"], data["upstream"])
    g, d_layers = jax.lax.scan(lambda g, layer: pull(*layer, g), g, (params["layers"], saved), reverse=True)
    return loss, {"embedding": pull_embedding(g)[0], "layers": d_layers, "head": d_head}


def head_gradients(problem: StateSpaceProblem, head: Any, y: Any, targets: Any, upstream: Any) -> tuple[Any, Any]:
    """Loss at y_K (T, batch, P), and its gradients by the head and by y_K."""
    return jax.value_and_grad(problem.token_loss, argnums=(0, 1))(head, y, targets, upstream)


def run_layer(problem: StateSpaceProblem, p: Tree, y: Any) -> tuple[Any, tuple[Any, Any]]:
    """Alg. 1 for one layer, y_{k−1} -> y_k, token by token: one A, B and C exist at a time.

    Args:
        problem: supplies the maps.
        p: the parameters of layer k.
        y: y_{k−1}, (T, batch, P).

    Returns:
        y_k, (T, batch, P), and what `pull_layer` needs: y_{k−1} and the states h^0 … h^T, (T + 1, batch, N).

    Source:
        Alg. 1.

    Computes:
        T evaluations of A, B and C.
    """

    def token(h: Any, y: Any) -> tuple[Any, tuple[Any, Any]]:
        x = problem.norm(y)
        h = problem.apply(problem.A(p, x), h) + matvec(jnp, problem.B(p, x), x)
        return h, (h, y + matvec(jnp, problem.C(p, x), h))

    start = jnp.zeros((y.shape[1], problem.spec.state), y.dtype)
    _, (states, out) = jax.lax.scan(token, start, y)
    return out, (y, jnp.concatenate([start[None], states]))


# One layer, Prop. 2. With g^t = dl/dỹ^t, and h^t = A^t h^{t−1} + B^t ŷ^t, ỹ^t = C^t h^t, the loss of token t changes by
#     ⟨g^t, dC^t h^t⟩ + Σ_{i≤t} ⟨μ^{t,i}, dA^i h^{i−1} + dB^i ŷ^i + B^i dŷ^i⟩,
#     μ^{t,t} = (C^t)ᵀ g^t,  μ^{t,i−1} = (A^i)ᵀ μ^{t,i},
# and each term is one VJP: of C^t with cotangent g^t ⊗ h^t, of A^i with μ ⊗ h^{i−1}, of B^i with μ ⊗ ŷ^i. A VJP
# also returns the cotangent of its input ŷ; without it every layer below would be wrong.
def pull_layer(problem: StateSpaceProblem, p: Tree, saved: tuple[Any, Any], g: Any, window: int) -> tuple[Any, Tree]:
    """Alg. 2–4 for one layer: g_k -> g_{k−1}, and the gradient of the layer's parameters.

    Args:
        problem: supplies the maps.
        p: the parameters of layer k.
        saved: what `run_layer` kept.
        g: g_k, (T, batch, P).
        window: how many tokens each token reaches, itself included; T or more: all.

    Returns:
        g_{k−1}, (T, batch, P), and a tree like `p`.

    Source:
        Alg. 2–4.

    Stores:
        The intermediates of one VJP at a time.

    Computes:
        T VJPs of C; one of A and of B for each token t and each i ≤ t with t − `window` < i.
    """
    y, states = saved
    x, pull_norm = jax.vjp(problem.norm, y)

    def token(grads: Tree, xs: tuple[Any, Any, Any]) -> tuple[Tree, tuple[Any, Any]]:
        x, h, g = xs
        c, pull = jax.vjp(problem.C, p, x)
        dp, dx = pull(outer(g, h))
        return add(grads, dp), (dx, matvec(jnp, c.mT, g))

    grads, (dx, tops) = jax.lax.scan(token, widened(jax.tree.map(jnp.zeros_like, p)), (x, states[1:], g))

    def pair(carry: tuple[Any, ...], _: None) -> tuple[tuple[Any, ...], None]:
        t, i, mu, grads, dx = carry
        mu = jnp.where(i == t, tops[t], mu)
        (a, b), pull = jax.vjp(lambda p, x: (problem.A(p, x), problem.B(p, x)), p, x[i])
        dp, dx_nets = pull((problem.transition_cotangent(mu, states[i]), outer(mu, x[i])))
        dx = dx.at[i].add(dx_nets + matvec(jnp, b.mT, mu))
        last = (i == 0) | (i == t - window + 1)
        t, i = jnp.where(last, t + 1, t), jnp.where(last, t + 1, i - 1)
        return (t, i, problem.apply_transposed(a, mu), add(grads, dp), dx), None

    # All W(2T − W + 1)/2 pairs run in one walk, token after token, each from lag 0 on, so no position is masked out.
    # One of W and 2T − W + 1 is even. XLA counts a loop in 32 bits, and the product exceeds them at T = 65536, so there
    # are two loops. The inner loop has its own sum: T²/2 numbers added one by one would lose digits that T numbers do
    # not.
    T = y.shape[0]
    W = min(window, T)
    rows, columns = (W // 2, 2 * T - W + 1) if W % 2 == 0 else (W, T - W // 2)
    zeros = jax.tree.map(jnp.zeros_like, grads)

    def some(carry: tuple[Any, ...], _: None) -> tuple[tuple[Any, ...], None]:
        *place, grads, dx = carry
        (*place, part, dx), _ = jax.lax.scan(pair, (*place, zeros, dx), None, rows)
        return (*place, add(grads, part), dx), None

    start: tuple[Any, ...] = (0, 0, tops[0], grads, widened(dx))
    (*_, grads, dx), _ = jax.lax.scan(some, start, None, columns)
    return g + pull_norm(like(dx, x))[0], like(grads, p)


def reverse_recurrence(problem: StateSpaceProblem, *, chunk: int | None = None) -> tuple[Any, Tree]:
    """Loss and exact gradient from one VJP of each net per token, one slice of time at a time.

    The forward pass keeps the K states at the start of each slice of `chunk` tokens. The backward pass takes the slices
    from the last to the first. It recomputes the inside of a slice, and passes Aᵀμ of the slice's first token to the
    slice before it.

    Args:
        problem: any `StateSpaceProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.
        chunk: c, tokens per slice: None or an integer of at least 1. The last slice may be shorter. None, or T or
            more, means one slice.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        IllegalOption: `chunk` is neither None nor an integer of at least 1.

    Source:
        Beyond the paper: Prop. 2 with the sum over t carried out first, which turns it into a recurrence backward in
        time.

    Stores:
        The K states at the start of each slice, K·(T/c)·batch·N numbers, and the activations of one slice,
        c·batch·O(K(P + N) + N·P + |A|) numbers, where |A| is N² (unstructured), N (diagonal) or 1 (scalar). With c
        near √T the sum of both is smallest and grows like √T.

    Computes:
        K·T VJPs of each net. Evaluations: 2·K·T of each net, and K·c·⌊(T − 1)/c⌋ more, because every slice but the last
        runs forward once more. FLOPs grow linearly with T.

    Not for:
        Spreading tokens over devices: the slices run one after another, but the VJPs of `adjoint_sharding` are
        independent. Not for the gradients of single tokens' losses, which are summed here.
    """
    params, data = problem.params, problem.data
    T, batch = data["tokens"].shape
    chunk = T if chunk is None else check_integer("chunk", chunk, 1)
    n = (T - 1) // chunk  # full slices, which a scan runs; the last one, of 1 … chunk tokens, is run by itself

    def split(leaf: Any) -> tuple[Any, Any]:
        return leaf[: n * chunk].reshape(n, chunk, *leaf.shape[1:]), leaf[n * chunk :]

    (tokens, last_tokens), (targets, last_targets) = split(data["tokens"]), split(data["targets"])
    shape = (problem.spec.layers, batch, problem.spec.state)
    zero = jnp.zeros(shape, params["embedding"].dtype)

    def forward(h: Any, tokens: Any) -> tuple[Any, Any]:
        _, (_, states) = _run_slice(problem, params, h, tokens)
        return states[:, -1], h

    end, starts = jax.lax.scan(forward, zero, tokens) if n else (zero, None)
    mu, total = _pull_slice(problem, end, zero, last_tokens, last_targets)
    if n:

        def backward(carry: tuple[Any, Tree], xs: tuple[Any, Any, Any]) -> tuple[tuple[Any, Tree], None]:
            mu, total = carry
            start, tokens, targets = xs
            mu, part = _pull_slice(problem, start, mu, tokens, targets)
            return (mu, add(total, part)), None

        carry = (mu, widened(total))
        (_, wide), _ = jax.lax.scan(backward, carry, (starts, tokens, targets), reverse=True)
        total = like(wide, total)
    return total


def _run_slice(problem: StateSpaceProblem, params: Tree, start: Any, tokens: Any) -> tuple[Any, tuple[Any, Any]]:
    """All layers over one slice from the states `start` (K, batch, N); each net sees all tokens of the slice at once.

    Returns:
        y_K (c, batch, P), and per layer y_{k−1} (K, c, batch, P) and the states (K, c + 1, batch, N).
    """

    def layer(y: Any, xs: tuple[Tree, Any]) -> tuple[Any, tuple[Any, Any]]:
        p, h = xs
        x = problem.norm(y)

        def step(h: Any, ab: tuple[Any, Any]) -> tuple[Any, Any]:
            h = problem.apply(ab[0], h) + ab[1]
            return h, h

        _, states = jax.lax.scan(step, h, (problem.A(p, x), matvec(jnp, problem.B(p, x), x)))
        return y + matvec(jnp, problem.C(p, x), states), (y, jnp.concatenate([h[None], states]))

    return jax.lax.scan(layer, problem.embed(params["embedding"], tokens), (params["layers"], start))


# Summed over t ≥ i, the terms of `pull_layer` have one common factor μ^i = Σ_t μ^{t,i}, because dA^i, dB^i and dŷ^i do
# not depend on t. The sum follows a recurrence that runs backward in time,
#     μ^i = (C^i)ᵀ g^i + (A^{i+1})ᵀ μ^{i+1},
# so one VJP per token is enough. From slice to slice only (A^{i+1})ᵀ μ^{i+1} is passed, per layer: the cotangent of the
# slice's last state. Within a slice the layers run from the last to the first; each passes g_{k−1} = g_k + Normᵀ dŷ to
# the one below.
def _pull_slice(
    problem: StateSpaceProblem, start: Any, mu: Any, tokens: Any, targets: Any
) -> tuple[Any, tuple[Any, Tree]]:
    """The share of one slice in loss and gradient; its activations are recomputed from `start` (K, batch, N).

    Args:
        problem: supplies the maps and the parameters.
        start: the states before the slice.
        mu: cotangents of the states after it, (K, batch, N).
        tokens: (c, batch).
        targets: (c, batch) or (c, batch, P).

    Returns:
        The cotangents of `start`, and the slice's loss and gradient.
    """
    params = problem.params
    y, saved = _run_slice(problem, params, start, tokens)
    loss, (d_head, g) = head_gradients(problem, params["head"], y, targets, problem.data["upstream"])

    def layer(g: Any, xs: tuple[Tree, Any, tuple[Any, Any]]) -> tuple[Any, tuple[Any, Tree]]:
        p, mu, (y, states) = xs
        x, pull_norm = jax.vjp(problem.norm, y)
        (a, b, c), pull = jax.vjp(lambda p, x: (problem.A(p, x), problem.B(p, x), problem.C(p, x)), p, x)

        def step(mu: Any, xs: tuple[Any, Any]) -> tuple[Any, Any]:
            a, top = xs
            mu = top + mu
            return problem.apply_transposed(a, mu), mu

        before, mus = jax.lax.scan(step, mu, (a, matvec(jnp, c.mT, g)), reverse=True)
        cotangents = problem.transition_cotangent(mus, states[:-1]), outer(mus, x), outer(g, states[1:])
        dp, dx = pull(cotangents)
        return g + pull_norm(dx + matvec(jnp, b.mT, mus))[0], (before, dp)

    g, (mu, d_layers) = jax.lax.scan(layer, g, (params["layers"], mu, saved), reverse=True)
    (d_embedding,) = jax.vjp(lambda e: problem.embed(e, tokens), params["embedding"])[1](g)
    return mu, (loss, {"embedding": d_embedding, "layers": d_layers, "head": d_head})


def first_order_only(tree: Tree, reason: str) -> Tree:
    """`tree` unchanged; differentiating by it from outside raises NotComposable with `reason`."""

    @jax.custom_jvp
    def identity(tree: Tree) -> Tree:
        return tree

    @identity.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        raise NotComposable(reason)

    return identity(tree)


def widened(tree: Tree) -> Tree:
    """`tree` in at least float32, for accumulation: a long sum in bfloat16 would stop growing."""
    return jax.tree.map(lambda leaf: leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)), tree)


def add(left: Tree, right: Tree) -> Tree:
    """Sum of two trees, leaf by leaf, in the wider dtype."""
    return jax.tree.map(jnp.add, left, right)


def like(tree: Tree, reference: Tree) -> Tree:
    """`tree` in the dtypes of `reference`."""
    return jax.tree.map(lambda leaf, ref: leaf.astype(ref.dtype), tree, reference)
