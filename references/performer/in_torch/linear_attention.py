"""Causal linear attention as a function of queries, keys and values, in PyTorch.

The backward pass runs the sums of the chunks forward once more and takes the chunks from the last to the first. It
applies the rules of `attention`, which the methods of the paper apply too. States and sums are float32 at least.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from gradgate.references.backends import namespace
from gradgate.references.performer.features import mapped, orthogonal_rows
from gradgate.references.performer.in_torch.attention import (
    masked_block,
    pull_block,
    pull_masked,
    summed,
    summed_block,
    wide,
)
from gradgate.references.performer.operands import CHUNK, How, check_features, how
from gradgate.references.performer.problem import FLOOR

vjp: Callable[..., Any] = torch.func.vjp


def linear_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *,
    feature_map: str | Callable[[torch.Tensor], torch.Tensor] = "elu", projection: torch.Tensor | None = None,
    chunk: int = CHUNK, normalise: bool = True, causal: bool = True,
) -> torch.Tensor:  # fmt: skip
    """Causal linear attention that keeps no prefix sum between its forward and its backward pass.

    y_l = Σ_{j≤l} (g(q_l)·g(k_j)) v_j / Σ_{j≤l} g(q_l)·g(k_j), in chunks of tokens.

    Args:
        q, k: (..., length, features), float64, float32 or bfloat16, such as (batch, heads, length, width).
        v: (..., length, values), with the leading sizes and the dtype of q.
        feature_map: g: ``identity``; ``relu``; ``elu``, which is elu(x) + 1; ``favor``, positive random features with
            E[g(q)·g(k)] = exp(q·k/√features); or a function (..., features) -> (..., M) of one token at a time.
        projection: (M, features), for ``favor`` only, such as `favor_projection` draws. It has a gradient too.
        chunk: tokens of a chunk, at least 1; it need not divide the length. It changes memory and work, but no value.
        normalise: whether to divide by the sum of weights. A sum of at most 1e-18 in absolute value counts as 1.
            Use False with features of both signs, such as ``identity`` has.
        causal: must be True. Bidirectional attention has no prefix sums; the error message says what to use.

    Returns:
        y, (..., length, values), in the dtype of v. `torch.func`, vmap and a further derivative work; forward mode does
        not.

    Raises:
        UsageError: shapes, dtypes or options do not fit, or `causal` is not True; the message says what is legal.

    Source:
        SLiM Performers (2020), Eq. 2–4 and App. B, corrected. Unlike the paper, the backward pass adds up again
        instead of subtracting later terms: the work is the same, and no digit is lost.

    Stores:
        Between the passes q, k, v, y and one sum of weights per token, but no prefix sum. The backward pass holds one
        state per chunk, ⌈length/chunk⌉·M·(values + 1) numbers per head, float32 at least, and one chunk's chunk² or
        chunk·M·(values + 1) numbers, whichever are fewer. If `feature_map` is a function, its features are kept too:
        2·length·M numbers.

    Computes:
        Four products of length·chunk·width or length·M·values numbers forward, and ten or eleven backward. FLOPs grow
        linearly with the length.

    Not for:
        Short sequences, of less than about M tokens, where the matrix of all weights is small: use softmax attention,
        or plain autograd. Not for generating token by token, which needs only one step of the recurrence.
    """
    if callable(feature_map):
        shapes = (tuple(q.shape), tuple(k.shape), tuple(v.shape))
        how(shapes, _dtypes(q, k, v), feature_map, _shape(projection), chunk, normalise, causal)
        q, k = feature_map(q), feature_map(k)
        check_features(shapes[0], tuple(q.shape), tuple(k.shape))
    shapes = (tuple(q.shape), tuple(k.shape), tuple(v.shape))
    name = feature_map if isinstance(feature_map, str) or not callable(feature_map) else "identity"
    given = how(shapes, _dtypes(q, k, v), name, _shape(projection), chunk, normalise, causal)
    if projection is not None:
        projection = projection.to(torch.promote_types(q.dtype, torch.float32))
    y: torch.Tensor = _Attend.apply(q, k, v, projection, given)[0]
    return y


def favor_projection(
    features: int, width: int, *, generator: torch.Generator | None = None, device: Any = None
) -> torch.Tensor:
    """A projection for ``feature_map="favor"``: normal rows, orthogonal within each block of `width`.

    Args:
        features: M, rows, at least 1.
        width: columns: the last size of q and k.
        generator: the generator of the draws; None: PyTorch's default generator.
        device: the device of the result.

    Returns:
        (features, width), float32.

    Source:
        Choromanski et al. (2020), §2.4.
    """
    rows: torch.Tensor = orthogonal_rows(torch.randn(features, width, generator=generator), "torch", "float32")
    return rows.to(device)


def _dtypes(*tensors: torch.Tensor) -> tuple[str, ...]:
    return tuple(str(x.dtype).removeprefix("torch.") for x in tensors)


def _shape(projection: torch.Tensor | None) -> tuple[int, ...] | None:
    return None if projection is None else tuple(projection.shape)


def _prepared(
    given: How, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, projection: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A chunk of q, k and v, in at least float32: features, and v with a last column of ones if it is needed."""
    return _mapped(given, q, projection), *_held(given, k, v, projection)


def _mapped(given: How, x: torch.Tensor, projection: torch.Tensor | None) -> torch.Tensor:
    found: torch.Tensor = mapped(namespace("torch"), given.feature_map, wide(x), projection)
    return found


