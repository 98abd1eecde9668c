"""The paper's inner model, a Chinchilla-like decoder, written once for NumPy, JAX and PyTorch.

Pre-norm blocks with RMS norm (Zhang & Sennrich, 2019), causal attention with rotary positions (RoPE; Su et al., 2021),
GELU, no biases, and one embedding for input and output. Layers are stacked on axis 0 and run in a scan, so that a model
of 16 billion parameters is one block to a compiler.

Letters: B batch, S context, d width, h heads, k key size, f feed-forward width, L layers, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gradgate.references.backends import namespace, scan, stop_gradient
from gradgate.references.contract import Tree
from gradgate.references.draws import Normal
from gradgate.references.performer.problem import gelu

Block = Callable[[Callable[..., Any]], Callable[..., Any]]
VOCABULARY = 32000
"""Size of Chinchilla's vocabulary (Hoffmann et al., 2022); it gives the parameter counts of Table 6."""
EPSILON = 1e-6


@dataclass(frozen=True)
class Size:
    """One row of Table 6.

    Attributes:
        millions: of parameters, as printed, which is the row's name.
        width, ffw, key_size, heads, layers: d, f, k, h and L.
    """

    millions: int
    width: int
    ffw: int
    key_size: int
    heads: int
    layers: int

    def parameters(self, vocabulary: int = VOCABULARY) -> int:
        """Numbers in `draws` of this size.

        The paper prints L·d·h·k more, because Chinchilla's relative positions have a projection; RoPE has none.
        """
        d, hk = self.width, self.heads * self.key_size
        return vocabulary * d + self.layers * (4 * d * hk + 2 * d * self.ffw + 2 * d) + d


SIZES = {
    size.millions: size
    for size in (
        Size(44, 512, 2048, 64, 8, 8),
        Size(90, 640, 2560, 64, 10, 13),
        Size(140, 768, 3072, 64, 12, 15),
        Size(196, 896, 3584, 64, 14, 16),
        Size(278, 1024, 4096, 64, 16, 18),
        Size(489, 1280, 5120, 128, 10, 21),
        Size(587, 1408, 5632, 128, 11, 21),
        Size(724, 1536, 6144, 128, 12, 22),
        Size(1018, 1792, 7168, 128, 14, 23),
        Size(1429, 2048, 8192, 128, 16, 25),
        Size(1609, 2176, 8704, 128, 17, 25),
        Size(2007, 2304, 9216, 128, 18, 28),
        Size(2639, 2560, 10240, 128, 20, 30),
        Size(3802, 2816, 11264, 128, 22, 36),
        Size(4516, 3072, 12288, 128, 24, 36),
        Size(6796, 3584, 14336, 128, 28, 40),
        Size(9293, 4096, 16384, 128, 32, 42),
        Size(11452, 4352, 17408, 128, 32, 47),
        Size(12295, 4608, 18432, 128, 36, 44),
        Size(12569, 4608, 18432, 128, 32, 47),
        Size(13735, 4864, 19456, 128, 32, 47),
        Size(16183, 5120, 20480, 128, 40, 47),
    )
}
"""Millions of parameters as printed -> Table 6's row."""


def draws(width: int, ffw: int, heads: int, key_size: int, layers: int, vocabulary: int) -> Tree:
    """θ as draws: matrices keep the variance of their input; gains are close to 1.

    Shapes: embedding (V, d), norm (d,); of the layers, each with L in front: attention.norm (d,), .query, .key, .value
    and .out (h, k, d); feed_forward.norm (d,), .up (d, f), .down (f, d). The heads have their own axis, and the two
    axes that a TPU pads to tiles of 8 × 128 are large.
    """

    def matrix(fan_in: int, *shape: int) -> Normal:
        return Normal((layers, *shape), fan_in**-0.5)

    gains, per_head = Normal((layers, width), 0.1, 1.0), (heads, key_size, width)
    return {
        "embedding": Normal((vocabulary, width), width**-0.5),
        "layers": {
            "attention": {
                "norm": gains,
                "query": matrix(width, *per_head),
                "key": matrix(width, *per_head),
                "value": matrix(width, *per_head),
                "out": matrix(heads * key_size, *per_head),
            },
            "feed_forward": {"norm": gains, "up": matrix(width, width, ffw), "down": matrix(ffw, ffw, width)},
        },
        "norm": Normal((width,), 0.1, 1.0),
    }


