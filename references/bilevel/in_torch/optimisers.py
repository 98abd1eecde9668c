"""Optimisers in PyTorch as pure (init, update) pairs, which can be differentiated and change nothing in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree

from gradgate.references.bilevel.in_torch.meta_gradient import FRAME
from gradgate.references.bilevel.inner.pairs import Adam, Chain, Clip, HeavyBall, rates
from gradgate.references.contract import Tree, UsageError

Rate = Any
"""A number, a () tensor, a tree like θ, or a function of the step, counted from 0, that gives one of these."""


class Transformation(NamedTuple):
    """A pair of pure functions.

    Attributes:
        init: θ -> state.
        update: (gradients, state, params=θ) -> (the change of θ, state).
    """

    init: Callable[[Tree], Tree]
    update: Callable[..., tuple[Tree, Tree]]


def sgd(
    learning_rate: Rate, momentum: Any = 0.0, *, weight_decay: Any = 0.0, nesterov: bool = False
) -> Transformation | HeavyBall:
    """SGD as in ``torch.optim.SGD``: g + weight_decay·θ, momentum without damping.

    Args:
        learning_rate: a number, a () tensor, a tree like θ, or a function of the step, counted from 0, that gives one.
        momentum: a number or () tensor, at least 0 and below 1.
        weight_decay: a number or () tensor, added times θ to the gradient.
        nesterov: whether Nesterov's momentum is used.

    Returns:
        A pair (init, update). With momentum, and without weight decay, `nesterov` and a schedule, `meta_gradient` can
        take its steps back. Without momentum its state is only a counter.

    Source:
        Polyak (1964); its inverse: App. A.2; Maclaurin, Duvenaud and Adams (2015).
    """
    still = _is_zero(momentum)
    if not (callable(learning_rate) or nesterov or still) and _is_zero(weight_decay):
        return HeavyBall(FRAME, learning_rate, momentum)

    def init(theta: Tree) -> Tree:
        return {"step": 0} if still else {"step": 0, "velocity": _mapped(torch.zeros_like, theta)}

    def update(grads: Tree, state: Tree, params: Tree = None) -> tuple[Tree, Tree]:
        if not _is_zero(weight_decay):
            grads = _mapped(lambda g, p: g + weight_decay * p, grads, _given(params))
        if still:
            return _moves(learning_rate, state["step"], grads), {"step": state["step"] + 1}
        velocity = _mapped(lambda v, g: momentum * v + g, state["velocity"], grads)
        ahead = _mapped(lambda v, g: momentum * v + g, velocity, grads) if nesterov else velocity
        return _moves(learning_rate, state["step"], ahead), {"step": state["step"] + 1, "velocity": velocity}

    return Transformation(init, update)


def adam(learning_rate: Rate, b1: Any = 0.9, b2: Any = 0.999, *, eps: Any = 1e-8, eps_root: Any = 0.0) -> Adam:
    """Adam as in ``torch.optim.Adam``, with a finite derivative even if a parameter never had a gradient.

    Args:
        learning_rate: a number, a () tensor, a tree like θ, or a function of the step, counted from 0, that gives one.
        b1, b2: decay of the first and second moment.
        eps: added to the root of the second moment.
        eps_root: added under the root.

    Returns:
        A pair (init, update), whose steps `meta_gradient` can take back. The state has the trees ``m`` and ``v``, like
        θ, and ``step``, an integer.

    Source:
        Kingma and Ba (2014), Algorithm 1; its inverse: App. A.2. The derivative of the root at v̂ = 0 is set to 0, which
        yields the right derivative of the step: see `inner.optimisers`.
    """
    return Adam(FRAME, learning_rate, b1, b2, eps, eps_root)


def adamw(
    learning_rate: Rate,
    b1: Any = 0.9,
    b2: Any = 0.999,
    *,
    eps: Any = 1e-8,
    eps_root: Any = 0.0,
    weight_decay: Any = 0.01,
) -> Adam:
    """Adam with decoupled weight decay, as in ``torch.optim.AdamW``.

    Args:
        learning_rate, b1, b2, eps, eps_root: as for `adam`.
        weight_decay: θ also moves by −learning_rate·weight_decay·θ. To take steps back, the product of the two must be
            below 1.

    Returns:
        A pair (init, update), whose steps `meta_gradient` can take back, with the state of `adam`.

    Source:
        Loshchilov and Hutter (2019), Algorithm 2; the learning rate includes its schedule multiplier.
    """
    return Adam(FRAME, learning_rate, b1, b2, eps, eps_root, weight_decay)


def clip_by_global_norm(max_norm: Any) -> Clip:
    """Scales gradients down so that their norm over all leaves is at most `max_norm`; for `chain`.

    Args:
        max_norm: a positive number or () tensor.

    Returns:
        A pair (init, update) without state. In a `chain` before `sgd` with momentum, `adam` or `adamw`, `meta_gradient`
        can take the steps back.

    Source:
        Pascanu, Mikolov and Bengio (2013), Algorithm 1.
    """
    return Clip(FRAME, max_norm)


def chain(*transformations: Any) -> Chain:
    """Applies pairs (init, update) one after the other: each gets what the previous one returns.

    Args:
        transformations: pairs of this module, or of torchopt.

    Returns:
        A pair (init, update), whose state is the tuple of their states.

    Raises:
        UsageError: one of them is not a pair, or there is none.
    """
    return Chain(FRAME, transformations)


def _mapped(function: Callable[..., Any], *trees: Tree) -> Tree:
    return _pytree.tree_map(function, *trees)


def _moves(learning_rate: Rate, step: int, directions: Tree) -> Tree:
    """−α ⊙ direction."""
    leaves, structure = _pytree.tree_flatten(directions)
    each = rates(FRAME, learning_rate(step) if callable(learning_rate) else learning_rate, leaves)
    return _pytree.tree_unflatten([-a * d for a, d in zip(each, leaves, strict=True)], structure)


def _is_zero(value: Any) -> bool:
    return not isinstance(value, torch.Tensor) and value == 0


def _given(params: Tree) -> Tree:
    if params is None:
        raise UsageError("weight_decay reads θ: call update(grads, state, params=theta)")
    return params
