"""A layer of causal linear attention with several heads, in JAX: a module of flax's nnx."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from gradgate.references.errors import UsageError
from gradgate.references.performer.in_jax.linear_attention import favor_projection, linear_attention
from gradgate.references.performer.operands import CHUNK, check_layer, check_width

try:
    from flax import nnx
except ImportError as error:
    raise UsageError(
        f"LinearAttention is a module of flax's nnx, which cannot be imported ({error}): pip install flax; or call "
        "gradgate.in_jax.linear_attention in a layer of your own"
    ) from None


class Projection(nnx.Variable[Any]):
    """The projection of random features, which is saved with a module but not trained."""


class LinearAttention(nnx.Module):
    """Projections to queries, keys and values, `linear_attention` in every head, and a projection of its output.

    Attributes:
        query, key, value, out: `nnx.Linear` without biases, of width × width; key and value give as many heads as
            `key_heads` says.
        projection: (features, width / heads), a `Projection`, for ``favor`` only; no `nnx.Param`, so it is not trained.

    Raises:
        UsageError: an input has another width, `heads` does not divide `width`, an option is wrong, or flax is
            not installed.

    Source:
        SLiM Performers (2020), §2.1 and Eq. 5.

    Stores:
        What `linear_attention` keeps, and what the four linear layers keep.

    Example::

        layer = LinearAttention(512, heads=8, feature_map="favor", features=256, rngs=nnx.Rngs(0))
        y = layer(x)  # (batch, length, 512)
        y, state = layer(prompt, return_state=True)  # then token by token, each with (batch, 1, 512):
        y, state = layer(token, state=state, return_state=True)
    """

    def __init__(
        self,
        width: int,
        *,
        rngs: nnx.Rngs,
        heads: int = 1,
        key_heads: int | None = None,
        feature_map: str = "elu",
        features: int | None = None,
        chunk: int = CHUNK,
    ) -> None:
        """Make the layer.

        Args:
            width: the last size of input and output.
            rngs: the generators of the draws.
            heads: the number of heads, which must divide `width`.
            key_heads: the number of heads of keys and values, which must divide `heads`: as many heads, one after
                another, share one; None: as many as `heads`.
            feature_map: a name, as for `linear_attention`; with ``identity``, nothing is divided by the sum of weights.
            features: M of ``favor``; None: the width of a head.
            chunk: as for `linear_attention`.
        """
        each = check_layer(width, heads, key_heads, feature_map, features)
        self.width, self.heads, self.feature_map, self.chunk = width, heads, feature_map, chunk
        self.key_heads = key_heads or heads
        sizes = width, self.key_heads * each, self.key_heads * each, width
        self.query, self.key, self.value, self.out = (
            nnx.Linear(width, size, use_bias=False, rngs=rngs) for size in sizes
        )
        drawn = favor_projection(rngs.params(), features or each, each) if feature_map == "favor" else None
        self.projection = None if drawn is None else Projection(drawn)

    def __call__(self, x: Any, *, mask: Any = None, state: Any = None, return_state: bool = False) -> Any:
        """From x (..., length, width) to y of the same shape; with `return_state`, (y, state).

        Args:
            x: the tokens.
            mask: booleans (..., length), False where a token is padding; None: there is no padding. Such a token
                changes no other one, and its y is 0.
            state: the state before the first token, as `linear_attention` has it: the pair (S, z), S (..., key_heads,
                features, width / heads) and z (..., key_heads, features); with ``identity`` S alone; None: zeros.
            return_state: whether the state after the last token is returned too.
        """
        check_width(self.width, tuple(x.shape))
        each = self.width // self.heads
        layers = ((self.query, self.heads), (self.key, self.key_heads), (self.value, self.key_heads))
        q, k, v = (jnp.swapaxes(layer(x).reshape(*x.shape[:-1], count, each), -2, -3) for layer, count in layers)
        y, after = linear_attention(
            q,
            k,
            v,
            feature_map=self.feature_map,
            chunk=self.chunk,
            normalise=self.feature_map != "identity",
            projection=None if self.projection is None else self.projection[...],
            mask=None if mask is None else mask[..., None, :],
            state=state,
            return_state=True,
        )
        made = self.out(jnp.swapaxes(y, -2, -3).reshape(x.shape))
        return (made, after) if return_state else made
