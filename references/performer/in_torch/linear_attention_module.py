"""A layer of causal linear attention with several heads, in PyTorch."""

from __future__ import annotations

from typing import Any

import torch

from gradgate.references.performer.in_torch.linear_attention import favor_projection, linear_attention
from gradgate.references.performer.operands import CHUNK, check_layer, check_width


class LinearAttention(torch.nn.Module):
    """Projections to queries, keys and values, `linear_attention` in every head, and a projection of its output.

    Attributes:
        query, key, value, out: `torch.nn.Linear` without biases, of width × width; key and value give as many heads as
            `key_heads` says.
        projection: (features, width / heads), a buffer, for ``favor`` only: saved with the module and not trained.

    Raises:
        UsageError: an input has another width, `heads` does not divide `width`, or an option is wrong.

    Source:
        SLiM Performers (2020), §2.1 and Eq. 5.

    Stores:
        What `linear_attention` keeps, and what the four linear layers keep.

    Example::

        layer = LinearAttention(512, heads=8, feature_map="favor", features=256)
        y = layer(x)  # (batch, length, 512)
        y, state = layer(prompt, return_state=True)  # then token by token, each with (batch, 1, 512):
        y, state = layer(token, state=state, return_state=True)
    """

    def __init__(
        self,
        width: int,
        *,
        heads: int = 1,
        key_heads: int | None = None,
        feature_map: str = "elu",
        features: int | None = None,
        chunk: int = CHUNK,
        generator: torch.Generator | None = None,
    ) -> None:
        """Make the layer.

        Args:
            width: the last size of input and output.
            heads: the number of heads, which must divide `width`.
            key_heads: the number of heads of keys and values, which must divide `heads`: as many heads, one after
                another, share one; None: as many as `heads`.
            feature_map: a name, as for `linear_attention`; with ``identity``, nothing is divided by the sum of weights.
            features: M of ``favor``; None: the width of a head.
            chunk: as for `linear_attention`.
            generator: the generator of the projection; None: PyTorch's default generator.
        """
        super().__init__()
        each = check_layer(width, heads, key_heads, feature_map, features)
        self.width, self.heads, self.feature_map, self.chunk = width, heads, feature_map, chunk
        self.key_heads = key_heads or heads
        sizes = width, self.key_heads * each, self.key_heads * each, width
        self.query, self.key, self.value, self.out = (torch.nn.Linear(width, size, bias=False) for size in sizes)
        drawn = favor_projection(features or each, each, generator=generator) if feature_map == "favor" else None
        self.register_buffer("projection", drawn)

    def forward(
        self, x: torch.Tensor, *, mask: torch.Tensor | None = None, state: Any = None, return_state: bool = False
    ) -> Any:
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
        counts = self.heads, self.key_heads, self.key_heads
        q, k, v = (
            layer(x).unflatten(-1, (count, -1)).transpose(-2, -3)
            for layer, count in zip(self._projections(), counts, strict=True)
        )
        projection = self.get_buffer("projection") if self.feature_map == "favor" else None
        y, after = linear_attention(
            q,
            k,
            v,
            feature_map=self.feature_map,
            projection=projection,
            chunk=self.chunk,
            normalise=self.feature_map != "identity",
            mask=None if mask is None else mask[..., None, :],
            state=state,
            return_state=True,
        )
        made: torch.Tensor = self.out(y.transpose(-2, -3).flatten(-2))
        return (made, after) if return_state else made

    def _projections(self) -> tuple[torch.nn.Module, ...]:
        return self.query, self.key, self.value
