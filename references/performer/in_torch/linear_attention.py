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
from gradgate.references.errors import check_arrays
from gradgate.references.performer.features import mapped, orthogonal_rows
from gradgate.references.performer.in_torch.attention import (
    masked_block,
    pull_block,
    pull_masked,
    summed,
    summed_block,
    wide,
)
from gradgate.references.performer.operands import (
    CHUNK,
    How,
    check_features,
    check_mask,
    check_projection_size,
    check_state,
    how,
)
from gradgate.references.performer.problem import FLOOR

vjp: Callable[..., Any] = torch.func.vjp


def linear_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    feature_map: str | Callable[[torch.Tensor], torch.Tensor] = "elu",
    projection: torch.Tensor | None = None,
    chunk: int = CHUNK,
    normalise: bool = True,
    causal: bool = True,
    mask: torch.Tensor | None = None,
    state: Any = None,
    return_state: bool = False,
) -> Any:
    """Causal linear attention that keeps no prefix sum between its forward and its backward pass.

    y_l = Σ_{j≤l} (g(q_l)·g(k_j)) v_j / Σ_{j≤l} g(q_l)·g(k_j), in chunks of tokens.

    Args:
        q, k: (..., length, features), float64, float32, float16 or bfloat16, such as (batch, heads, length, width).
        v: (..., length, values), with the leading sizes of k and the dtype of q. Within autocast the dtypes may differ:
            the widest counts. k and v may have fewer heads than q, (..., heads, length, …), whose number divides that
            of q: as many heads of q, one after another, share one, as in grouped attention.
        feature_map: g: ``identity``; ``relu``; ``elu``, which is elu(x) + 1; ``favor``, positive random features with
            E[g(q)·g(k)] = exp(q·k/√features); or a function (..., features) -> (..., M) of one token at a time.
        projection: (M, features), for ``favor`` only, such as `favor_projection` draws. It has a gradient too.
        chunk: tokens of a chunk, at least 1; it need not divide the length. It changes memory and work, but no value.
        normalise: whether to divide by the sum of weights. A sum of at most 1e-18 in absolute value counts as 1.
            Use False with features of both signs, such as ``identity`` has.
        causal: must be True. Bidirectional attention has no prefix sums; the error message says what to use.
        mask: booleans (..., length), False where a token is padding, with leading sizes 1 or those of k. Such a token
            changes nothing, whatever its numbers are: its y and its gradients are 0. None: all tokens count.
        state: the state before the first token: the pair (S, z), S = Σ g(k_j) v_jᵀ (..., M, values) and z = Σ g(k_j)
            (..., M), with the leading sizes of k; without `normalise` S alone; None: zeros. Of any floating dtype; sums
            are float32 at least.
        return_state: whether the state after the last token is returned too.

    Returns:
        y, (..., length, values), in the dtype of v; with `return_state` (y, state), the state in the form of `state`
        and in at least float32. `torch.func`, vmap and a further derivative work; forward mode does not.

    Raises:
        UsageError: shapes, dtypes or options do not fit, or `causal` is not True; the message says what is legal.

    Source:
        SLiM Performers (2020), Eq. 2–4 and App. B, corrected. Unlike the paper, the backward pass adds up again
        instead of subtracting later terms: the work is the same, and no digit is lost.

    Stores:
        Between the passes q, k, v, y and one sum of weights per token, but no prefix sum. The backward pass holds one
        state per chunk, ⌈length/chunk⌉·M·(values + 1) numbers per head of k, float32 at least, and one chunk's chunk²
        or chunk·M·(values + 1) numbers, whichever are fewer. If `feature_map` is a function, its features are kept
        too: 2·length·M numbers. In bfloat16 only q, k and v are kept. A given `state` is kept in one copy; the
        returned one is not kept.

    Computes:
        Four products of length·chunk·width or length·M·values numbers forward, and ten or eleven backward, two
        more in bfloat16, where the outputs are computed again in float32. FLOPs grow linearly with the length.

    Not for:
        Short sequences, of less than about M tokens, where the matrix of all weights is small: use softmax attention,
        or plain autograd. Not for generating token by token: a call for each token, with `state`,
        does more work than one step of the recurrence.
    """
    check_arrays("q k v", (q, k, v), "torch.Tensor", _is_tensor)
    if torch.is_autocast_enabled(q.device.type) and all(t.is_floating_point() for t in (q, k, v)):
        widest = functools.reduce(torch.promote_types, (q.dtype, k.dtype, v.dtype))
        q, k, v = (t.to(widest) for t in (q, k, v))
    given = how(_shapes(q, k, v), _dtypes(q, k, v), feature_map, _shape(projection), chunk, normalise, causal)
    if mask is not None:
        check_mask(mask, tuple(k.shape))
    if callable(feature_map):
        shapes, there = _shapes(q, k, v), _tokens(given, mask, k)
        q, k = (feature_map(_present(x, m)) for x, m in zip((q, k), there, strict=True))
        check_features(shapes, (q, k), _is_tensor)
        given = how(_shapes(q, k, v), _dtypes(q, k, v), "identity", _shape(projection), chunk, normalise, causal)
    if projection is not None:
        projection = projection.to(torch.promote_types(q.dtype, torch.float32))
    start = None if state is None else _joined(given, state, k, v, projection)
    mask = None if mask is None else mask.expand(k.shape[:-1])
    if given.group == 1:
        y, _, after = _Attend.apply(q, k, v, mask, projection, start, given)
    else:  # an axis of the heads that share keys, beside that of the keys' heads
        q, k, v = q.unflatten(-3, (-1, given.group)), k.unsqueeze(-3), v.unsqueeze(-3)
        mask = None if mask is None else mask.unsqueeze(-2)
        start = None if start is None else start.unsqueeze(-3)
        y, _, after = _Attend.apply(q, k, v, mask, projection, start, given)
        y, after, v = y.flatten(-4, -3), after.squeeze(-3), v.squeeze(-3)
    return (y, _parted(given, after, v)) if return_state else y


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

    Raises:
        UsageError: a size is not a whole number of at least 1.

    Source:
        Choromanski et al. (2020), §2.4.
    """
    check_projection_size(features, width)
    rows: torch.Tensor = orthogonal_rows(torch.randn(features, width, generator=generator), "torch", "float32")
    return rows.to(device)


def _is_tensor(x: Any) -> bool:
    return isinstance(x, torch.Tensor)


def _shapes(*tensors: torch.Tensor) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(x.shape) for x in tensors)


def _dtypes(*tensors: torch.Tensor) -> tuple[str, ...]:
    return tuple(str(x.dtype).removeprefix("torch.") for x in tensors)


def _shape(projection: torch.Tensor | None) -> tuple[int, ...] | None:
    return None if projection is None else tuple(projection.shape)


def _features(q: torch.Tensor, projection: torch.Tensor | None) -> int:
    """M."""
    return q.shape[-1] if projection is None else projection.shape[0]


def _joined(given: How, state: Any, k: torch.Tensor, v: torch.Tensor, projection: torch.Tensor | None) -> torch.Tensor:
    """The user's state as one array (…, values + 1 or values, M), in at least float32."""
    S, *z = check_state(state, given.normalise, tuple(k.shape[:-2]), _features(k, projection), v.shape[-1])
    dtype = torch.promote_types(k.dtype, torch.float32)
    return torch.cat([x.to(dtype) for x in (S.mT, *(x[..., None, :] for x in z))], -2)


