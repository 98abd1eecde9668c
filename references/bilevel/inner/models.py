"""The inner models, written once for NumPy, JAX and PyTorch: the map of Eq. 9, a residual MLP, and the transformer.

Each gives the loss of every data point of a batch, (batch,), and a score of every data point; a network of the same
architecture weighs losses by its scores. Layers are stacked on axis 0 and run in a scan. Letters: B batch, D width,
L layers, V vocabulary, S sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gradgate.references.backends import namespace, scan, stop_gradient
from gradgate.references.bilevel.inner import transformer
from gradgate.references.contract import Tree
from gradgate.references.draws import Integers, Normal
from gradgate.references.performer.problem import gelu

Block = transformer.Block
"""Wraps the function of one layer: identity, or rematerialisation."""


def as_it_is(layer: Callable[..., Any]) -> Callable[..., Any]:
    """No block rematerialisation."""
    return layer


@dataclass(frozen=True)
class Model:
    """An inner model.

    Attributes:
        draws: ``spec -> θ`` as draws.
        batch: ``(spec, lead) -> {"inputs", "targets"}`` as draws, batches stacked on the axes `lead`.
        losses: ``(spec, backend, θ, x, block) -> (B,)``.
        scores: ``(spec, backend, θ, x, block) -> (B,)``; θ has the further leaves of `score_draws`.
    """

    draws: Callable[..., Tree]
    batch: Callable[..., dict[str, Any]]
    losses: Callable[..., Any]
    scores: Callable[..., Any]


def score_draws(spec: Any) -> Tree:
    """The parameters of a network that weighs losses besides those of θ: a linear map from features to one number."""
    return {"score": {"w": Normal((spec.width,), spec.width**-0.5), "b": Normal((), 0.1)}}


def _score(xp: Any, theta: Tree, features: Any) -> Any:
    return xp.sum(features * theta["score"]["w"], axis=-1) + theta["score"]["b"]


# The map of Eq. 9. Its exponent and base are smooth and the base is at least 1, so it has all derivatives.


def _toy_draws(spec: Any) -> Tree:
    return {"weights": Normal((spec.width, spec.width), spec.scale)}


def _toy_batch(spec: Any, lead: tuple[int, ...]) -> dict[str, Any]:
    shape = (*lead, spec.batch, spec.width)
    return {"inputs": Normal(shape), "targets": Normal(shape)}


def toy_map(spec: Any, backend: str, theta: Tree, inputs: Any, block: Block = as_it_is) -> Any:
    """y_M of Eq. 9, M = layers: y_0 = xθ, y_i = i·(2 + sin y_{i−1})^{cos y_{i−1}}; (B, D)."""
    xp = namespace(backend)
    y = xp.matmul(inputs, theta["weights"])
    layer = block(lambda i, y: i * (2 + xp.sin(y)) ** xp.cos(y))
    numbers = xp.astype(xp.arange(1, spec.layers + 1, dtype=xp.int32), y.dtype)
    y, _ = scan(backend, lambda y, i: (layer(i, y), ()), y, numbers)
    return y


def _toy_losses(spec: Any, backend: str, theta: Tree, x: Tree, block: Block) -> Any:
    difference = toy_map(spec, backend, theta, x["inputs"], block) - x["targets"]
    return namespace(backend).mean(difference * difference, axis=-1)


def _toy_scores(spec: Any, backend: str, theta: Tree, x: Tree, block: Block) -> Any:
    return _score(namespace(backend), theta, toy_map(spec, backend, theta, x["inputs"], block))


# The residual MLP: x + a(xW + b) in every layer, and a linear classifier.


def _mlp_draws(spec: Any) -> Tree:
    L, D, V = spec.layers, spec.width, spec.vocabulary
    return {
        "layers": {"w": Normal((L, D, D), spec.scale / D**0.5), "b": Normal((L, D), 0.3)},
        "readout": {"w": Normal((D, V), D**-0.5), "b": Normal((V,), 0.3)},
    }


def _mlp_batch(spec: Any, lead: tuple[int, ...]) -> dict[str, Any]:
    return {
        "inputs": Normal((*lead, spec.batch, spec.width)),
        "targets": Integers((*lead, spec.batch), spec.vocabulary),
    }


def relu(xp: Any, x: Any) -> Any:
    """max(x, 0), with the derivative 0 at 0."""
    return xp.where(x > 0, x, xp.zeros_like(x))


ACTIVATIONS = {"tanh": lambda xp, x: xp.tanh(x), "gelu": gelu, "relu": relu}
"""Name -> activation of the MLP."""


def _mlp_features(spec: Any, backend: str, theta: Tree, x: Tree, block: Block) -> Any:
    xp, activation = namespace(backend), ACTIVATIONS[spec.activation]
    layer = block(lambda p, h: h + activation(xp, xp.matmul(h, p["w"]) + p["b"]))
    h, _ = scan(backend, lambda h, p: (layer(p, h), ()), x["inputs"], theta["layers"])
    return h


def _mlp_losses(spec: Any, backend: str, theta: Tree, x: Tree, block: Block) -> Any:
    xp, targets = namespace(backend), x["targets"]
    out = xp.matmul(_mlp_features(spec, backend, theta, x, block), theta["readout"]["w"]) + theta["readout"]["b"]
    out = out - stop_gradient(backend, xp.max(out, axis=-1, keepdims=True)) - x.get("shift", 0)
    hot = xp.arange(spec.vocabulary, dtype=targets.dtype) == targets[..., None]
    chosen = xp.sum(xp.where(hot, out, xp.zeros_like(out)), axis=-1)
    return xp.log(xp.sum(xp.exp(out), axis=-1)) - chosen


def _mlp_scores(spec: Any, backend: str, theta: Tree, x: Tree, block: Block) -> Any:
    return _score(namespace(backend), theta, _mlp_features(spec, backend, theta, x, block))


# The transformer of `transformer`.


def _transformer_draws(spec: Any) -> Tree:
    return transformer.draws(spec.width, spec.ffw, spec.heads, spec.key_size, spec.layers, spec.vocabulary)


def _transformer_batch(spec: Any, lead: tuple[int, ...]) -> dict[str, Any]:
    shape = (*lead, spec.batch, spec.sequence)
    return {"inputs": Integers(shape, spec.vocabulary), "targets": Integers(shape, spec.vocabulary)}


def _transformer_losses(spec: Any, backend: str, theta: Tree, x: Tree, block: Block) -> Any:
    each = transformer.token_losses(backend, theta, x["inputs"], x["targets"], block=block, shift=x.get("shift"))
    return namespace(backend).mean(each, axis=-1)


def _transformer_scores(spec: Any, backend: str, theta: Tree, x: Tree, block: Block) -> Any:
    xp = namespace(backend)
    hidden = transformer.features(backend, theta, x["inputs"], block=block, shift=x.get("shift"))
    return _score(xp, theta, xp.mean(hidden, axis=-2))


MODELS = {
    "toy": Model(_toy_draws, _toy_batch, _toy_losses, _toy_scores),
    "mlp": Model(_mlp_draws, _mlp_batch, _mlp_losses, _mlp_scores),
    "transformer": Model(_transformer_draws, _transformer_batch, _transformer_losses, _transformer_scores),
}
"""Name -> inner model."""