def token_losses(
    backend: str,
    theta: Tree,
    tokens: Any,
    targets: Any,
    *,
    block: Block = lambda layer: layer,
    shift: Any = None,
) -> Any:
    """Cross-entropy of each next token, (B, S), in nats.

    Args:
        backend: ``numpy``, ``jax`` or ``torch``.
        theta: tree of arrays laid out as `draws`.
        tokens, targets: (B, S) integers of 0 … V − 1; ``tokens[:, : s + 1]`` predict ``targets[:, s]``.
        block: wraps the function ``(parameters of a layer, x) -> x``: identity, or ``jax.checkpoint`` for block
            rematerialisation.
        shift: a scalar array that is subtracted from all scores of attention: softmax is the same but rounds
            differently.

    Cost: when differentiated, it stores 7 to 10 arrays (B, h, S, S) per block; with block rematerialisation only those
    of one block at a time.
    """
    logits = outputs(backend, theta, tokens, block=block, shift=shift)
    xp = namespace(backend)
    shifted = logits - stop_gradient(backend, xp.max(logits, axis=-1, keepdims=True))
    hot = xp.arange(logits.shape[-1], dtype=targets.dtype) == targets[..., None]
    chosen = xp.sum(xp.where(hot, shifted, xp.zeros_like(shifted)), axis=-1)
    return xp.log(xp.sum(xp.exp(shifted), axis=-1)) - chosen


def outputs(backend: str, theta: Tree, tokens: Any, *, block: Block = lambda layer: layer, shift: Any = None) -> Any:
    """Logits (B, S, V) of the token that follows each position; arguments as for `token_losses`."""
    hidden = features(backend, theta, tokens, block=block, shift=shift)
    xp = namespace(backend)
    return xp.matmul(hidden, xp.matrix_transpose(theta["embedding"]))


def features(backend: str, theta: Tree, tokens: Any, *, block: Block = lambda layer: layer, shift: Any = None) -> Any:
    """The output of the layers at each position, normalised, (B, S, d); arguments as for `token_losses`."""
    xp = namespace(backend)
    embedding = theta["embedding"]
    batch, length = tokens.shape
    width = embedding.shape[-1]
    x = xp.reshape(xp.take(embedding, xp.reshape(tokens, (-1,)), axis=0), (batch, length, width)) * math.sqrt(width)

    def layer(p: Tree, x: Any) -> Any:  # closes over no array: PyTorch's rematerialisation would not differentiate it
        x = x + attention(backend, p["attention"], x, shift)
        f = p["feed_forward"]
        return x + xp.matmul(gelu(xp, xp.matmul(rms_norm(xp, f["norm"], x), f["up"])), f["down"])

    run = block(layer)
    x, _ = scan(backend, lambda x, p: (run(p, x), ()), x, theta["layers"])
    return rms_norm(xp, theta["norm"], x)


def attention(backend: str, p: Tree, x: Any, shift: Any = None) -> Any:
    """Causal attention of a block: (B, S, d) -> (B, S, d); reads ``norm query key value out``; `shift` as above."""
    xp = namespace(backend)
    batch, length, width = x.shape
    heads, key_size, _ = p["query"].shape
    turns = rotations(xp, length, key_size, x.dtype)
    normed = rms_norm(xp, p["norm"], x)

    def flat(name: str) -> Any:
        return xp.reshape(p[name], (heads * key_size, width))

    def split(name: str) -> Any:
        projected = xp.matmul(normed, xp.matrix_transpose(flat(name)))
        return xp.permute_dims(xp.reshape(projected, (batch, length, heads, key_size)), (0, 2, 1, 3))

    q, k, v = rotate(xp, split("query"), turns), rotate(xp, split("key"), turns), split("value")
    scores = xp.matmul(q, xp.matrix_transpose(k)) / math.sqrt(q.shape[-1])
    position = xp.arange(length)
    scores = xp.where(position[:, None] >= position, scores, xp.full_like(scores, -1e30))
    top = stop_gradient(backend, xp.max(scores, axis=-1, keepdims=True))
    weights = xp.exp(scores - (top if shift is None else top + shift))
    weights = weights / xp.sum(weights, axis=-1, keepdims=True)
    mixed = xp.reshape(xp.permute_dims(xp.matmul(weights, v), (0, 2, 1, 3)), (batch, length, heads * key_size))
    return xp.matmul(mixed, flat("out"))


def rotations(xp: Any, length: int, key_size: int, dtype: Any) -> tuple[Any, Any]:
    """Cosines and sines (S, k/2) of the angles s·10000^(−2i/k) by which RoPE turns position s (Su et al., Eq. 15)."""
    wide = xp.float32 if "bfloat16" in str(dtype) else dtype  # bfloat16 cannot count beyond 256
    frequency = xp.exp(xp.arange(key_size // 2, dtype=wide) * (-2 * math.log(1e4) / key_size))
    angle = xp.arange(length, dtype=wide)[:, None] * frequency
    return xp.astype(xp.cos(angle), dtype), xp.astype(xp.sin(angle), dtype)


def rotate(xp: Any, x: Any, turns: tuple[Any, Any]) -> Any:
    """Turn each pair of features i and i + k/2 of x (…, S, k) by its position's angle."""
    cosines, sines = turns
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    return xp.concat([first * cosines - second * sines, second * cosines + first * sines], axis=-1)


def rms_norm(xp: Any, gain: Any, x: Any) -> Any:
    """Divide x (…, d) by its root mean square, and scale by the gain (d,)."""
    return x / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + EPSILON) * gain