def _parted(given: How, after: torch.Tensor, v: torch.Tensor) -> Any:
    """The inverse of `_joined`."""
    S = after[..., : v.shape[-1], :].mT
    return (S, after[..., -1, :]) if given.normalise else S


def _tokens(given: How, mask: torch.Tensor | None, k: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """The mask for the tokens of q, and that for those of k."""
    if mask is None:
        return None, None
    mask = mask.expand(k.shape[:-1])
    return (mask if given.group == 1 else mask.repeat_interleave(given.group, -2)), mask


def _present(x: torch.Tensor, there: torch.Tensor | None) -> torch.Tensor:
    """`x` (…, d) with zeros for the tokens that are padding; `there` has no last axis."""
    return x if there is None else torch.where(there[..., None], x, torch.zeros((), dtype=x.dtype, device=x.device))


def _prepared(
    given: How,
    there: torch.Tensor | None,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    projection: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A chunk of q, k and v, in at least float32: features, and v with a last column of ones if it is needed.

    Tokens that are padding get zeros in q, k and v, so whatever their numbers are, they are in no state.
    """
    return _mapped(given, _present(q, there), projection), *_held(given, there, k, v, projection)


def _mapped(given: How, x: torch.Tensor, projection: torch.Tensor | None) -> torch.Tensor:
    found: torch.Tensor = mapped(namespace("torch"), given.feature_map, wide(x), projection)
    return found


def _held(
    given: How, there: torch.Tensor | None, k: torch.Tensor, v: torch.Tensor, projection: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The part of a chunk that goes into the state."""
    v = wide(v)
    ones = torch.nn.functional.pad(v, (0, 1), value=1.0) if given.normalise else v
    return _mapped(given, _present(k, there), projection), _present(ones, there)


def _pulled(
    given: How, there: torch.Tensor | None, own: tuple[torch.Tensor, ...], projection: torch.Tensor | None
) -> tuple[tuple[torch.Tensor, ...], Callable[..., tuple[torch.Tensor, ...]]]:
    """The results of `_prepared` for a chunk, and its pullback to q, k, v and, if there is one, the projection."""
    found: tuple[tuple[torch.Tensor, ...], Callable[..., tuple[torch.Tensor, ...]]]
    if projection is None:
        found = vjp(lambda q, k, v: _prepared(given, there, q, k, v, None), *own)
    else:
        found = vjp(functools.partial(_prepared, given, there), *own, projection)
    return found


def _safe(D: torch.Tensor) -> torch.Tensor:
    """Denominators, with 1 in place of those that count as zero."""
    return torch.where(D.abs() > FLOOR, D, torch.ones_like(D))


def _spans(given: How, length: int) -> list[slice]:
    return [slice(first, first + given.chunk) for first in range(0, length, given.chunk)]


def _zeros(given: How, k: torch.Tensor, v: torch.Tensor, projection: torch.Tensor | None) -> torch.Tensor:
    """The state before the first token if none is given; k and v have the time first."""
    dtype = torch.promote_types(k.dtype, torch.float32)
    return k.new_zeros((*k.shape[1:-1], v.shape[-1] + given.normalise, _features(k, projection)), dtype=dtype)


def _cut(mask: torch.Tensor | None) -> Callable[[slice], torch.Tensor | None]:
    """The mask of a chunk, with the time first."""
    if mask is None:
        return lambda span: None
    first = mask.movedim(-1, 0)
    return lambda span: first[span]


def _spread(given: How, after: torch.Tensor) -> torch.Tensor:
    """The cotangent of the last state as one for each of the heads that share it, whose sum it is."""
    more = (*after.shape[:-3], given.group - 1, *after.shape[-2:])
    return after if given.group == 1 else torch.cat([after, after.new_zeros(more)], -3)


def _over_heads(given: How, x: torch.Tensor, axis: int) -> torch.Tensor:
    """The sum over the heads that share keys, which have the axis."""
    return x if given.group == 1 else x.sum(axis, keepdim=True)


def _run(given: How) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    return masked_block if given.form == "matrix" else summed_block


def _again(given: How, v: torch.Tensor) -> bool:
    """Whether the backward pass computes N and D again, because y is coarser than the sums."""
    return given.normalise and v.dtype != torch.promote_types(v.dtype, torch.float32)


def _of_sums(g: torch.Tensor, of_D: torch.Tensor, y: torch.Tensor, D: torch.Tensor) -> torch.Tensor:
    """The cotangents of N and D, side by side, from those of y and of D."""
    g = g / _safe(D)
    down = -(g * wide(y)).sum(-1, keepdim=True)
    return torch.cat([g, of_D + torch.where(D.abs() > FLOOR, down, torch.zeros_like(D))], -1)


def _plain(device: torch.device) -> Any:
    """A scope in which autocast changes nothing: every cast here is deliberate."""
    return torch.autocast(device.type, enabled=False)


# y = N/D. For the cotangent g of y, that of N is g/D and that of D is −(g·y)/D. So only y and D are kept from the
# forward pass. D is an output that no user sees, so that a further derivative goes through what was kept. A y of 16
# bits is too coarse: where N and D cancel in the gradient of q, its rounding remains. It is then not kept, and the
# backward pass computes N and D again.
class _Attend(torch.autograd.Function):
    """q, k, v, mask, projection, first state, how -> y (…, length, values), D (…, length, 1 or 0), last state."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        mask: torch.Tensor | None,
        projection: torch.Tensor | None,
        start: torch.Tensor | None,
        given: How,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Chunk after chunk."""
        width, ys, Ds = v.shape[-1], [], []
        run, cut = _run(given), _cut(mask)
        with _plain(q.device):
            times = [x.movedim(-2, 0) for x in (q, k, v)]
            state = _zeros(given, times[1], times[2], projection) if start is None else start
            for span in _spans(given, q.shape[-2]):
                there = cut(span)
                q_there, k_there, v_there = (x[span] for x in times)
                out, state = run(state, *_prepared(given, there, q_there, k_there, v_there, projection))
                out = _present(out, there)
                N, D = out[..., :width], out[..., width:]
                ys.append((N / _safe(D) if given.normalise else N).to(v.dtype))
                Ds.append(D.clone())  # a view would keep all of out alive
            if not ys:
                none = q.new_zeros((*q.shape[:-1], width)), state.new_zeros((*q.shape[:-1], int(given.normalise)))
                return *none, state.clone()
            return torch.cat(ys).movedim(0, -2).contiguous(), torch.cat(Ds).movedim(0, -2).contiguous(), state

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keeps the inputs, and y and D unless they are computed again."""
        *operands, ctx.given = inputs
        ctx.save_for_backward(*operands, *((None, None) if _again(ctx.given, inputs[2]) else output[:2]))

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor, of_D: torch.Tensor, of_after: torch.Tensor) -> Any:
        """Runs the sums of the chunks forward again, then takes the chunks from the last to the first."""
        *own, mask, projection, start, y, D = ctx.saved_tensors
        with _plain(g.device):
            operands, cotangents = (*own, projection, start), (wide(g), of_D, of_after)
            *found, of_projection, of_start = _backward(ctx.given, operands, mask, (y, D), cotangents)
        return *found, None, of_projection, of_start, None


def _backward(
    given: How,
    operands: tuple[Any, ...],
    mask: torch.Tensor | None,
    outputs: tuple[Any, ...],
    cotangents: tuple[torch.Tensor, ...],
) -> tuple[torch.Tensor | None, ...]:
    """The cotangents of q, k, v, the projection and the first state.

    Args:
        given: how the call is computed.
        operands: q, k, v, the projection or None, the first state or None.
        mask: False where a token is padding; None: there is no padding.
        outputs: y and D, or None and None if they are computed again.
        cotangents: the cotangents of y, D and the last state.
    """
    (*own, projection, start), (y, D), (g, of_D, after) = operands, outputs, cotangents
    if given.normalise and y is not None:
        g = _of_sums(g, of_D, y, D)
    q, k, v, g, of_D = (x.movedim(-2, 0) for x in (*own, g, of_D))
    if not len(q):  # empty, but with a graph, which a further derivative needs
        empty = None if projection is None else 0 * projection
        return *(x.clone() for x in own), empty, None if start is None else after.clone()
    state, befores = _zeros(given, k, v, projection) if start is None else start, []
    spans, cut, after = _spans(given, len(q)), _cut(mask), _spread(given, after)
    for span in spans:
        befores.append(state)
        state = state + summed(*_held(given, cut(span), k[span], v[span], projection))
    rule: Callable[..., Any] = pull_masked if given.form == "matrix" else pull_block
    parts, total = [], None
    for span in reversed(spans):
        there = cut(span)
        prepared, pull = _pulled(given, there, (q[span], k[span], v[span]), projection)
        state, here = befores.pop(), g[span]
        if _again(given, v):
            out = _present(_run(given)(state, *prepared)[0], there)
            N, D = out[..., : v.shape[-1]], out[..., v.shape[-1] :]
            here = _of_sums(here, of_D[span], N / _safe(D), D)
        here = _present(here, there)
        before = after + summed(prepared[0], here)
        of_q, *of_held = rule(state, after, before, *prepared, here)
        shared = (_over_heads(given, x, -2) for x in of_held)
        *part, extra = (*pull((of_q, *shared)), None)[:4]
        parts.append(part)
        total = extra if total is None or extra is None else total + extra
        after = before
    joined = (torch.cat(p[::-1]).movedim(0, -2) for p in zip(*parts, strict=True))
    return *joined, total, None if start is None else _over_heads(given, after, -3)
