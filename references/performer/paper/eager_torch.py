"""Table 2's program: a training step as a PyTorch user writes it, with modules of the library and its autograd.

The paper measures this, and not our methods: PyTorch 1.7, `torch.cuda.max_memory_allocated`, prefix sums by App. B in
blocks of 64 tokens. Two settings are only in its published code (footnote 1; google-research at 0c1bbe5fc971,
performer/models/slim_performer/pytorch/train.py): the copying task has one layer, where §4 says that all have three,
and a GB is 2³⁰ bytes. With three layers the copying task takes 2.0 to 2.5 times what is printed.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from gradgate.references.performer.in_torch.attention import summed

BLOCK = 64
"""Tokens of a block of App. B."""
LETTERS = 256
"""|Σ|, in all experiments of the paper."""


class BlockSums(torch.autograd.Function):
    """App. B, corrected: (q, k, v, state before) -> (U q, state after); its backward pass rebuilds the states.

    The state after a block is a view, which keeps the block's U alive; our methods copy it.
    """

    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, state: torch.Tensor) -> Any:
        """U q of all tokens, and the state after them; one block's U at a time is in memory."""
        outs = []
        for span in _spans(len(q)):
            U = torch.einsum("cbhd,cbhm->cbhdm", v[span], k[span])
            U = state + torch.cumsum(U, 0)
            outs.append(torch.einsum("cbhdm,cbhm->cbhd", U, q[span]))
            state = U[-1]
        ctx.save_for_backward(q, k, v, state)
        return torch.cat(outs), state

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> Any:
        """The cotangents of q, k, v and the state before."""
        g, after = upstream
        q, k, v, state = ctx.saved_tensors
        parts = []
        for span in reversed(_spans(len(q))):
            state = state - summed(k[span], v[span])
            U = torch.einsum("cbhd,cbhm->cbhdm", v[span], k[span])
            U = state + torch.cumsum(U, 0)
            dq = torch.einsum("cbhdm,cbhd->cbhm", U, g[span])
            G = torch.einsum("cbhd,cbhm->cbhdm", g[span], q[span])
            G = after + torch.cumsum(G.flip(0), 0).flip(0)
            dk, dv = torch.einsum("cbhdm,cbhd->cbhm", G, v[span]), torch.einsum("cbhdm,cbhm->cbhd", G, k[span])
            parts.append((dq, dk, dv))
            after = G[0]
        return *(torch.cat(part[::-1]) for part in zip(*parts, strict=True)), after


def _spans(tokens: int) -> list[slice]:
    return [slice(start, start + BLOCK) for start in range(0, tokens, BLOCK)]


class Layer(nn.Module):
    """Eq. 5 to 8: attention with squares as features, then a feed-forward net, each with LayerNorm after it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def forward(self, X: torch.Tensor, state: torch.Tensor, *, back: bool = False) -> tuple[torch.Tensor, ...]:
        """X (n, 1, d), and the state before its tokens, or with `back` after them -> X, both states."""
        q, k, v = (net(X).reshape(len(X), 1, self.heads, -1) for net in (self.query, self.key, self.value))
        q, k, v = q.square(), k.square(), torch.cat([v, torch.ones_like(v[..., :1])], dim=-1)
        if back:
            state = (state - summed(k, v)).detach().requires_grad_()
        out, after = BlockSums.apply(q, k, v, state)
        X = X + self.norms[0]((out[..., :-1] / (out[..., -1:] + 1e-16)).reshape(X.shape))
        return X + self.norms[1](self.down(nn.functional.gelu(self.up(X)))), state, after


class Model(nn.Module):
    """The Performer of one configuration of §4."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.width, self.heads = width, width // 64
        self.embedding, self.head = nn.Embedding(LETTERS, width), nn.Linear(width, LETTERS)
        self.layers = nn.ModuleList(Layer(width, self.heads) for _ in range(layers))

    def states(self) -> list[torch.Tensor]:
        """The states before the first token."""
        like = self.head.weight
        return [torch.zeros(1, self.heads, 65, 64, dtype=like.dtype, device=like.device) for _ in self.layers]

    def slice_loss(
        self, tokens: torch.Tensor, start: int, states: list[torch.Tensor], length: int, *, back: bool = False
    ) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
        """The loss of a slice from `start` on, tokens (n + 1,), and the states before and after it."""
        position = torch.arange(start, start + len(tokens) - 1, device=tokens.device)[:, None, None]
        frequency = torch.exp(torch.arange(0, self.width, 2, device=tokens.device) * (-math.log(1e4) / self.width))
        angle = position * frequency
        X = self.embedding(tokens[:-1])[:, None] + torch.cat([torch.sin(angle), torch.cos(angle)], dim=-1)
        X, befores, afters = X.to(self.head.weight.dtype), [], []
        for layer, state in zip(self.layers, states, strict=True):
            X, before, after = layer(X, state, back=back)
            befores.append(before)
            afters.append(after)
        return nn.functional.cross_entropy(self.head(X[:, 0]), tokens[1:], reduction="sum") / length, befores, afters

    def accumulate(self, tokens: torch.Tensor, chunk: int) -> None:
        """Add ∇_θ of the mean loss to ``.grad`` by Algorithm 1; with `chunk` of the length and more by backprop."""
        length = len(tokens) - 1
        starts, states = range(0, length, chunk), self.states()
        if len(starts) == 1:
            self.slice_loss(tokens, 0, states, length)[0].backward()
            return
        with torch.no_grad():
            for start in starts:
                _, _, states = self.slice_loss(tokens[start : start + chunk + 1], start, states, length)
        cotangents = [torch.zeros_like(state) for state in states]
        for start in reversed(starts):
            part = tokens[start : start + chunk + 1]
            loss, states, afters = self.slice_loss(part, start, states, length, back=True)
            (loss + sum((g * after).sum() for g, after in zip(cotangents, afters, strict=True))).backward()
            cotangents = [state.grad for state in states if state.grad is not None]
            states = [state.detach() for state in states]


def step_size(name: str, chunk: int, layers: int) -> float:
    """Peak GiB of a step of Adam, with parameters, gradients and moments.

    Args:
        name: the configuration.
        chunk: C; L is the full algorithm.
        layers: s.

    Cost: a second or two; nothing is computed.
    """
    from gradgate.hw_profiles.torch_memory import peak
    from gradgate.references.performer.paper.measured import CONFIGURATIONS

    length, width = CONFIGURATIONS[name]
    with torch.device("meta"):  # bytes depend on shapes alone
        model, tokens = Model(width, layers), torch.zeros(length + 1, dtype=torch.int64)
    optimiser = torch.optim.Adam(model.parameters(), foreach=False)

    def step() -> None:
        model.accumulate(tokens, chunk)
        optimiser.step()
        optimiser.zero_grad(set_to_none=False)

    return peak(step, (), (tokens, model, optimiser)).total_bytes / 2**30
