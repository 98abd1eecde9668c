"""`meta_gradient`: the gradient through an inner loop of any model and any functional optimiser, in PyTorch."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree

from gradgate.references.bilevel.in_torch import direct
from gradgate.references.bilevel.in_torch.buffered import inverted
from gradgate.references.bilevel.in_torch.compensated import taken_back
from gradgate.references.bilevel.in_torch.methods import forward_over_reverse, stored
from gradgate.references.bilevel.in_torch.remat import remat as rematerialised
from gradgate.references.bilevel.in_torch.replay import replayed
from gradgate.references.bilevel.in_torch.static import halved
from gradgate.references.bilevel.inner.loop import Functions
from gradgate.references.bilevel.inner.pairs import Adam, Chain, Clip, Frame, HeavyBall
from gradgate.references.contract import NotComposable, Tree


def meta_gradient(
    inner_loss: Callable[..., Any],
    optimiser: Any,
    outer_loss: Callable[..., Any],
    *,
    argnums: int | tuple[int, ...] = 0,
    has_aux: bool = False,
    remat: bool = False,
    checkpointing: str = "states",
    save_inner_grads: bool = False,
) -> Callable[..., tuple[Any, Tree]]:
    """The outer loss after T inner steps, and its gradient, with second derivatives by forward over reverse mode.

    Args:
        inner_loss: (theta, eta, x) -> L, a floating scalar; it calls a module by `torch.func.functional_call` with
            theta. Its layers can be rematerialised if it takes a keyword ``block`` and wraps the function of each
            layer with it.
        optimiser: `sgd`, `adam` or `adamw` of this module, a `chain` with `clip_by_global_norm`, an optimiser of
            torchopt, or any object with ``init(theta)`` and ``update(grads, state, params=theta)`` that changes nothing
            in place; or a function of η that returns one, if η contains learning rates or the like.
        outer_loss: (theta, eta, y) -> V, a floating scalar, or with `has_aux` a pair of it and any tree. It may take
            ``block`` as `inner_loss` does.
        argnums: what the gradient is taken by: 0, η; 1, θ_0, as in MAML; (0, 1), a pair of both.
        has_aux: whether `outer_loss` returns a pair, such as V and θ_T.
        remat: whether layers are rematerialised one by one (block rematerialisation).
        checkpointing: what is kept in memory of the steps. ``"states"``: θ_i and υ_i of each. ``"gradients"``: ∇L_i of
            each, from which updates are run again. ``"logarithmic"``: states at recursive halves, from which steps are
            run again. ``"inversion"``: nothing, and steps of `adam` and `adamw` are taken back in double words; or with
            `sgd` and momentum a byte for each number of θ and step, and its steps are taken back bit for bit. Each of
            them may come after `clip_by_global_norm` in a `chain`.
        save_inner_grads: whether ∇L_i is kept next to θ_i and υ_i, and not computed again.

    Returns:
        A function (eta, theta, xs, y, state=None) -> (V, gradient), or ((V, aux), gradient) with `has_aux`. theta is
        θ_0; every tensor of xs has one entry on axis 0 for each of the T steps; state is υ_0, by default the
        optimiser's start, and gets no gradient. The gradient is a tree like what it is taken by, with its dtypes.
        Inside `torch.func` the function can be differentiated further, and vectorised.

    Raises:
        NotComposable: ``backward()`` is called on a result.
        UsageError: a function, an option or a tensor does not fit; the message says what is legal. Inversion is refused
            for every optimiser except `adam`, `adamw`, and `sgd` with momentum, alone or in a `chain` after
            `clip_by_global_norm`.

    Source:
        Algorithm 2 and Eq. 5–8, with V of θ_T and η (Eq. 5 has V of θ_T); §4; App. A.2.

    Stores:
        ``"states"``: T·(|θ| + |υ|) numbers, and T·|θ| more with `save_inner_grads`. ``"gradients"``: T·|θ|.
        ``"logarithmic"``: (log2(T) + 1)·(|θ| + |υ|). ``"inversion"``: with `adam` θ and υ of one step in double words,
        2·(|θ| + |υ|), for any T; with `sgd` T·|θ| bytes. In each case also the cotangents of one step, and the
        activations and tangents of one gradient of L; with `remat` the input of every layer and its tangent.

    Computes:
        Per step, two gradients of L, one if ∇L_i is kept, and one gradient with tangents, which costs about two more.
        ``"gradients"``: T²/2 updates. ``"logarithmic"``: about T·log2(T)/2 gradients of L more.
        ``"inversion"``: with `sgd` one gradient of L more; with `adam` about a hundred FLOPs per number of θ and υ and
        step more.

    Not for:
        Operations without a formula for forward mode; PyTorch's error names the operation. Dropout in `inner_loss`,
        which would draw a new mask in the second pass: pass masks in xs. T of thousands with ``"gradients"``. Inversion
        with `adam` and more than log2(1/u)/log2(1/β) steps, u the unit roundoff and β the smaller of b1 and b2: each
        further step loses log2(1/β) bits. At 0.9 that is 348 steps in float64 and 157 in float32, at 0.5 they are 53
        and 24. Nor for a further derivative of inversion with `adam`: tangents are not in double words.
        More steps are refused, and eps_root = 0 below float64.

    Example::

        meta = meta_gradient(inner_loss, chain(clip_by_global_norm(1.0), adamw(1e-3)), outer_loss)
        loss, grads = meta(eta, dict(model.named_parameters()), batches, validation)
    """
    told = Functions(FRAME, inner_loss, optimiser, outer_loss, argnums, has_aux, remat, checkpointing, save_inner_grads)

    def gradient(eta: Tree, theta: Tree, xs: Tree, y: Tree, state: Tree | None = None) -> tuple[Any, Tree]:
        given = eta, theta, xs, y, state
        recorded = [leaf for leaf in _pytree.tree_leaves(given) if _is_recorded(leaf)]
        loop: Any = told.loop(*_pytree.tree_map(lambda leaf: leaf.detach() if _is_recorded(leaf) else leaf, given))
        inner = functools.partial(loop.inner_loss, block=rematerialised if remat else _as_it_is)
        with direct.allowed():
            if checkpointing == "states":
                found, grads = stored(loop, inner, forward_over_reverse, save_inner_grads, remat)
            else:
                back = functools.partial(taken_back, parts=2) if loop.spec.optimiser == "adam" else inverted
                walk = {"gradients": replayed, "logarithmic": halved, "inversion": back}[checkpointing]
                found, grads = walk(loop, inner, remat)
        answer: tuple[Any, Tree] = _once((found, loop.gathered(grads)), recorded)
        return answer

    return gradient


class _Once(torch.autograd.Function):
    """An identity that refuses the derivative by the tensors from which its values were computed."""

    @staticmethod
    def forward(context: Any, number: int, *leaves: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(leaf.view_as(leaf) for leaf in leaves[:number])

    @staticmethod
    def backward(context: Any, *v: torch.Tensor) -> Any:
        raise NotComposable(
            "meta_gradient records no graph, because parameters that require a gradient would keep all steps. Use the "
            "gradient that it returns; for a further derivative use torch.func.grad in the place of backward()"
        )


def _once(found: Tree, given: Sequence[torch.Tensor]) -> Tree:
    """`found`, with floating tensors whose derivatives by the `given` tensors ``backward()`` refuses."""
    if not given or not torch.is_grad_enabled():
        return found
    leaves, structure = _pytree.tree_flatten(found)
    places = [i for i, leaf in enumerate(leaves) if _is_floating(leaf)]
    guarded = _Once.apply(len(places), *(leaves[i] for i in places), *given)
    return _pytree.tree_unflatten(
        [dict(zip(places, guarded, strict=True)).get(i, x) for i, x in enumerate(leaves)], structure
    )


def _is_recorded(leaf: Any) -> bool:
    """Whether ``backward()`` records this tensor; tensors inside of `torch.func` are recorded there."""
    wrapped = isinstance(leaf, torch.Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(leaf)
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad and not wrapped


def _as_it_is(layer: Callable[..., Any]) -> Callable[..., Any]:
    return layer


def _is_floating(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.is_floating_point()


def _number(value: Any, leaf: torch.Tensor) -> torch.Tensor:
    dtype = torch.promote_types(leaf.dtype, torch.float32)
    return value.to(dtype) if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=dtype, device=leaf.device)


# The parameters of most models are one dict of tensors, for which PyTorch's own functions are slow.
def _flatten(tree: Tree) -> tuple[list[Any], Any]:
    if type(tree) is dict and all(type(leaf) in (torch.Tensor, torch.nn.Parameter) for leaf in tree.values()):
        return list(tree.values()), _structure(tuple(tree))
    return _pytree.tree_flatten(tree)


@functools.lru_cache(maxsize=64)
def _structure(keys: tuple[Any, ...]) -> Any:
    return _pytree.tree_flatten(dict.fromkeys(keys, 0))[1]


def _unflatten(structure: Any, leaves: Sequence[Any]) -> Tree:
    if structure.type is dict and structure.num_children == structure.num_leaves:
        return dict(zip(structure.context, leaves, strict=True))
    if structure.is_leaf():
        [leaf] = leaves
        return leaf
    return _pytree.tree_unflatten(list(leaves), structure)


def _update(pair: Any, grads: Tree, state: Tree, params: Tree) -> tuple[Tree, Tree]:
    """A step. An optimiser whose update takes ``inplace``, as torchopt's do, is called with False."""
    own = isinstance(pair, Adam | Chain | Clip | HeavyBall)
    more = {"inplace": False} if not own and "inplace" in inspect.signature(pair.update).parameters else {}
    found: tuple[Tree, Tree] = pair.update(grads, state, params=params, **more)
    return found


FRAME = Frame(
    "torch",
    _flatten,
    _unflatten,
    _is_floating,
    lambda p, move: (p + move).to(p.dtype),
    torch.zeros_like,
    _number,
    _update,
    lambda begun, steps: range(begun + 1, begun + steps + 1),
)
"""The operations that differ between frameworks, in PyTorch."""
