"""`meta_gradient`: the gradient through an inner loop of any model and any optimiser of optax, in JAX."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from gradgate.references.bilevel.in_jax.buffered import inverted
from gradgate.references.bilevel.in_jax.compensated import taken_back
from gradgate.references.bilevel.in_jax.methods import forward_over_reverse, stored
from gradgate.references.bilevel.in_jax.replay import replayed
from gradgate.references.bilevel.in_jax.static import halved
from gradgate.references.bilevel.inner.loop import Functions
from gradgate.references.bilevel.inner.pairs import Adam, Chain, Clip, Frame, HeavyBall
from gradgate.references.contract import Tree


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
        inner_loss: (theta, eta, x) -> L, a floating scalar. Its layers can be rematerialised if it takes a keyword
            ``block`` and wraps the function of each layer with it.
        optimiser: an optimiser of optax, or any object with ``init(theta)`` and ``update(grads, state, theta)``; or a
            function of η that returns one, if η contains learning rates or the like. Chains, clipping, weight decay and
            schedules are differentiated as they are; counters and keys in the state have no derivative.
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
        θ_0; every array of xs has one entry on axis 0 for each of the T steps; state is υ_0, by default the optimiser's
        start, and gets no gradient. The gradient is a tree like what it is taken by, with its dtypes. Put the function
        under `jax.jit`. It can be differentiated further, and vectorised.

    Raises:
        UsageError: a function, an option or an array does not fit; the message says what is legal. Inversion is refused
            for every optimiser except `adam` and `adamw` of this module, and `sgd` with momentum, alone or in a `chain`
            after `clip_by_global_norm`: from one of optax the numbers that its inverse needs cannot be read.

    Source:
        Algorithm 2 and Eq. 5–8, with V of θ_T and η (Eq. 5 has V of θ_T); §4; App. A.2.

    Stores:
        ``"states"``: T·(|θ| + |υ|) numbers, and T·|θ| more with `save_inner_grads`. ``"gradients"``: T·|θ|.
        ``"logarithmic"``: 2·log2(T)·(|θ| + |υ|). ``"inversion"``: with `adam` θ and υ of one step in double words,
        2·(|θ| + |υ|), for any T; with `sgd` T·|θ| bytes. In each case also the cotangents of one step, and the
        activations and tangents of one gradient of L; with `remat` the input of every layer and its tangent.

    Computes:
        Per step, two gradients of L, one if ∇L_i is kept, and one gradient with tangents, which costs about two more.
        ``"gradients"``: T² + T updates. ``"logarithmic"``: T·log2(T)/2 gradients of L more.
        ``"inversion"``: with `sgd` one gradient of L more; with `adam` about a hundred FLOPs per number of θ and υ and
        step more.

    Not for:
        Adam with eps_root=0 and a parameter that never had a gradient: the derivative of optax's root is infinite
        there, so give a positive eps_root. Models with few layers whose T states fit in memory: plain `jax.grad`
        through the loop takes as little memory. T of thousands with ``"gradients"``. Inversion with `adam` and more
        than log2(1/u)/log2(1/β) steps, u the unit roundoff and β the smaller of b1 and b2: each further step loses
        log2(1/β) bits. At 0.9 that is 348 steps in float64 and 157 in float32, at 0.5 they are 53 and 24. Nor for a
        further derivative of inversion with `adam`: tangents are not in double words. More steps are refused, and
        eps_root = 0 below float64.

    Example::

        meta = jax.jit(meta_gradient(inner_loss, optax.adamw(1e-3, eps_root=1e-8), outer_loss))
        loss, grads = meta(eta, theta, batches, validation)
    """
    told = Functions(FRAME, inner_loss, optimiser, outer_loss, argnums, has_aux, remat, checkpointing, save_inner_grads)
    block: dict[str, Any] = {"block": jax.checkpoint if remat else _as_it_is}

    def gradient(eta: Tree, theta: Tree, xs: Tree, y: Tree, state: Tree | None = None) -> tuple[Any, Tree]:
        loop: Any = told.loop(eta, theta, xs, y, state)
        inner = functools.partial(loop.inner_loss, **block)
        if checkpointing == "states":
            found, grads = stored(loop, inner, forward_over_reverse, save_inner_grads, **block)
        else:
            back = functools.partial(taken_back, parts=2) if loop.spec.optimiser == "adam" else inverted
            walk = {"gradients": replayed, "logarithmic": halved, "inversion": back}[checkpointing]
            found, grads = walk(loop, inner, **block)
        return found, loop.gathered(grads)

    return gradient


