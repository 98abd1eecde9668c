"""Errata of MixFlow-MG in JAX: what the paper prints, which must be refuted or refuse."""

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
    """Loss and meta-gradient with the custom rule of Listing 1 for ∇L, which differentiates by every input.

    Args:
        problem: any `BilevelProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        TypeError: an input of L is of integers, as tokens and classes are; or a further derivative is taken in forward
            mode.

    Source:
        Listing 1 in Algorithm 2, as printed.

    Stores:
        As `mixflow` with neither option: θ_i and υ_i of every step, T·(|θ| + |υ|) numbers, and what one product needs.

    Computes:
        As `mixflow`, and the derivatives by the batch too.

    Not for:
        Any use but refuting the printed Listing 1. Use `mixflow`.
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
    """``grad(inner)`` by its first argument, with the printed rule."""

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
    """Loss and meta-gradient with the checkpointed steps of Listing 3, one of its mistakes as printed.

    Args:
        problem: any `BilevelProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.
        mistake: which mistake is kept, the rest corrected. ``name``: the outer function binds the inner one's name to
            its checkpointed self, so that the name is unbound where that is made. ``result``: the inner step returns
            nothing. ``unpacking``: one name takes what a scan returns, a pair.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes. No mistake
        lets it get there.

    Raises:
        IllegalOption: `mistake` is none of these.
        UnboundLocalError: what ``name`` leads to.
        TypeError: what ``result`` leads to.
        ValueError: what ``unpacking`` leads to.

    Source:
        Listing 3, as printed.

    Stores:
        As `truncated_bptt` with saved gradients.

    Computes:
        As `truncated_bptt`.

    Not for:
        Any use but refuting the printed Listing 3. Use `truncated_bptt`.
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
