"""Errata of MixFlow-MG in JAX: the listings as the paper prints them. Each one must be refuted or raise an error."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax.ad_checkpoint import checkpoint_name

from gradgate.references.bilevel.in_jax.methods import Carry
from gradgate.references.bilevel.problem import BilevelProblem
from gradgate.references.contract import Tree


def listing1_printed(problem: BilevelProblem) -> tuple[Any, Tree]:
    """Loss and meta-gradient with the custom rule of Listing 1 for ∇L. The rule differentiates by every input.

    Args:
        problem: any `BilevelProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        TypeError: an input of L holds integers, for example tokens or classes; or a further derivative is taken in
            forward mode.

    Source:
        Listing 1 in Algorithm 2, as printed.

    Stores:
        The same as `mixflow` without options: θ_i and υ_i of every step, which are T·(|θ| + |υ|) numbers, and what one
        product needs.

    Computes:
        The same as `mixflow`, and also the derivatives by the batch.

    Not for:
        Anything except refuting the printed Listing 1. Use `mixflow`.
    """

    def inner(theta: Tree, eta: Tree, inputs: Any, targets: Any) -> Any:
        return problem.inner_loss(theta, eta, {"inputs": inputs, "targets": targets})

    gradient = _listing1(inner)

    def outer(eta: Tree) -> Any:
        def step(carry: Carry, x: Tree) -> tuple[Carry, None]:
            grad = gradient(carry[0], eta, x["inputs"], x["targets"])
            return problem.update(grad, *carry, eta, x), None

        (theta, _), _ = jax.lax.scan(step, problem.init(eta), problem.xs)
        return problem.outer_loss(theta, problem.y)

    return jax.value_and_grad(outer)(problem.params)


def _listing1(inner: Callable[..., Any]) -> Callable[..., Tree]:
    """``grad(inner)`` with respect to its first argument, with the printed rule."""

    @jax.custom_vjp
    def gradient(theta: Tree, *inputs: Any) -> Tree:
        return jax.grad(inner)(theta, *inputs)

    def forward(theta: Tree, *inputs: Any) -> tuple[Tree, Any]:
        return gradient(theta, *inputs), (theta, inputs)

    def backward(residuals: Any, v: Tree) -> Any:
        theta, inputs = residuals
        by_every_input = jax.grad(inner, argnums=range(len(inputs) + 1))
        return jax.jvp(lambda theta: by_every_input(theta, *inputs), (theta,), (v,))[1]

    gradient.defvjp(forward, backward)
    return gradient


def listing3_printed(problem: BilevelProblem, *, mistake: str = "name") -> tuple[Any, Tree]:
    """Loss and meta-gradient with the checkpointed steps of Listing 3, with one of its mistakes as printed.

    Args:
        problem: any `BilevelProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.
        mistake: the mistake that is kept; the others are corrected. ``name``: the outer function assigns the
            checkpointed inner step to the inner step's own name, so this name is a local variable that has no value
            yet when it is read. ``result``: the inner step returns nothing. ``unpacking``: the pair that a scan
            returns is unpacked into a single name.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes. In fact
        nothing is ever returned, because each mistake raises an error.

    Raises:
        AssertionError: `mistake` is none of these.
        UnboundLocalError: with ``name``.
        TypeError: with ``result``.
        ValueError: with ``unpacking``.

    Source:
        Listing 3, as printed.

    Stores:
        The same as `truncated_bptt` with saved gradients.

    Computes:
        The same as `truncated_bptt`.

    Not for:
        Anything except refuting the printed Listing 3. Use `truncated_bptt`.
    """
    assert mistake in ("name", "result", "unpacking")
    policy = jax.checkpoint_policies.save_only_these_names("inner_grads")

    def inner_step(eta: Tree, carry: Carry, x: Tree) -> Any:
        grad = checkpoint_name(jax.grad(problem.inner_loss)(carry[0], eta, x), "inner_grads")
        result = problem.update(grad, *carry, eta, x), None
        return None if mistake == "result" else result

    def steps_with_the_name(eta: Tree) -> Any:
        inner_step = jax.checkpoint(inner_step, policy=policy)  # noqa: F823 - as printed
        return jax.lax.scan(functools.partial(inner_step, eta), problem.init(eta), problem.xs)

    def steps(eta: Tree) -> Any:
        step = functools.partial(jax.checkpoint(inner_step, policy=policy), eta)
        return jax.lax.scan(step, problem.init(eta), problem.xs)

    def outer(eta: Tree) -> Any:
        scanned = steps_with_the_name(eta) if mistake == "name" else steps(eta)
        if mistake == "unpacking":
            (carry,) = scanned
        else:
            carry, _ = scanned
        return problem.outer_loss(carry[0], problem.y)

    return jax.value_and_grad(outer)(problem.params)
