"""`mixed_mode_grad` and `meta_gradient` as pairs that the suite judges, each against plain reverse mode."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from gradgate import Pair, at_most, grows, integers, normal
from gradgate.references.backends import leaves, namespace, transforms, tree_map
from gradgate.references.bilevel.inner.gradient import gradient
from gradgate.references.bilevel.inner.optimisers import safe_root
from gradgate.references.contract import Tree

BY: dict[str, int | tuple[int, ...]] = {"theta": 0, "eta": 1, "both": (0, 1)}
"""What a gradient is taken by -> its argnums."""
CLIPPED = ("adamw", "clipped", "clipped_momentum")
"""Optimisers whose gradients are clipped."""
RATE, MU, CLIP, ROOT, DECAY = 0.125, 0.75, 0.125, 2.0**-10, 0.25
"""Learning rate, momentum, the largest norm, what Adam adds under its root, and the weight decay: few binary digits."""


def inner_loss(backend: str, layers: int, theta: Tree, eta: Any, x: Tree, **block: Any) -> Any:
    """L of `layers` tanh layers with shared weights; η weighs outputs, and each row's class picks one of them.

    Args:
        theta: {"w": (H, H), "b": (H,)}.
        eta: (H,).
        x: {"inputs": (B, H), "class": integers below H, (B,)}.
        block: ``block``, the wrapper of a layer.
    """
    xp = namespace(backend)
    layer = block.get("block", lambda f: f)(lambda w, b, h: xp.tanh(xp.matmul(h, w) + b))
    hidden = x["inputs"]
    for _ in range(layers):
        hidden = layer(theta["w"], theta["b"], hidden)
    picked = xp.take(xp.matrix_transpose(hidden), x["class"], axis=0)
    return xp.mean(picked * picked) + xp.mean(hidden * hidden * eta)


def outer_loss(backend: str, theta: Tree, eta: Any, y: Any) -> Any:
    """V, which depends on η directly too; y is (H, H)."""
    xp = namespace(backend)
    return xp.sum(y * theta["w"]) + xp.sum(theta["w"] ** 2) + xp.sum(theta["b"] * eta)


def penalty(grad: Callable[..., Any], backend: str, w: Any, b: Any, eta: Any, x: Any, kind: Any, **more: Any) -> Any:
    """A gradient of `inner_loss`, as a gradient penalty reads it.

    Args:
        grad: ``jax.grad`` or what takes its place.
        backend: of the arrays.
        w, b, eta, x, kind: as in `inner_loss`.
        more: ``by``, one of `BY`, and ``has_aux``.
    """
    by, has_aux = more["by"], more["has_aux"]

    def outer_loss(theta: Tree, eta: Any, x: Tree) -> Any:
        loss = inner_loss(backend, 3, theta, eta, x)
        return (loss, {"moved": theta["w"] * eta, "class": x["class"]}) if has_aux else loss

    return grad(outer_loss, argnums=BY[by], has_aux=has_aux)({"w": w, "b": b}, eta, {"inputs": x, "class": kind})


def penalty_jax(w: Any, b: Any, eta: Any, x: Any, kind: Any, *, by: str = "theta", has_aux: bool = False) -> Any:
    """`penalty` by `mixed_mode_grad` in JAX."""
    from gradgate.references.bilevel.in_jax.mixed_mode import mixed_mode_grad

    return penalty(mixed_mode_grad, "jax", w, b, eta, x, kind, by=by, has_aux=has_aux)


def penalty_torch(w: Any, b: Any, eta: Any, x: Any, kind: Any, *, by: str = "theta", has_aux: bool = False) -> Any:
    """`penalty` by `mixed_mode_grad` in PyTorch."""
    from gradgate.references.bilevel.in_torch.mixed_mode import mixed_mode_grad

    return penalty(mixed_mode_grad, "torch", w, b, eta, x, kind, by=by, has_aux=has_aux)


def plain_penalty_jax(w: Any, b: Any, eta: Any, x: Any, kind: Any, *, by: str = "theta", has_aux: bool = False) -> Any:
    """`penalty` by ``jax.grad``."""
    return penalty(transforms("jax").grad, "jax", w, b, eta, x, kind, by=by, has_aux=has_aux)


def plain_penalty_torch(
    w: Any, b: Any, eta: Any, x: Any, kind: Any, *, by: str = "theta", has_aux: bool = False
) -> Any:
    """`penalty` by ``torch.func.grad``."""
    return penalty(transforms("torch").grad, "torch", w, b, eta, x, kind, by=by, has_aux=has_aux)


def optimiser_of(framework: str, name: str) -> Callable[[Any], Any]:
    """η -> an optimiser with learning rates from η: optax's or ours in JAX, ours in PyTorch.

    Args:
        framework: ``jax`` or ``torch``.
        name: ``adamw``, which in JAX is optax's, in a chain with clipping; or ours: ``momentum``, ``adam``,
            ``decayed``, which is Adam with weight decay, and after clipping in a chain ``clipped`` and
            ``clipped_momentum``.
    """
    torch, jax = "in_torch.optimisers", "in_jax.meta_gradient"
    ours = importlib.import_module(f"gradgate.references.bilevel.{torch if framework == 'torch' else jax}")
    theirs = ours if framework == "torch" or name != "adamw" else importlib.import_module("optax")

    def made(eta: Any) -> Any:
        rate = RATE * (1 + (eta * eta).mean())
        if name.endswith("momentum"):
            pair = ours.sgd(rate, MU)
        else:
            kind, decay = theirs if name == "adamw" else ours, 0 if name == "adam" else DECAY
            pair = kind.adamw(lambda step: rate / (1 + step), 0.5, 0.75, eps_root=ROOT, weight_decay=decay)
        if name not in CLIPPED:
            return pair
        kind = theirs if name == "adamw" else ours
        return kind.chain(kind.clip_by_global_norm(CLIP), pair)

    return made


def plain_step(backend: str, name: str, step: int, grad: Tree, theta: Tree, state: Tree, eta: Any) -> Any:
    """A step of the same optimisers in one function: momentum, or Adam with a schedule, with or without clipping."""
    xp, rate = namespace(backend), RATE * (1 + (eta * eta).mean())
    if name in CLIPPED:
        norm = safe_root(xp, sum(xp.sum(leaf * leaf) for leaf in leaves(grad)))
        factor = xp.where(norm > CLIP, CLIP / xp.where(norm > CLIP, norm, xp.ones_like(norm)), xp.ones_like(norm))
        grad = tree_map(lambda g: factor * g, grad)
    if name.endswith("momentum"):
        velocity = tree_map(lambda v, g: MU * v + g, state, grad)
        return tree_map(lambda p, v: p - rate * v, theta, velocity), velocity
    m = tree_map(lambda m, g: (m + g) / 2, state[0], grad)
    v = tree_map(lambda v, g: (3 * v + g * g) / 4, state[1], grad)
    first, second = 1 - 0.5 ** (step + 1), 1 - 0.75 ** (step + 1)

    def moved(p: Any, m: Any, v: Any) -> Any:
        direction = m / first / (safe_root(xp, v / second + ROOT) + 1e-8)
        return p - rate / (1 + step) * (direction + (0 if name == "adam" else DECAY * p))

    return tree_map(moved, theta, m, v), (m, v)


def plain(backend: str, name: str, eta: Any, w: Any, b: Any, xs: Any, kinds: Any, y: Any) -> Any:
    """V after one step per entry of xs."""
    theta = {"w": w, "b": b}
    zeros = tree_map(namespace(backend).zeros_like, theta)
    state = zeros if name.endswith("momentum") else (zeros, zeros)
    for step in range(xs.shape[0]):
        x = {"inputs": xs[step], "class": kinds[step]}
        grad = gradient(backend, lambda theta: inner_loss(backend, 2, theta, eta, x), theta)  # noqa: B023 - called at once
        theta, state = plain_step(backend, name, step, grad, theta, state, eta)
    return outer_loss(backend, theta, eta, y)


def plain_meta_jax(eta: Any, w: Any, b: Any, xs: Any, kinds: Any, y: Any, *, optimiser: str = "adamw") -> Any:
    """`plain` in JAX."""
    return plain("jax", optimiser, eta, w, b, xs, kinds, y)


def plain_meta_torch(eta: Any, w: Any, b: Any, xs: Any, kinds: Any, y: Any, *, optimiser: str = "adamw") -> Any:
    """`plain` in PyTorch."""
    return plain("torch", optimiser, eta, w, b, xs, kinds, y)


def meta_of(framework: str, meta_gradient: Callable[..., Any], optimiser: str, **options: Any) -> Callable[..., Any]:
    """(η, θ_0, xs, y) -> V and its gradient by η and θ_0."""
    return meta_gradient(
        functools.partial(inner_loss, framework, 2),
        optimiser_of(framework, optimiser),
        functools.partial(outer_loss, framework),
        argnums=(0, 1),
        **options,
    )


def meta_jax(
    eta: Any,
    w: Any,
    b: Any,
    xs: Any,
    kinds: Any,
    y: Any,
    *,
    optimiser: str = "adamw",
    checkpointing: str = "states",
    remat: bool = False,
    save_inner_grads: bool = False,
) -> Any:
    """V, whose backward pass is the gradient of `meta_gradient`, in JAX."""
    import jax

    from gradgate.references.bilevel.in_jax.meta_gradient import meta_gradient

    save = save_inner_grads and checkpointing == "states"
    meta = meta_of("jax", meta_gradient, optimiser, checkpointing=checkpointing, remat=remat, save_inner_grads=save)

    @jax.custom_vjp
    def loss(eta: Any, theta: Tree) -> Any:
        return meta(eta, theta, {"inputs": xs, "class": kinds}, y)[0]

    loss.defvjp(
        lambda eta, theta: meta(eta, theta, {"inputs": xs, "class": kinds}, y),
        lambda grads, upstream: jax.tree.map(lambda leaf: upstream * leaf, grads),
    )
    return loss(eta, {"w": w, "b": b})


def meta_torch(
    eta: Any,
    w: Any,
    b: Any,
    xs: Any,
    kinds: Any,
    y: Any,
    *,
    optimiser: str = "adamw",
    checkpointing: str = "states",
    remat: bool = False,
    save_inner_grads: bool = False,
) -> Any:
    """V, whose backward pass is the gradient of `meta_gradient`, in PyTorch."""
    import torch

    from gradgate.references.bilevel.in_torch.meta_gradient import meta_gradient
    from gradgate.references.bilevel.in_torch.remat import living

    save = save_inner_grads and checkpointing == "states"
    meta = meta_of("torch", meta_gradient, optimiser, checkpointing=checkpointing, remat=remat, save_inner_grads=save)

    class Loss(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(eta: Any, w: Any, b: Any, xs: Any, kinds: Any, y: Any) -> Any:
            return meta(eta, {"w": w, "b": b}, {"inputs": xs, "class": kinds}, y)[0]

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, upstream: Any) -> Any:
            eta, w, b, xs, kinds, y = living(ctx)
            _, (d_eta, d_theta) = meta(eta, {"w": w, "b": b}, {"inputs": xs, "class": kinds}, y)
            return upstream * d_eta, upstream * d_theta["w"], upstream * d_theta["b"], None, None, None

    return Loss.apply(eta, w, b, xs, kinds, y)


_mixed = functools.partial(
    Pair,
    inputs={
        "w": normal("H H", scale="H**-0.5"),
        "b": normal("H"),
        "eta": normal("H"),
        "x": normal("B H"),
        "kind": integers("B", below="H"),
    },
    dims={"B": (3, 1, 16), "H": (4, 1)},
    options={"by": tuple(BY), "has_aux": (False, True)},
    claims=[at_most("residual_bytes", of_reference=0.5), grows("residual_bytes", B=0)],
)
mixed_mode_jax = _mixed(
    penalty_jax, reference=plain_penalty_jax, framework="jax", composes=("jit", "vmap"), disclaims=("second_order",)
)
mixed_mode_torch = _mixed(
    penalty_torch, reference=plain_penalty_torch, framework="torch", composes=("vmap", "second_order")
)
_meta = functools.partial(
    Pair,
    inputs={
        # b has a mean: without biases and weights the inner gradient is zero, where the derivative of optax's clipping
        # by the norm is not finite.
        "eta": normal("H"),
        "w": normal("H H", scale="H**-0.5"),
        "b": normal("H", mean=0.5),
        "xs": normal("T B H", gradient=False),
        "kinds": integers("T B", below="H"),
        "y": normal("H H", gradient=False),
    },
    dims={"T": (3, 1, 4), "B": (2, 1), "H": (3, 1)},
)
_kept = functools.partial(
    _meta,
    options={
        "optimiser": ("adamw", "momentum"),
        "checkpointing": ("states", "gradients", "logarithmic"),
        "remat": (False, True),
        "save_inner_grads": (False, True),
    },
)
_inverted = functools.partial(
    _meta, options={"optimiser": ("momentum", "clipped_momentum"), "checkpointing": ("inversion",)}
)
meta_gradient_jax = _kept(
    meta_jax,
    reference=plain_meta_jax,
    framework="jax",
    composes=("jit", "vmap", "second_order"),
    name="meta_gradient_jax",
)
meta_gradient_torch = _kept(
    meta_torch,
    reference=plain_meta_torch,
    framework="torch",
    composes=("vmap", "second_order"),
    name="meta_gradient_torch",
)
inversion_jax = _inverted(meta_jax, reference=plain_meta_jax, framework="jax", name="inversion_jax")
inversion_torch = _inverted(meta_torch, reference=plain_meta_torch, framework="torch", name="inversion_torch")
_taken_back = functools.partial(
    _meta,
    dims={"T": (4, 1, 6), "B": (2, 1), "H": (3, 1)},
    options={"optimiser": ("adam", "decayed", "clipped"), "checkpointing": ("inversion",), "remat": (False, True)},
)
adam_inversion_jax = _taken_back(meta_jax, reference=plain_meta_jax, framework="jax", name="adam_inversion_jax")
adam_inversion_torch = _taken_back(
    meta_torch, reference=plain_meta_torch, framework="torch", name="adam_inversion_torch"
)
