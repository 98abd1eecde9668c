"""`mixed_mode_grad`: a gradient in JAX whose own derivative is by forward over reverse mode (Listing 1 that works)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np

from gradgate.references.bilevel.options import chosen_arguments
from gradgate.references.contract import NotComposable, Tree, UsageError


def mixed_mode_grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """``jax.grad(fun, argnums, has_aux)``, whose own derivative is by forward over reverse mode.

    Put it in the place of the inner `jax.grad` of a meta-gradient, of a gradient penalty, or of any other loss that
    reads a gradient. The outer derivative is then a forward pass through the gradient: it does not store what a reverse
    pass through a reverse pass stores.

    Args:
        fun: (arguments …) -> a floating scalar, or with `has_aux` the scalar and a tree of arrays. Arrays that it
            closes over get their cotangents too.
        argnums: the arguments that the gradient is taken by, trees of floating arrays.
        has_aux: whether `fun` returns a pair.

    Returns:
        A function of `fun`'s arguments; those not in `argnums` may be any objects. It returns the gradient, a tree like
        the argument, or a tuple of these if `argnums` is a sequence; with `has_aux`, a pair of the gradient and the
        tree. Arrays of integers, and keys of random numbers, have no cotangent.

    Raises:
        UsageError: `argnums` names no argument, or one without floating numbers; or `fun` returns no floating scalar.
        NotComposable: the derivative of the gradient is differentiated once more.

    Source:
        Listing 1, corrected: as printed it differentiates by every input, which `jax.grad` refuses for integers.

    Stores:
        The arguments and what `fun` closes over, until the backward pass; then the activations of one gradient and
        their tangents, or with rematerialised layers the input of every layer and its tangent.

    Computes:
        One gradient; in the backward pass one gradient with tangents, which costs about two. `fun` is traced at every
        call outside `jax.jit`.

    Not for:
        Control flow in Python that reads numbers of the arguments in `argnums`: `fun` is traced. Third derivatives: use
        `jax.grad`. A `fun` with few layers, whose second derivative by reverse mode fits in memory anyway.

    Example::

        grads = mixed_mode_grad(loss)(params, batch)   # in the inner loop, in the place of jax.grad(loss)
    """
    if not callable(fun):
        raise UsageError(f"fun must be a function, not a {type(fun).__name__}")

    @functools.wraps(fun)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        places = chosen_arguments(argnums, len(args))
        leaves, structure = jax.tree.flatten([args[place] for place in places])
        _check_floating(leaves, argnums)

        def given(*leaves: Any) -> Any:
            chosen = dict(zip(places, jax.tree.unflatten(structure, leaves), strict=True))
            return fun(*(chosen.get(i, arg) for i, arg in enumerate(args)), **kwargs)

        closed, shapes = jax.make_jaxpr(given, return_shape=True)(*leaves)
        _check_scalar(shapes, has_aux)
        consts = [jnp.asarray(const) for const in closed.consts]
        found, aux = _differentiable(closed.jaxpr, jax.tree.structure(shapes), has_aux)(list(leaves), consts)
        grads = tuple(jax.tree.unflatten(structure, found))
        grads = grads[0] if isinstance(argnums, int) else grads
        return (grads, aux) if has_aux else grads

    return gradient


def _differentiable(jaxpr: Any, structure: Any, has_aux: bool) -> Callable[[list[Any], list[Any]], tuple[Any, Any]]:
    """(leaves, constants) -> the gradient by the leaves, and the program's aux; the gradient has a custom VJP.

    Args:
        jaxpr: the program. What it closes over are its constants.
        structure: the structure of its results.
        has_aux: whether the results are a pair.
    """

    def run(leaves: list[Any], consts: list[Any]) -> tuple[Any, Any]:
        flat = jax.extend.core.jaxpr_as_fun(jax.extend.core.ClosedJaxpr(jaxpr, consts))(*leaves)
        found = jax.tree.unflatten(structure, flat)
        return found if has_aux else (found, ())

    @jax.custom_vjp
    def gradient(leaves: list[Any], consts: list[Any]) -> tuple[Any, Any]:
        return jax.grad(run, has_aux=True)(leaves, consts)

    def forward(leaves: list[Any], consts: list[Any]) -> tuple[Any, Any]:
        return gradient(leaves, consts), (leaves, consts)

    def backward(kept: Any, cotangents: Any) -> tuple[list[Any], list[Any]]:
        (leaves, consts), (v, v_aux) = _once((kept, cotangents))
        places = [i for i, const in enumerate(consts) if _is_floating(const)]

        def tilted(leaves: list[Any], floats: list[Any], amount: Any) -> Any:
            merged = dict(enumerate(consts)) | dict(zip(places, floats, strict=True))
            value, aux = run(leaves, list(merged.values()))
            return value + (amount * _inner(v_aux, aux)).astype(value.dtype) if jax.tree.leaves(aux) else value

        # The derivative of ∇(f + amount·⟨v_aux, aux⟩) by `amount` is ∇⟨v_aux, aux⟩, so one product does both.
        gradients = jax.grad(tilted, argnums=(0, 1))
        floats, zero = [consts[i] for i in places], jnp.zeros((), jnp.float32)
        along = jax.jvp(lambda p, amount: gradients(p, floats, amount), (leaves, zero), (v, jnp.ones_like(zero)))
        by_leaves, by_floats = along[1]
        found = {i: np.zeros(jnp.shape(const), jax.dtypes.float0) for i, const in enumerate(consts)}
        return by_leaves, list((found | dict(zip(places, by_floats, strict=True))).values())

    gradient.defvjp(forward, backward)
    return gradient


def _inner(v: Tree, tree: Tree) -> Any:
    """⟨v, tree⟩ over the floating leaves."""
    pairs = zip(jax.tree.leaves(v), jax.tree.leaves(tree), strict=True)
    return sum((jnp.sum(a * b) for a, b in pairs if _is_floating(b)), 0.0)


def _is_floating(leaf: Any) -> bool:
    return bool(jnp.issubdtype(jnp.result_type(leaf), jnp.inexact))


def _check_floating(leaves: Sequence[Any], argnums: Any) -> None:
    for leaf in leaves:
        if not _is_floating(leaf):
            raise UsageError(
                f"argnums={argnums!r} names an argument with a leaf of {jnp.result_type(leaf)}; a gradient is by "
                "floating arrays alone: pass this leaf in another argument, or close over it"
            )


def _check_scalar(shapes: Any, has_aux: bool) -> None:
    if has_aux and not (isinstance(shapes, tuple) and len(shapes) == 2):
        raise UsageError(f"with has_aux=True, fun returns a pair (scalar, aux), not a {type(shapes).__name__}")
    value = shapes[0] if has_aux else shapes
    if getattr(value, "shape", None) != () or not jnp.issubdtype(value.dtype, jnp.floating):
        more = "" if has_aux else "; if it returns more than the scalar, say has_aux=True"
        raise UsageError(f"fun must return a floating scalar, not {value}{more}")


@jax.custom_jvp
def _once(tree: Tree) -> Tree:
    """`tree`, whose derivative is refused."""
    return tree


@_once.defjvp
def _refused(primals: Any, tangents: Any) -> Any:
    raise NotComposable(
        "the rule of mixed_mode_grad is for one reverse pass: inside of jax.lax.scan JAX mistakes its arguments in a "
        "second one; use jax.grad, or mixflow and meta_gradient, which write the recursion out"
    )
