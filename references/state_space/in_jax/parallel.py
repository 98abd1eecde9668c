"""What can run at once, in JAX: the VJPs of adjoint sharding on many instances, and the recurrence as a parallel scan.

Notation and units are those of ``methods``.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from gradgate.references.contract import Tree, check_integer
from gradgate.references.state_space.in_jax.methods import add, by_layers, like, widened
from gradgate.references.state_space.problem import StateSpaceProblem, matvec, outer
from gradgate.references.state_space.walks import Walks


def adjoint_parallel(problem: StateSpaceProblem, *, instances: int) -> tuple[Any, Tree]:
    """Loss and exact gradient as by `adjoint_sharding`; the VJPs of up to `instances` pairs of tokens run at once.

    Each adjoint state of one token t follows from the previous one. So each instance takes the tokens i that t depends
    on one after another, and different t run at the same time. The walks of a late and an early token are joined, so
    that all walks are equally long: no instance waits, and no VJP is masked out.

    Args:
        problem: any `StateSpaceProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.
        instances: m, an integer of at least 1. Instances beyond ⌈T/2⌉ have nothing to do.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        IllegalOption: `instances` is not an integer of at least 1.

    Source:
        §4.5, "7Υ instances", with Prop. 3 corrected.

    Stores:
        As `adjoint_sharding`, and the intermediates of m VJPs in place of one. A further derivative stores those of
        every VJP.

    Computes:
        K·T(T + 1)/2 VJPs of A and of B, and K·T of C, as many evaluations as `adjoint_sharding`. For an even T they run
        in K·(T + 1)·⌈T/(2m)⌉ batches of A and B, for an odd one in K·T·⌈(T + 1)/(2m)⌉, and in K·⌈T/m⌉ of C. FLOPs grow
        like T².

    Not for:
        A single instance, where it is `adjoint_sharding`. Not for speed: `associative_scan` has a shorter chain of
        operations and needs K·T VJPs of each net.
    """
    instances = check_integer("instances", instances, 1)
    return by_layers(problem, lambda p, saved, g: _pull_layer(problem, p, saved, g, instances))


def _pull_layer(
    problem: StateSpaceProblem, p: Tree, saved: tuple[Any, Any], g: Any, instances: int
) -> tuple[Any, Tree]:
    """g_k -> g_{k−1} and the gradient of the layer's parameters, as ``methods.pull_layer``."""
    y, states = saved
    x, pull_norm = jax.vjp(problem.norm, y)
    nothing = widened(jax.tree.map(jnp.zeros_like, p))
    grads, dx, tops = _pull_outputs(problem, p, (x, states[1:], g), instances)
    dx = widened(dx)

    walks = Walks.of(y.shape[0])
    for size, firsts in _stacked(walks.groups(instances)):

        def group(carry: tuple[Tree, Any], first: Any, size: int = size) -> tuple[tuple[Tree, Any], None]:
            grads, dx = carry

            def pair(carry: tuple[Any, ...], _: None) -> tuple[tuple[Any, ...], None]:
                t, i, mu, part, dx = carry
                mu = jnp.where((i == t)[:, None, None], tops[t], mu)
                (a, b), pull = jax.vjp(lambda p, x: (problem.A(p, x), problem.B(p, x)), p, x[i])
                dp, dx_nets = pull((problem.transition_cotangent(mu, states[i]), outer(mu, x[i])))
                dx = dx.at[i].add(dx_nets + matvec(jnp, b.mT, mu))
                other = walks.second(first) - 1  # tokens count from 0 here
                t, i = jnp.where(i == 0, other, t), jnp.where(i == 0, other, i - 1)
                return (t, i, problem.apply_transposed(a, mu), add(part, dp), dx), None

            start = (first - 1, first - 1, jnp.zeros((size, *tops.shape[1:]), tops.dtype), nothing, dx)
            (*_, part, dx), _ = jax.lax.scan(pair, start, None, walks.steps)
            return (add(grads, part), dx), None

        (grads, dx), _ = jax.lax.scan(group, (grads, dx), firsts)
    return g + pull_norm(like(dx, x))[0], like(grads, p)


def _pull_outputs(
    problem: StateSpaceProblem, p: Tree, tokens: tuple[Any, Any, Any], instances: int
) -> tuple[Tree, Any, Any]:
    """The backward pass of ỹ = C h, `instances` tokens at once.

    Args:
        problem: supplies C.
        p: the parameters of the layer.
        tokens: ŷ, h and g of all tokens.
        instances: m.

    Returns:
        The gradient of the parameters in at least float32, the cotangent of ŷ, and Cᵀg, of all tokens.
    """

    def some(grads: Tree, xs: tuple[Any, Any, Any]) -> tuple[Tree, tuple[Any, Any]]:
        x, h, g = xs
        c, pull = jax.vjp(problem.C, p, x)
        dp, dx = pull(outer(g, h))
        return add(grads, dp), (dx, matvec(jnp, c.mT, g))

    grads, made = widened(jax.tree.map(jnp.zeros_like, p)), []
    T = tokens[0].shape[0]
    m = min(instances, T)
    whole = T - T % m
    cut = jax.tree.map(lambda leaf: leaf[:whole].reshape(whole // m, m, *leaf.shape[1:]), tokens)
    grads, found = jax.lax.scan(some, grads, cut)
    made.append(jax.tree.map(lambda leaf: leaf.reshape(whole, *leaf.shape[2:]), found))
    if whole < T:
        grads, found = some(grads, jax.tree.map(lambda leaf: leaf[whole:], tokens))
        made.append(found)
    dx, tops = jax.tree.map(lambda *parts: jnp.concatenate(parts), *made)
    return grads, dx, tops


def _stacked(groups: Any) -> list[tuple[int, Any]]:
    """Groups of equal size as one array (groups, size), and the smaller last one by itself."""
    size = len(groups[0])
    full = [group for group in groups if len(group) == size]
    stacks = [(size, jnp.asarray([list(group) for group in full]))]
    return stacks + [(len(group), jnp.asarray([list(group)])) for group in groups[len(full) :]]


def associative_scan(problem: StateSpaceProblem) -> tuple[Any, Tree]:
    """Loss and gradient by plain reverse mode; the states of a layer are computed in about 2·log₂ T levels.

    h^t = A^t h^{t−1} + b^t is an affine map of h^{t−1}, and composition of affine maps is associative. So the states
    are a parallel prefix of these maps, and the backward pass is a parallel prefix too.

    Args:
        problem: any `StateSpaceProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.

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

    def loss(params: Tree) -> Any:
        y = problem.embed(params["embedding"], problem.data["tokens"])
        y, _ = jax.lax.scan(lambda y, p: (_layer(problem, p, y), None), y, params["layers"])
        return problem.token_loss(params["head"], y, problem.data["targets"], problem.data["upstream"])

    return jax.value_and_grad(loss)(problem.params)


def _layer(problem: StateSpaceProblem, p: Tree, y: Any) -> Any:
    """y_{k−1} -> y_k, both (T, batch, P)."""
    x = problem.norm(y)
    a, b = problem.A(p, x), matvec(jnp, problem.B(p, x), x)
    first = problem.apply(a[:1], jnp.zeros_like(b[:1])) + b[:1]  # h^1 = A^1 h^0 + b^1
    _, states = jax.lax.associative_scan(functools.partial(_after, problem), (a, jnp.concatenate([first, b[1:]])))
    return y + matvec(jnp, problem.C(p, x), states)


def _after(problem: StateSpaceProblem, first: tuple[Any, Any], then: tuple[Any, Any]) -> tuple[Any, Any]:
    """The affine map (A, b) that applies `first`, then `then`: (A₂A₁, A₂b₁ + b₂)."""
    (a, b), (c, d) = first, then
    return (c @ a if problem.spec.structure == "unstructured" else c * a), problem.apply(c, b) + d