def _held(
    given: How, k: torch.Tensor, v: torch.Tensor, projection: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The part of a chunk that goes into the state."""
    v = wide(v)
    ones = torch.nn.functional.pad(v, (0, 1), value=1.0) if given.normalise else v
    return _mapped(given, k, projection), ones


def _pulled(
    given: How, own: tuple[torch.Tensor, ...], projection: torch.Tensor | None
) -> tuple[tuple[torch.Tensor, ...], Callable[..., tuple[torch.Tensor, ...]]]:
    """The results of `_prepared` for a chunk, and its pullback to q, k, v and, if there is one, the projection."""
    found: tuple[tuple[torch.Tensor, ...], Callable[..., tuple[torch.Tensor, ...]]]
    if projection is None:
        found = vjp(lambda q, k, v: _prepared(given, q, k, v, None), *own)
    else:
        found = vjp(functools.partial(_prepared, given), *own, projection)
    return found


def _safe(D: torch.Tensor) -> torch.Tensor:
    """Denominators, with 1 in place of those that count as zero."""
    return torch.where(D.abs() > FLOOR, D, torch.ones_like(D))


def _spans(given: How, length: int) -> list[slice]:
    return [slice(first, first + given.chunk) for first in range(0, length, given.chunk)]


def _start(given: How, q: torch.Tensor, v: torch.Tensor, projection: torch.Tensor | None) -> torch.Tensor:
    """The state before the first token; q and v have the time first."""
    features = q.shape[-1] if projection is None else projection.shape[0]
    dtype = torch.promote_types(q.dtype, torch.float32)
    return q.new_zeros((*q.shape[1:-1], v.shape[-1] + given.normalise, features), dtype=dtype)


def _plain(device: torch.device) -> Any:
    """A scope in which autocast changes nothing: every cast here is deliberate."""
    return torch.autocast(device.type, enabled=False)


# y = N/D. For the cotangent g of y, that of N is g/D and that of D is −(g·y)/D. So only y and D are kept from the
# forward pass. D is an output that no user sees, so that a further derivative goes through what was kept.
class _Attend(torch.autograd.Function):
    """q, k, v, projection, how -> y (…, length, values), D (…, length, 1 or 0)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, projection: torch.Tensor | None, given: How
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Chunk after chunk."""
        width, ys, Ds = v.shape[-1], [], []
        run = masked_block if given.form == "matrix" else summed_block
        with _plain(q.device):
            times = [x.movedim(-2, 0) for x in (q, k, v)]
            state = _start(given, times[0], times[2], projection)
            for span in _spans(given, q.shape[-2]):
                out, state = run(state, *_prepared(given, times[0][span], times[1][span], times[2][span], projection))
                N, D = out[..., :width], out[..., width:]
                ys.append((N / _safe(D) if given.normalise else N).to(v.dtype))
                Ds.append(D.clone())  # a view would keep all of out alive
            if not ys:
                return torch.zeros_like(v), state.new_zeros((*v.shape[:-1], int(given.normalise)))
            return torch.cat(ys).movedim(0, -2).contiguous(), torch.cat(Ds).movedim(0, -2).contiguous()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keeps the inputs and the outputs."""
        q, k, v, projection, ctx.given = inputs
        ctx.save_for_backward(q, k, v, projection, *output)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor, of_D: torch.Tensor) -> Any:
        """Runs the sums of the chunks forward again, then takes the chunks from the last to the first."""
        q, k, v, projection, y, D = ctx.saved_tensors
        with _plain(q.device):
            *pulled, of_projection = _backward(ctx.given, (q, k, v, projection), (y, D), (wide(g), of_D))
        return *pulled, of_projection, None


def _backward(
    given: How, operands: tuple[Any, ...], outputs: tuple[torch.Tensor, ...], cotangents: tuple[torch.Tensor, ...]
) -> tuple[torch.Tensor | None, ...]:
    """The cotangents of q, k, v and the projection.

    Args:
        given: how the call is computed.
        operands: q, k, v and the projection or None.
        outputs: y and D.
        cotangents: the cotangents of y and D.
    """
    (*own, projection), (y, D), (g, of_D) = operands, outputs, cotangents
    if given.normalise:
        g = g / _safe(D)
        down = -(g * wide(y)).sum(-1, keepdim=True)
        g = torch.cat([g, of_D + torch.where(D.abs() > FLOOR, down, torch.zeros_like(D))], -1)
    q, k, v, g = (x.movedim(-2, 0) for x in (*own, g))
    if not len(q):  # empty, but with a graph, which a further derivative needs
        return *(x.clone() for x in own), None if projection is None else 0 * projection
    state, befores = _start(given, q, v, projection), []
    spans = _spans(given, len(q))
    for span in spans:
        befores.append(state)
        state = state + summed(*_held(given, k[span], v[span], projection))
    rule: Callable[..., Any] = pull_masked if given.form == "matrix" else pull_block
    after, parts, total = torch.zeros_like(state), [], None
    for span in reversed(spans):
        prepared, pull = _pulled(given, (q[span], k[span], v[span]), projection)
        before = after + summed(prepared[0], g[span])
        *part, extra = (*pull(rule(befores.pop(), after, before, *prepared, g[span])), None)[:4]
        parts.append(part)
        total = extra if total is None or extra is None else total + extra
        after = before
    joined = (torch.cat(p[::-1]).movedim(0, -2) for p in zip(*parts, strict=True))
    return *joined, total