def sgd(learning_rate: Any, momentum: Any) -> HeavyBall:
    """SGD with momentum as ``optax.sgd(learning_rate, momentum)``, with an inverse that `meta_gradient` can use.

    Args:
        learning_rate: a number, a () array, or a tree like θ.
        momentum: a number between 0 and 1, or a () array.

    Returns:
        An object with ``init`` and ``update`` as optax has them. Its state is a tree like θ.

    Source:
        Polyak (1964); its inverse: App. A.2; Maclaurin, Duvenaud and Adams (2015).
    """
    return HeavyBall(FRAME, learning_rate, momentum)


def adam(learning_rate: Any, b1: Any = 0.9, b2: Any = 0.999, *, eps: Any = 1e-8, eps_root: Any = 0.0) -> Adam:
    """Adam as ``optax.adam``, with an inverse that `meta_gradient` can use.

    Args:
        learning_rate: a number, a () array, a tree like θ, or a function of the step, counted from 0, that gives one of
            these, such as a schedule of optax.
        b1, b2: the decay of the first and second moment, numbers between 0 and 1, or () arrays.
        eps: added to the root of the second moment.
        eps_root: added under the root.

    Returns:
        An object with ``init`` and ``update`` as optax has them. Its state has the trees ``m`` and ``v``, like θ, and
        ``step``, an integer.

    Source:
        Kingma and Ba (2014), Algorithm 1; its inverse: App. A.2. The derivative of the root at v̂ = 0 is set to 0, which
        gives the right derivative of the step (see `inner.optimisers`); optax's derivative is infinite there.
    """
    return Adam(FRAME, learning_rate, b1, b2, eps, eps_root)


def adamw(
    learning_rate: Any,
    b1: Any = 0.9,
    b2: Any = 0.999,
    *,
    eps: Any = 1e-8,
    eps_root: Any = 0.0,
    weight_decay: Any = 1e-4,
) -> Adam:
    """Adam with decoupled weight decay as ``optax.adamw``, with an inverse that `meta_gradient` can use.

    Args:
        learning_rate, b1, b2, eps, eps_root: as for `adam`.
        weight_decay: θ also moves by −learning_rate·weight_decay·θ. To take steps back, the product of the two must be
            below 1.

    Returns:
        An object with ``init`` and ``update``, with the state of `adam`.

    Source:
        Loshchilov and Hutter (2019), Algorithm 2; the learning rate includes its schedule multiplier.
    """
    return Adam(FRAME, learning_rate, b1, b2, eps, eps_root, weight_decay)


def clip_by_global_norm(max_norm: Any) -> Clip:
    """Scales gradients down so that their norm over all leaves is at most `max_norm`, as that of optax; for `chain`.

    Args:
        max_norm: a positive number or () array.

    Returns:
        An object with ``init`` and ``update``, without state. In a `chain` before `sgd`, `adam` or `adamw` of this
        module, `meta_gradient` can take the steps back. Gradients that are all 0 have a finite derivative.

    Source:
        Pascanu, Mikolov and Bengio (2013), Algorithm 1.
    """
    return Clip(FRAME, max_norm)


def chain(*transformations: Any) -> Chain:
    """Applies optimisers one after the other, as ``optax.chain``: each gets what the one before returns.

    Args:
        transformations: of this module, or of optax. Steps can be taken back if the last one is `sgd`, `adam` or
            `adamw` of this module, and the others are `clip_by_global_norm` of this module.

    Returns:
        An object with ``init`` and ``update``, whose state is the tuple of their states.

    Raises:
        UsageError: one of them has no init and update, or there is none.
    """
    return Chain(FRAME, transformations)


def _as_it_is(layer: Callable[..., Any]) -> Callable[..., Any]:
    return layer


def _is_floating(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and bool(jnp.issubdtype(leaf.dtype, jnp.floating))


def _number(value: Any, leaf: Any) -> Any:
    return jnp.asarray(value, jnp.promote_types(leaf.dtype, jnp.float32))


def _unflatten(structure: Any, leaves: Sequence[Any]) -> Tree:
    return jax.tree.unflatten(structure, leaves)


FRAME = Frame(
    "jax",
    jax.tree.flatten,
    _unflatten,
    _is_floating,
    lambda p, move: jnp.asarray(p + move, p.dtype),
    jnp.zeros_like,
    _number,
    lambda pair, grads, state, params: pair.update(grads, state, params),
    lambda begun, steps: begun + jnp.arange(1, steps + 1),
)
"""The operations that differ between frameworks, in JAX."""
