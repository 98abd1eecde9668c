"""The recurrence of a selective state space model as a function, in PyTorch.

The forward pass keeps one state for each chunk. The backward pass takes the chunks from the last to the first,
computes the states of each chunk again, and runs the reverse recurrence μ_t = c_t g_t + a_{t+1} μ_{t+1} through it.
Adjoint sharding reduces to this recurrence when the sum over later tokens is carried out first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from gradgate.references.backends import namespace
from gradgate.references.errors import UsageError, check_arrays
from gradgate.references.state_space.operands import How, check_segments, how, prepared, read, starts_of

vjp: Callable[..., Any] = torch.func.vjp
ORDER = ("a", "b", "c", "x", "delta", "state")
"""Operands in the order in which autograd sees them."""


def selective_scan(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    x: torch.Tensor,
    *,
    delta: torch.Tensor | None = None,
    state: torch.Tensor | None = None,
    chunk: int | None = None,
    associative: bool = False,
    lengths: Sequence[int] | None = None,
    segments: torch.Tensor | None = None,
    return_state: bool = False,
) -> Any:
    """Outputs y_t = c_t·h_t of the states h_t = a_t h_{t−1} + b_t x_t, in memory for about √length states.

    Args:
        a: decays, (batch, length, channels, state), diagonal as in Mamba 1; or (batch, length, heads), one number per
            head, as in Mamba 2. With `delta`: (channels, state) or (heads,), and the decays are exp(delta·a).
        b, c: (batch, length, state) in the first form; (batch, length, groups, state) in the second, where `groups`
            divides the heads. float64, float32, float16 or bfloat16, as x; sums are float32 at least. Within autocast
            the dtypes may differ: the widest of b, c and x counts, as in PyTorch's own functions of several tensors.
        x: (batch, length, channels), or (batch, length, heads, width).
        delta: steps, (batch, length, channels) or (batch, length, heads). The recurrence is then
            h_t = exp(delta_t·a) h_{t−1} + b_t delta_t x_t: delta multiplies x too, so do not multiply x or b by it
            yourself. The decays are computed chunk by chunk, so that all decays are never in memory at once.
        state: the state before the first token, (batch, channels, state) or (batch, heads, width, state); None: zeros.
        chunk: tokens of a chunk, at least 1, which need not divide the length; None: about √length.
        associative: whether a chunk's states are computed as a parallel prefix, and not one after another: this takes
            about 2·log₂(chunk) steps and twice the work.
        lengths: tokens of the sequences that are packed into `length`. Each sequence starts from the state zero, but
            the first starts from `state`.
        segments: in place of `lengths`, integers (length,) or (batch, length): a sequence begins where they change.
        return_state: whether the state after the last token is returned too.

    Returns:
        y, shaped like x and in its dtype; with `return_state` (y, state), the state in at least float32. `state`
        belongs to the first packed sequence, the one returned to the last. `torch.func`, vmap and a further derivative
        work; forward mode does not.

    Raises:
        UsageError: shapes, dtypes, lengths or options do not fit; the message says what is legal.

    Source:
        Adjoint sharding (2024), Prop. 2, with the sum over later tokens carried out first; Gu and Dao, Mamba (2023),
        Eq. 2; Dao and Gu, Transformers are SSMs (2024), Eq. 1. Chunks are beyond the papers.

    Stores:
        Between the passes the inputs and ⌈length/chunk⌉ states. Each pass also holds the states of one chunk, some of
        them three times. With a chunk of √length both grow like √length.

    Computes:
        Every state twice, and the reverse recurrence once. FLOPs grow linearly with the length.

    Not for:
        Heads with scalar decays on accelerators at full speed: products of masked matrices, which hold no states inside
        a chunk, use matrix units there. Not for a and b that do not depend on the token: use a convolution.
    """
    operands: dict[str, Any] = {"a": a, "b": b, "c": c, "x": x, "delta": delta, "state": state}
    for name, leaf in operands.items():
        if leaf is not None or name in "abcx":
            check_arrays(name, (leaf,), "torch.Tensor", lambda x: isinstance(x, torch.Tensor))
    if torch.is_autocast_enabled(x.device.type) and all(t.is_floating_point() for t in (b, c, x)):
        widest = functools.reduce(torch.promote_types, (b.dtype, c.dtype, x.dtype))
        operands |= {name: operands[name].to(widest) for name in "bcx"}
    given = how(
        {name: None if leaf is None else tuple(leaf.shape) for name, leaf in operands.items()},
        {name: str(leaf.dtype).removeprefix("torch.") for name, leaf in operands.items() if leaf is not None},
        chunk,
        associative,
    )
    first = _first(operands["x"], lengths, segments)
    y, after, _ = _Scan.apply(*(operands[name] for name in ORDER), first, given)
    return (y, after) if return_state else y


def _first(x: torch.Tensor, lengths: Sequence[int] | None, segments: torch.Tensor | None) -> torch.Tensor | None:
    """(length, batch): whether a packed sequence other than the first begins at a token; None: none are packed."""
    if lengths is not None and segments is not None:
        raise UsageError("lengths and segments say the same thing: give one of them")
    if lengths is not None:
        begins = torch.tensor(starts_of(lengths, x.shape[1]), dtype=torch.bool, device=x.device)
        return begins[:, None].expand(x.shape[1], x.shape[0])
    if segments is None:
        return None
    check_segments(tuple(segments.shape), str(segments.dtype), tuple(x.shape))
    rows = segments.expand(x.shape[:2]).movedim(1, 0)
    return torch.cat([torch.zeros_like(rows[:1], dtype=torch.bool), rows[1:] != rows[:-1]])


def _repeated(array: torch.Tensor, times: int) -> torch.Tensor:
    return array.repeat_interleave(times, -2)


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _advance(given: How, decay: torch.Tensor, drive: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
    """h_t = decay_t h_{t−1} + drive_t: all states of a chunk."""
    if given.associative:
        return _prefix(decay, torch.cat([drive[:1] + decay[:1] * start, drive[1:]]))
    h, states = start, []
    for one, more in zip(decay.unbind(), drive.unbind(), strict=True):
        h = torch.addcmul(more, one, h)
        states.append(h)
    return torch.stack(states)


def _retreat(
    given: How, decay: torch.Tensor, direct: torch.Tensor, carry: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """μ_t = direct_t + decay_{t+1} μ_{t+1} for all tokens of a chunk, and decay·μ of its first token.

    Args:
        given: how the call is computed.
        decay: the decays of the chunk's tokens.
        direct: the cotangents of its states that come from its own outputs.
        carry: decay·μ of the first token after the chunk.
    """
    if given.associative:
        later = torch.cat([torch.zeros_like(decay[:1]), decay[1:].flip(0)])
        mus = _prefix(later, torch.cat([direct[-1:] + carry, direct[:-1].flip(0)])).flip(0)
        return mus, decay[0] * mus[0]
    found: list[torch.Tensor] = []
    for one, more in zip(reversed(decay.unbind()), reversed(direct.unbind()), strict=True):
        found.append(more + carry)
        carry = one * found[-1]
    return torch.stack(found[::-1]), carry


def _prefix(decay: torch.Tensor, drive: torch.Tensor) -> torch.Tensor:
    """States as the parallel prefix of the affine maps h -> decay h + drive: pairs first, then the rest."""
    return _prefixes(decay, drive)[1]


def _prefixes(decay: torch.Tensor, drive: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if len(drive) < 2:
        return decay, drive
    even, odd = decay[: len(decay) - 1 : 2], decay[1::2]
    odds = _prefixes(even * odd, torch.addcmul(drive[1::2], odd, drive[: len(drive) - 1 : 2]))
    before = [found[: (len(drive) - 1) // 2] for found in odds]
    evens = (
        torch.cat([decay[:1], before[0] * decay[2::2]]),
        torch.cat([drive[:1], torch.addcmul(drive[2::2], decay[2::2], before[1])]),
    )
    return _woven(evens[0], odds[0]), _woven(evens[1], odds[1])


def _woven(evens: torch.Tensor, odds: torch.Tensor) -> torch.Tensor:
    """The entries of both in turn; `evens` may have one entry more."""
    pairs = torch.stack([evens[: len(odds)], odds], 1).flatten(0, 1)
    return torch.cat([pairs, evens[len(odds) :]])


def _prepared(
    given: How, tokens: dict[str, torch.Tensor], shared: torch.Tensor | None, first: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    wide = {name: _wide(leaf) for name, leaf in tokens.items()}
    found: tuple[torch.Tensor, torch.Tensor] = prepared(
        namespace("torch"), given, wide, None if shared is None else _wide(shared), first, _repeated
    )
    return found


def _read(given: How, h: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    y: torch.Tensor = read(namespace("torch"), given, h, _wide(c), _repeated)
    return y


def _plain(device: torch.device) -> Any:
    """A scope in which autocast changes nothing: every cast here is deliberate."""
    return torch.autocast(device.type, enabled=False)


def _chunks(given: How, operands: dict[str, torch.Tensor | None], first: torch.Tensor | None) -> list[Any]:
    """For each chunk (the operands of its tokens, where sequences begin in it), with time as the first axis."""
    names = ("b", "c", "x", "a" if operands["delta"] is None else "delta")
    tokens = {name: leaf.movedim(1, 0) for name in names if (leaf := operands[name]) is not None}
    return [
        (
            {name: leaf[start : start + given.chunk] for name, leaf in tokens.items()},
            None if first is None else first[start : start + given.chunk],
        )
        for start in range(0, len(tokens["x"]), given.chunk)
    ]


# The states before chunks are an output that no user sees, so that a further derivative goes through what was kept.
class _Scan(torch.autograd.Function):
    """The operands, the places where sequences begin, how -> y, the last state, the states before chunks."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*inputs: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Chunk after chunk."""
        *leaves, first, given = inputs
        operands = dict(zip(ORDER, leaves, strict=True))
        x, shared, start = operands["x"], None if operands["delta"] is None else operands["a"], operands["state"]
        with _plain(x.device):
            h = _zeros(operands) if start is None else _wide(start).clone()
            ys, starts = [], []
            for tokens, begins in _chunks(given, operands, first):
                starts.append(h)
                states = _advance(given, *_prepared(given, tokens, shared, begins), h)
                ys.append(_read(given, states, tokens["c"]).to(x.dtype))
                h = states[-1].clone()  # a view would keep the whole chunk alive
            if not ys:
                return torch.zeros_like(x), h, h.new_zeros((0, *h.shape))
            return torch.cat(ys).movedim(0, 1).contiguous(), h, torch.stack(starts)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keeps the inputs and the states before chunks."""
        ctx.given = inputs[-1]
        ctx.save_for_backward(*inputs[:-1], output[2])

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor, carry: torch.Tensor, of_starts: torch.Tensor) -> Any:
        """The chunks from the last to the first.

        A VJP may be called after the level of `torch.func` that recorded it has been left. What was saved is then a
        dead wrapper, which the VJPs inside do not unwrap; a view of it is alive, and copies nothing.
        """
        living: list[Any] = [None if leaf is None else leaf.view_as(leaf) for leaf in ctx.saved_tensors]
        *leaves, first, starts = living
        operands = dict(zip(ORDER, leaves, strict=True))
        with _plain(g.device):
            found = _backward(ctx.given, operands, first, starts, (_wide(g), carry, of_starts))
        return *(found[name] for name in ORDER), None, None


def _zeros(operands: dict[str, torch.Tensor]) -> torch.Tensor:
    """The state before the first token if none is given."""
    x, b = operands["x"], operands["b"]
    dtype = torch.promote_types(x.dtype, torch.float32)
    return x.new_zeros((x.shape[0], *x.shape[2:], b.shape[-1]), dtype=dtype)


def _backward(
    given: How,
    operands: dict[str, torch.Tensor | None],
    first: torch.Tensor | None,
    starts: torch.Tensor,
    cotangents: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
) -> dict[str, torch.Tensor | None]:
    """The cotangents of the operands.

    Args:
        given: how the call is computed.
        operands: the operands by name.
        first: where sequences begin.
        starts: the states before chunks.
        cotangents: the cotangents of y, of the last state and of `starts`.
    """
    shared = None if operands["delta"] is None else operands["a"]
    g, carry, of_starts = cotangents
    g = g.movedim(1, 0)
    if not len(starts):  # empty, but with a graph, which a further derivative needs
        empty: dict[str, torch.Tensor | None] = {n: None if leaf is None else 0 * leaf for n, leaf in operands.items()}
        return {**empty, "state": None if (start := operands["state"]) is None else carry.to(start.dtype)}
    parts, total = [], None
    for i, (tokens, begins) in reversed(list(enumerate(_chunks(given, operands, first)))):
        here = g[i * given.chunk : (i + 1) * given.chunk]
        carry, part, pulled = _pull_chunk(given, tokens, shared, begins, starts[i], here, carry)
        carry = carry + of_starts[i]
        total = part if total is None or part is None else total + part
        parts.append(pulled)
    found: dict[str, torch.Tensor | None] = dict.fromkeys(ORDER)
    for name in parts[0]:
        found[name] = torch.cat([part[name] for part in parts[::-1]]).movedim(0, 1)
    if shared is not None and total is not None:
        found["a"] = total
    if (start := operands["state"]) is not None:
        found["state"] = carry.to(start.dtype)
    return found


def _pull_chunk(
    given: How,
    tokens: dict[str, torch.Tensor],
    shared: torch.Tensor | None,
    first: torch.Tensor | None,
    start: torch.Tensor,
    g: torch.Tensor,
    carry: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor | None, dict[str, torch.Tensor]]:
    """Run one chunk forward once more, and back.

    Args:
        given: how the call is computed.
        tokens, shared, first: the inputs.
        start: the state before the chunk.
        g: cotangent of y, in at least float32.
        carry: cotangent of the state after the chunk.

    Returns:
        The cotangents of `start`, of `shared`, and of the tokens.
    """
    others = {name: leaf for name, leaf in tokens.items() if name != "c"}
    if shared is None:
        (decay, drive), pull = vjp(lambda tokens: _prepared(given, tokens, None, first), others)
    else:
        (decay, drive), pull = vjp(lambda tokens, shared: _prepared(given, tokens, shared, first), others, shared)
    h = _advance(given, decay, drive, start)
    _, pull_read = vjp(lambda h, c: _read(given, h, c), h, tokens["c"])
    direct, of_c = pull_read(g)
    mus, carry = _retreat(given, decay, direct, carry)
    products = mus * torch.cat([start[None], h[:-1]])
    alone = [axis for axis, size in enumerate(decay.shape) if size == 1]
    of_tokens, *rest = pull((products.sum(alone, keepdim=True) if alone else products, mus))
    return carry, rest[0] if rest else None, {**of_tokens, "c": of_c}
