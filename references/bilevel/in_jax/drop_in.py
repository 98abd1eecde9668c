"""Listing 1 as a drop-in for `jax.grad` that works: inputs of integers, trees, and η's cotangent (A.3)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradgate.references.bilevel.in_jax.methods import Carry, block_of, inner_loss
from gradgate.references.bilevel.problem import BilevelProblem
from gradgate.references.contract import NotComposable, Tree


def fwdrev_grad(inner: Callable[..., Any]) -> Callable[..., Tree]:
    """``jax.grad(inner)``, whose own products are by forward mode over reverse mode.

    Args:
        inner: (θ, inputs …) -> scalar. All that a derivative is to be taken by has to be an argument: JAX refuses an
            `inner` that closes over it. Inputs are trees; leaves of integers or booleans have no cotangent.

    Returns:
        (θ, inputs …) -> a tree like θ. It is for one reverse pass: JAX refuses forward mode through it, as through
        every `jax.custom_vjp`, and a second reverse pass is refused here.

    Raises:
        NotComposable: what a reverse pass gives is differentiated again.

    Source:
        Listing 1. As printed it differentiates by every input, which `jax.grad` refuses where one is of integers.

    Stores:
        θ and the inputs until it is pulled back, and then what one product needs.

    Computes:
        One gradient, and pulled back one gradient with tangents.
    """

    @jax.custom_vjp
    def gradient(theta: Tree, *inputs: Any) -> Tree:
        return jax.grad(inner)(theta, *inputs)

    def forward(theta: Tree, *inputs: Any) -> tuple[Tree, Any]:
        return gradient(theta, *inputs), (theta, inputs)

    def backward(residuals: Any, v: Tree) -> tuple[Tree, ...]:
        (theta, inputs), v = _once((residuals, v))
        flat, structure = jax.tree.flatten(inputs)
        places = [i for i, leaf in enumerate(flat) if jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)]

        def chosen(theta: Tree, floats: list[Any]) -> Any:
            given = dict(enumerate(flat)) | dict(zip(places, floats, strict=True))
            return inner(theta, *jax.tree.unflatten(structure, given.values()))

        gradients = jax.grad(chosen, argnums=(0, 1))
        by_theta, by_floats = jax.jvp(lambda p: gradients(p, [flat[i] for i in places]), (theta,), (v,))[1]
        found = {i: np.zeros(jnp.shape(leaf), jax.dtypes.float0) for i, leaf in enumerate(flat)}
        found |= dict(zip(places, by_floats, strict=True))
        return by_theta, *jax.tree.unflatten(structure, found.values())

    gradient.defvjp(forward, backward)
    return gradient


@jax.custom_jvp
def _once(tree: Tree) -> Tree:
    """`tree`; a derivative of it is refused."""
    return tree


@_once.defjvp
def _refused(primals: Any, tangents: Any) -> Any:
    raise NotComposable(
        "the rule of fwdrev_grad is for one reverse pass: inside of jax.lax.scan JAX mistakes its arguments in a "
        "second one; use mixflow, which writes the recursion out"
    )


@functools.partial(jax.jit, static_argnames=("remat",))
def mixflow_drop_in(problem: BilevelProblem, *, remat: bool = False) -> tuple[Any, Tree]:
    """Loss and meta-gradient of a user's own loop over steps, whose gradient of L is by `fwdrev_grad`.

    Args:
        problem: any `BilevelProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.
        remat: True or False. True rematerialises the layers of the inner model one by one (block rematerialisation).

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        IllegalOption: `remat` is neither True nor False.
        NotComposable: a further derivative is taken.

    Source:
        Listings 1 and 2, mended, in Algorithm 2.

    Stores:
        θ_i and υ_i of every step, T·(|θ| + |υ|) numbers; and the activations and tangents of one gradient of L, with
        `remat` the input of every layer and its tangent.

    Computes:
        As `mixflow`: per step, two gradients of L and one gradient with tangents, which costs about two more.

    Not for:
        A further derivative of the meta-gradient. Use `mixflow`, which writes the recursion out.
    """
    gradient = fwdrev_grad(inner_loss(problem, remat))

    @jax.checkpoint
    def step(carry: Carry, eta: Tree, x: Tree) -> Carry:
        return problem.update(gradient(carry[0], eta, x), *carry, eta, x)

    def outer(eta: Tree) -> Any:
        (theta, _), _ = jax.lax.scan(lambda carry, x: (step(carry, eta, x), None), problem.init(eta), problem.xs)
        return problem.outer_loss(theta, problem.y, block=block_of(remat))

    return jax.value_and_grad(outer)(problem.params)
