"""Meta-gradients in PyTorch by the explicit recursion of Eq. 5–8, with several products of second derivatives.

In the words of the code: θ_i is ``theta``, υ_i ``state``, ∇L_i ``grad``. The cotangents that go backwards through the
steps are ``d_theta`` = dV/dθ_i, ``d_state`` = dV/dυ_i and ``d_eta``, what the later steps add to dV/dη. Everything is
written with `torch.func`, so that `torch.func.vmap` over η and a further derivative work.

In the sections Stores and Computes, a number is one array element of the problem's dtype, and |θ|, |υ| and |η| are the
numbers in these trees.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree

from gradgate.references.backends import tree_map
from gradgate.references.bilevel.in_torch.direct import jvp, vjp
from gradgate.references.bilevel.in_torch.remat import remat as rematerialised
from gradgate.references.bilevel.options import check_flag
from gradgate.references.bilevel.problem import BilevelProblem
from gradgate.references.contract import Tree

with warnings.catch_warnings():  # PyTorch's first JVP loads rules that PyTorch itself reports as deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    torch.func.jvp(torch.tanh, (torch.zeros(()),), (torch.ones(()),))

Inner = Callable[[Tree, Tree, Tree], Any]
"""L(θ, η, x), with or without block rematerialisation."""
Products = Callable[[Tree], tuple[Tree, Tree]]
"""v -> ∂²L/∂θ² v and ∂²L/∂θ∂η v, the first like θ, the second like η."""
Mode = Callable[[Inner, Tree, Tree, Tree, Tree | None], tuple[Tree, Products]]
"""(L, θ, η, x, ∇L or None) -> ∇L and its products."""
Carry = tuple[Tree, Tree]
"""θ_i and υ_i."""
Cotangents = tuple[Tree, Tree, Tree]
"""dV/dθ_i; dV/dυ_i as the list of its `floats`; and what the steps from i on add to dV/dη."""


def truncated_bptt(
    problem: BilevelProblem, *, remat: bool = False, save_inner_grads: bool = False
) -> tuple[torch.Tensor, Tree]:
    """Loss and meta-gradient by reverse mode over the inner steps, each checkpointed: reverse over reverse mode.

    Args:
        problem: any `BilevelProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.
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
    return _from_options(problem, remat, reverse_over_reverse, save_inner_grads)


def mixflow(
    problem: BilevelProblem, *, remat: bool = False, save_inner_grads: bool = False
) -> tuple[torch.Tensor, Tree]:
    """Loss and meta-gradient by the recursion of Eq. 6, with second derivatives by forward over reverse mode.

    Args:
        problem: any `BilevelProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.
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
        FLOPs grow linearly with T.

    Not for:
        T so large that T states do not fit in memory. Use `log_remat`, or `gradient_replay` with Adam.
    """
    return _from_options(problem, remat, forward_over_reverse, save_inner_grads)


def reverse_over_forward(problem: BilevelProblem) -> tuple[torch.Tensor, Tree]:
    """Loss and meta-gradient by the recursion of Eq. 6, with second derivatives by reverse over forward mode.

    Args:
        problem: any `BilevelProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Source:
        Proposition 3.1, the other alternative.

    Stores:
        θ_i and υ_i of every step, T·(|θ| + |υ|) numbers; and the activations of one L and of its tangents, for all
        layers of the inner model.

    Computes:
        Per step, two gradients of L, and one gradient of L's JVP, which costs about two more. FLOPs grow linearly with
        T.

    Not for:
        Inner models whose activations do not fit in memory: no layer is rematerialised here. Use `mixflow` with
        `remat`.
    """
    return _from_options(problem, False, reverse_over_forward_mode, False)


def reverse_over_reverse(inner: Inner, theta: Tree, eta: Tree, x: Tree, grad: Tree | None) -> tuple[Tree, Products]:
    """∇L, and the products as the VJP of ∇L."""
    found, pull = vjp(lambda theta, eta: gradient(inner, theta, eta, x), theta, eta)
    return found if grad is None else grad, pull


# v below is v ∂Υ/∂∇L, which the VJP of the update gives. Eq. 7 and 8 are then the two products. One differentiation
# yields both: the first by θ, the second by η.
def forward_over_reverse(inner: Inner, theta: Tree, eta: Tree, x: Tree, grad: Tree | None) -> tuple[Tree, Products]:
    """∇L, and the products as the JVP along v of the gradient by (θ, η)."""

    def products(v: Tree) -> tuple[Tree, Tree]:
        def both(theta: Tree) -> tuple[Tree, Tree]:
            return value_and_gradients(lambda theta, eta: inner(theta, eta, x), theta, eta)[1]

        found: tuple[Tree, Tree] = jvp(both, (theta,), (v,))[1]
        return found

    return gradient(inner, theta, eta, x) if grad is None else grad, products


def reverse_over_forward_mode(
    inner: Inner, theta: Tree, eta: Tree, x: Tree, grad: Tree | None
) -> tuple[Tree, Products]:
    """∇L, and the products as the gradient by (θ, η) of the slope of L along v."""

    def products(v: Tree) -> tuple[Tree, Tree]:
        def slope(theta: Tree, eta: Tree) -> torch.Tensor:
            found: torch.Tensor = jvp(lambda theta: inner(theta, eta, x), (theta,), (v,))[1]
            return found

        found: tuple[Tree, Tree] = value_and_gradients(slope, theta, eta)[1]
        return found

    return gradient(inner, theta, eta, x) if grad is None else grad, products


def gradient(inner: Inner, theta: Tree, eta: Tree, x: Tree) -> Tree:
    """∇L, by θ."""
    return value_and_gradients(lambda theta: inner(theta, eta, x), theta)[1][0]


def value_and_gradients(function: Callable[..., Any], *primals: Tree, has_aux: bool = False) -> tuple[Any, Any]:
    """``function(*primals)``, a scalar, and its gradients by every primal, with no graph of the reverse pass itself.

    With `has_aux` the function returns a pair of the scalar and more, and the pair is returned in place of the scalar.

    `torch.func.grad` runs its reverse pass at a level that still records, even if no further derivative is taken, and
    keeps in memory all that the pass computes. Here that level is left before the reverse pass, so that only transforms
    around this call record.
    """
    if has_aux:
        value, pull, aux = vjp(function, *primals, has_aux=True)
        return (value, aux), pull(torch.ones_like(value))
    value, pull = vjp(function, *primals)
    return value, pull(torch.ones_like(value))


def _from_options(problem: BilevelProblem, remat: Any, mode: Mode, save: Any) -> tuple[torch.Tensor, Tree]:
    save, inner = check_flag("save_inner_grads", save), inner_loss(problem, check_flag("remat", remat))
    return stored(problem, inner, mode, save, remat)


def stored(problem: BilevelProblem, inner: Inner, mode: Mode, save: bool, remat: bool) -> tuple[Any, Tree]:
    """Run forward over the steps, keeping every (θ_i, υ_i), then backward: the walk of `mixflow`, with any product."""
    carry, kept = problem.init(problem.params), []
    for x in steps(problem):
        grad = gradient(inner, carry[0], problem.eta, x)
        kept.append((x, carry, grad if save else None))
        carry = problem.update(grad, *carry, problem.eta, x)
        del grad
    loss, cotangents = pull_outer(problem, carry, remat)
    del carry
    while kept:
        x, before, grad = kept.pop()
        cotangents = pull_step(problem, inner, mode, before, grad, x, cotangents)
        del before, grad
    return loss, pull_init(problem, cotangents)


def inner_loss(problem: BilevelProblem, remat: bool) -> Inner:
    """L(θ, η, x), with its layers rematerialised or not.

    Args:
        problem: supplies L.
        remat: True or False.

    Returns:
        The function.
    """
    return functools.partial(problem.inner_loss, block=rematerialised) if remat else problem.inner_loss


def steps(problem: BilevelProblem) -> Iterator[Tree]:
    """x_0 … x_{T−1}."""
    for i in range(problem.spec.steps):
        yield tree_map(lambda leaf: leaf[i], problem.xs)  # noqa: B023 - called at once


def pull_outer(problem: BilevelProblem, carry: Carry, remat: bool) -> tuple[torch.Tensor, Cotangents]:
    """The outer loss V and its cotangents (Eq. 5).

    Args:
        problem: supplies V and y.
        carry: θ_T and υ_T.
        remat: whether the layers are rematerialised.

    Returns:
        V, a scalar or with `has_aux` a pair, and (dV/dθ_T, dV/dυ_T, dV/dη). The last is the derivative by the η that V
        reads directly. V does not read υ_T, so its part is zeros.

    Source:
        Eq. 5.

    Computes:
        One gradient of V.
    """
    theta, state = carry
    outer = functools.partial(problem.outer, block=rematerialised) if remat else problem.outer
    loss, (d_theta, d_eta) = value_and_gradients(outer, theta, problem.eta, has_aux=problem.has_aux)
    return loss, (d_theta, [torch.zeros_like(leaf) for leaf in floats(state)], d_eta)


def pull_step(
    problem: BilevelProblem,
    inner: Inner,
    mode: Mode,
    carry: Carry,
    grad: Tree | None,
    x: Tree,
    cotangents: Cotangents,
) -> Cotangents:
    """One step of Eq. 6 from the left: the cotangents of its outputs -> those of its inputs.

    Args:
        problem: supplies the update.
        inner: L.
        mode: (L, θ, η, x, ∇L or None) -> ∇L and its products.
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
    grad, products = mode(inner, theta, eta, x, grad)

    def update(grad: Tree, theta: Tree, numbers: list[torch.Tensor], eta: Tree) -> tuple[Tree, list[torch.Tensor]]:
        theta, after = problem.update(grad, theta, with_floats(state, numbers), eta, x)
        return theta, floats(after)

    _, pull = vjp(update, grad, theta, floats(state), eta)
    v, d_theta, d_state, d_eta_update = pull((d_theta, d_state))
    del pull
    hessian, mixed = products(v)
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

    def start(params: Tree) -> tuple[Tree, list[torch.Tensor], Tree]:
        theta, state, eta = problem.start(params)
        return theta, floats(state), eta

    return vjp(start, problem.params)[1](cotangents)[0]


def floats(state: Tree) -> list[torch.Tensor]:
    """The leaves of υ that have a cotangent: a counter has none."""
    return [leaf for leaf in _pytree.tree_leaves(state) if _is_float(leaf)]


def with_floats(state: Tree, numbers: list[torch.Tensor]) -> Tree:
    """υ with `numbers` in the place of `floats`."""
    given = iter(numbers)
    return _pytree.tree_map(lambda leaf: next(given) if _is_float(leaf) else leaf, state)


def _is_float(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.is_floating_point()


def _sum(*trees: Tree) -> Tree:
    return tree_map(lambda *parts: sum(parts[1:], parts[0]), *trees)
