"""Meta-gradients in JAX: truncated BPTT, and the explicit recursion of Eq. 5–8 with mixed-mode products.

In the words of the code: θ_i is ``theta``, υ_i ``state``, ∇L_i ``grad``. The cotangents that go backwards through the
steps are ``d_theta`` = dV/dθ_i, ``d_state`` = dV/dυ_i and ``d_eta``, what the later steps add to dV/dη.

In the sections Stores and Computes, a number is one array element of the problem's dtype, and |θ|, |υ| and |η| are the
numbers in these trees.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from gradgate.references.bilevel.options import check_flag
from gradgate.references.bilevel.problem import BilevelProblem
from gradgate.references.contract import Tree

Inner = Callable[[Tree, Tree, Tree], Any]
"""L(θ, η, x), with or without block rematerialisation."""
Product = Callable[[Inner, Tree, Tree, Tree, Tree], tuple[Tree, Tree]]
"""(L, θ, η, x, v) -> ∂²L/∂θ² v and ∂²L/∂θ∂η v, the first like θ, the second like η."""
Carry = tuple[Tree, Tree]
"""θ_i and υ_i."""
Cotangents = tuple[Tree, Tree, Tree]
"""dV/dθ_i; dV/dυ_i as the list of its `floats`; and what the steps from i on add to dV/dη."""


@functools.partial(jax.jit, static_argnames=("remat", "save_inner_grads"))
def truncated_bptt(problem: BilevelProblem, *, remat: bool = False, save_inner_grads: bool = False) -> tuple[Any, Tree]:
    """Loss and meta-gradient by reverse mode over the inner steps, each checkpointed: reverse over reverse mode.

    Args:
        problem: any `BilevelProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.
        remat: True or False. True rematerialises the layers of the inner model one by one (block rematerialisation).
        save_inner_grads: True or False. True keeps ∇L_i of every step from the forward pass.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        IllegalOption: an option is neither True nor False.

    Source:
        Algorithm 1 with the checkpointing of §4: the paper's baseline ("standard", "default").

    Stores:
        θ_i and υ_i of every step, T·(|θ| + |υ|) numbers, and T·|θ| more with saved gradients; and all that the reverse
        pass through one ∇L_i reads, which grows with layers times activations, even with `remat`.

    Computes:
        Per step, two gradients of L and the VJP of one, which costs about two gradients more. Saving ∇L_i saves no
        gradient, because its VJP needs the same intermediates. With `remat` every layer is evaluated again. FLOPs grow
        linearly with T.

    Not for:
        Inner models of many layers. Use `mixflow`.
    """
    inner = inner_loss(problem, remat)
    saved = ("inner_grads",) if check_flag("save_inner_grads", save_inner_grads) else ()

    @functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.save_only_these_names(*saved))
    def step(carry: Carry, eta: Tree, x: Tree) -> Carry:
        theta, state = carry
        grad = checkpoint_name(jax.grad(inner)(theta, eta, x), "inner_grads")
        return problem.update(grad, theta, state, eta, x)

    def outer(eta: Tree) -> Any:
        (theta, _), _ = jax.lax.scan(lambda carry, x: (step(carry, eta, x), None), problem.init(eta), problem.xs)
        return problem.outer_loss(theta, problem.y, block=block_of(remat))

    return jax.value_and_grad(outer)(problem.params)


@functools.partial(jax.jit, static_argnames=("remat", "save_inner_grads"))
def mixflow(problem: BilevelProblem, *, remat: bool = False, save_inner_grads: bool = False) -> tuple[Any, Tree]:
    """Loss and meta-gradient by the recursion of Eq. 6, with second derivatives by forward over reverse mode.

    Args:
        problem: any `BilevelProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.
        remat: True or False. True rematerialises the layers of the inner model one by one (block rematerialisation).
        save_inner_grads: True or False. True keeps ∇L_i of every step from the forward pass, so that the backward pass
            does not compute it again.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        IllegalOption: an option is neither True nor False.

    Source:
        Algorithm 2, §4. It writes the recursion out instead of giving ∇L a custom rule, so that a further derivative
        works.

    Stores:
        θ_i and υ_i of every step, T·(|θ| + |υ|) numbers, and T·|θ| more with saved gradients; and the activations and
        tangents of one gradient of L. With `remat` these are the input of every layer and its tangent, and the
        activations of one layer.

    Computes:
        Per step, two gradients of L, one if ∇L_i is saved, and one gradient with tangents, which costs about two more.
        FLOPs grow linearly with T. JAX leaves the second gradient out where the update does not read ∇L's value: in SGD
        and momentum with fixed learning rates.

    Not for:
        T so large that T states do not fit in memory. Use `log_remat`, or `gradient_replay` with Adam.
    """
    save = check_flag("save_inner_grads", save_inner_grads)
    return stored(problem, inner_loss(problem, remat), forward_over_reverse, save, block_of(remat))


@jax.jit
def reverse_over_forward(problem: BilevelProblem) -> tuple[Any, Tree]:
    """Loss and meta-gradient by the recursion of Eq. 6, with second derivatives by reverse over forward mode.

    Args:
        problem: any `BilevelProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Source:
        Proposition 3.1, the other alternative.

    Stores:
        θ_i and υ_i of every step, T·(|θ| + |υ|) numbers; and the activations of one L and of its tangents, for all
        layers of the inner model.

    Computes:
        Per step, two gradients of L, and one gradient of L's JVP, which costs about two more. FLOPs grow linearly with
        T. JAX leaves the second gradient out where the update does not read ∇L's value: in SGD and momentum with fixed
        learning rates.

    Not for:
        Inner models whose activations do not fit in memory: no layer is rematerialised here. Use `mixflow` with
        `remat`.
    """
    return stored(problem, problem.inner_loss, reverse_over_forward_product, False, block_of(False))


# v below is v ∂Υ/∂∇L, which the VJP of the update gives. Eq. 7 and 8 are then the two products. One differentiation
# yields both: the first by θ, the second by η.
def forward_over_reverse(inner: Inner, theta: Tree, eta: Tree, x: Tree, v: Tree) -> tuple[Tree, Tree]:
    """∂²L/∂θ² v and ∂²L/∂θ∂η v as the JVP along v of the gradient by (θ, η)."""
    gradients = jax.grad(inner, argnums=(0, 1))
    found: tuple[Tree, Tree] = jax.jvp(lambda theta: gradients(theta, eta, x), (theta,), (v,))[1]
    return found


def reverse_over_forward_product(inner: Inner, theta: Tree, eta: Tree, x: Tree, v: Tree) -> tuple[Tree, Tree]:
    """∂²L/∂θ² v and ∂²L/∂θ∂η v as the gradient by (θ, η) of the slope of L along v."""

    def slope(theta: Tree, eta: Tree) -> Any:
        return jax.jvp(lambda theta: inner(theta, eta, x), (theta,), (v,))[1]

    found: tuple[Tree, Tree] = jax.grad(slope, argnums=(0, 1))(theta, eta)
    return found


def stored(
    problem: BilevelProblem, inner: Inner, product: Product, save: bool, block: Callable[..., Any]
) -> tuple[Any, Tree]:
    """Run forward over the steps, keeping every (θ_i, υ_i), then backward: the walk of `mixflow`, with any product."""
    eta = problem.eta

    def forward(carry: Carry, x: Tree) -> tuple[Carry, Any]:
        grad = jax.grad(inner)(carry[0], eta, x)
        return problem.update(grad, *carry, eta, x), (carry, grad if save else None)

    def backward(cotangents: Cotangents, inputs: Any) -> tuple[Cotangents, None]:
        x, (carry, grad) = inputs
        return pull_step(problem, inner, product, carry, grad, x, cotangents), None

    (theta, state), kept = jax.lax.scan(forward, problem.init(problem.params), problem.xs)
    loss, cotangents = pull_outer(problem, theta, state, block)
    cotangents, _ = jax.lax.scan(backward, cotangents, (problem.xs, kept), reverse=True)
    return loss, pull_init(problem, cotangents)


def pull_outer(problem: BilevelProblem, theta: Tree, state: Tree, block: Callable[..., Any]) -> tuple[Any, Cotangents]:
    """The outer loss V and its cotangents (Eq. 5).

    Args:
        problem: supplies V and y.
        theta, state: θ_T and υ_T.
        block: wraps the function of each layer.

    Returns:
        V, a scalar or with `has_aux` a pair, and (dV/dθ_T, dV/dυ_T, dV/dη). The last is the derivative by the η that V
        reads directly. V does not read υ_T, so its part is zeros.

    Source:
        Eq. 5.

    Computes:
        One gradient of V.
    """
    outer = functools.partial(problem.outer, block=block)
    loss, (d_theta, d_eta) = jax.value_and_grad(outer, argnums=(0, 1), has_aux=problem.has_aux)(theta, problem.eta)
    return loss, (d_theta, [jnp.zeros_like(leaf) for leaf in floats(state)], d_eta)


def pull_step(
    problem: BilevelProblem,
    inner: Inner,
    product: Product,
    carry: Carry,
    grad: Tree | None,
    x: Tree,
    cotangents: Cotangents,
) -> Cotangents:
    """One step of Eq. 6 from the left: the cotangents of its outputs -> those of its inputs.

    Args:
        problem: supplies the update.
        inner: L.
        product: (L, θ, η, x, v) -> the products with second derivatives.
        carry: θ_i and υ_i.
        grad: ∇L_i; None: it is computed here.
        x: x_i.
        cotangents: dV/dθ_{i+1}, dV/dυ_{i+1}, and dV/dη of the later steps.

    Returns:
        dV/dθ_i, dV/dυ_i, and dV/dη of the steps from i on.

    Source:
        Eq. 6–8.

    Stores:
        What one product needs.

    Computes:
        One product of second derivatives, one VJP of the update, and one gradient of L unless it is given.
    """
    theta, state = carry
    eta = problem.eta
    d_theta, d_state, d_eta = cotangents
    if grad is None:
        grad = jax.grad(inner)(theta, eta, x)

    def update(grad: Tree, theta: Tree, numbers: list[Any], eta: Tree) -> tuple[Tree, list[Any]]:
        theta, after = problem.update(grad, theta, with_floats(state, numbers), eta, x)
        return theta, floats(after)

    _, pull = jax.vjp(update, grad, theta, floats(state), eta)
    v, d_theta, d_state, d_eta_update = pull((d_theta, d_state))
    hessian, mixed = product(inner, theta, eta, x, v)
    return _sum(d_theta, hessian), d_state, _sum(d_eta, d_eta_update, mixed)


def pull_init(problem: BilevelProblem, cotangents: Cotangents) -> Tree:
    """The last factor of Eq. 6: dV/dη, including the part through θ_0 and υ_0.

    Args:
        problem: supplies θ_0 and υ_0.
        cotangents: dV/dθ_0, dV/dυ_0, and dV/dη of all steps.

    Returns:
        dV/dη, a tree like ``problem.params``.

    Source:
        Eq. 6.
    """

    def start(params: Tree) -> tuple[Tree, list[Any], Tree]:
        theta, state, eta = problem.start(params)
        return theta, floats(state), eta

    return jax.vjp(start, problem.params)[1](cotangents)[0]


def floats(state: Tree) -> list[Any]:
    """The leaves of υ that have a cotangent: a counter or a key of random numbers has none."""
    return [leaf for leaf in jax.tree.leaves(state) if _is_float(leaf)]


def with_floats(state: Tree, numbers: list[Any]) -> Tree:
    """υ with `numbers` in the place of `floats`."""
    given = iter(numbers)
    return jax.tree.map(lambda leaf: next(given) if _is_float(leaf) else leaf, state)


def _is_float(leaf: Any) -> bool:
    return bool(jnp.issubdtype(jnp.result_type(leaf), jnp.inexact))


def _sum(*trees: Tree) -> Tree:
    return jax.tree.map(lambda *leaves: sum(leaves[1:], leaves[0]), *trees)


def block_of(remat: Any) -> Callable[..., Any]:
    """The wrapper of a layer. Layers run in a scan, and the compiler merges nothing across it, so CSE may stay on."""
    return functools.partial(jax.checkpoint, prevent_cse=False) if check_flag("remat", remat) else lambda layer: layer


def inner_loss(problem: BilevelProblem, remat: Any) -> Inner:
    """L(θ, η, x), with its layers rematerialised or not.

    Args:
        problem: supplies L.
        remat: True or False.

    Returns:
        The function.

    Raises:
        IllegalOption: `remat` is neither True nor False.
    """
    return functools.partial(problem.inner_loss, block=block_of(remat))
