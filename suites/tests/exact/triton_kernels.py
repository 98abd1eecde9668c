"""Right kernels of nine kinds with hand-written backward passes; tests plant mistakes in `planted` and elsewhere."""

import torch
import triton
import triton.language as tl
from torch.nn import functional
from triton.language.extra import libdevice

import gradgate
from gradgate import integers, normal, uniform


@triton.jit
def planted(g):
    return g


def function(forward, backward):
    """An autograd.Function of two functions of (ctx, ...)."""
    once = torch.autograd.function.once_differentiable
    return type(
        "Kernel",
        (torch.autograd.Function,),
        {"forward": staticmethod(forward), "backward": staticmethod(once(backward))},
    ).apply


def pair(name, run, plain, inputs, dims, **how):
    return gradgate.Pair(
        run,
        reference=plain,
        inputs=inputs,
        dims=dims,
        dtypes=("float32",),
        framework="torch",
        devices=("interpreter",),
        name=name,
        **how,
    )


# elementwise


@triton.jit
def _squash_forward(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, libdevice.tanh(tl.load(x + at, mask=at < n, other=0.0) * 0.5), mask=at < n)


@triton.jit
def _squash_backward(y, dy, dx, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    t = tl.load(y + at, mask=at < n)
    tl.store(dx + at, planted(tl.load(dy + at, mask=at < n) * 0.5 * (1 - t * t)), mask=at < n)


def _squash(ctx, x):
    y = torch.empty_like(x.contiguous())
    _squash_forward[(triton.cdiv(x.numel(), 4),)](x.contiguous(), y, x.numel(), B=4)
    ctx.save_for_backward(y)
    return y


def _unsquash(ctx, dy):
    (y,) = ctx.saved_tensors
    dx = torch.empty_like(y)
    _squash_backward[(triton.cdiv(y.numel(), 4),)](y, dy.contiguous(), dx, y.numel(), B=4)
    return dx


squash = pair("squash", function(_squash, _unsquash), lambda x: torch.tanh(x / 2), {"x": normal("T")}, {"T": (1, 9)})


@triton.jit
def _swiglu_forward(a, b, c, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(a + at, mask=at < n, other=0.0)
    tl.store(c + at, x * tl.sigmoid(x) * tl.load(b + at, mask=at < n, other=0.0), mask=at < n)


@triton.jit
def _swiglu_backward(dc, a, b, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    g = tl.load(dc + at, mask=at < n, other=0.0)
    x, y = tl.load(a + at, mask=at < n, other=0.0), tl.load(b + at, mask=at < n, other=0.0)
    s = tl.sigmoid(x)
    tl.store(a + at, planted(g * y * s * (1 + x * (1 - s))), mask=at < n)
    tl.store(b + at, g * x * s, mask=at < n)


def _swiglu(ctx, a, b):
    c = torch.empty_like(a.contiguous())
    _swiglu_forward[(triton.cdiv(a.numel(), 8),)](a.contiguous(), b.contiguous(), c, a.numel(), B=8)
    ctx.save_for_backward(a, b)
    return c


def _unswiglu(ctx, dc):
    a, b = (each.clone(memory_format=torch.contiguous_format) for each in ctx.saved_tensors)
    _swiglu_backward[(triton.cdiv(a.numel(), 8),)](dc.contiguous(), a, b, a.numel(), B=8)
    return a, b


swiglu = pair(
    "swiglu",
    function(_swiglu, _unswiglu),
    lambda a, b: functional.silu(a) * b,
    {"a": normal("T D"), "b": normal("T D")},
    {"T": (1, 3), "D": (1, 5)},
)

# norms


@triton.jit
def _rms_forward(x, w, y, r, N, eps, B: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * N + at, mask=at < N, other=0.0)
    scale = tl.rsqrt(tl.sum(v * v, axis=0) / N + eps)
    tl.store(r + row, scale)
    tl.store(y + row * N + at, v * scale * tl.load(w + at, mask=at < N, other=0.0), mask=at < N)


@triton.jit
def _rms_backward(x, w, r, dy, dx, dw, T, N, B: tl.constexpr):
    at = tl.arange(0, B)
    total, gain = tl.zeros([B], tl.float32), tl.load(w + at, mask=at < N, other=0.0)
    for row in range(T):
        v = tl.load(x + row * N + at, mask=at < N, other=0.0)
        g = tl.load(dy + row * N + at, mask=at < N, other=0.0)
        s = tl.load(r + row)
        inner = tl.sum(v * g * gain, axis=0)
        tl.store(dx + row * N + at, planted(s * g * gain - s * s * s * v * inner / N), mask=at < N)
        total += g * v * s
    tl.store(dw + at, total, mask=at < N)


def _rms(ctx, x, w):
    x, w = x.contiguous(), w.contiguous()
    y, r = torch.empty_like(x), x.new_empty(len(x))
    _rms_forward[(len(x),)](x, w, y, r, x.shape[1], 1e-6, B=8)
    ctx.save_for_backward(x, w, r)
    return y


def _unrms(ctx, dy):
    x, w, r = ctx.saved_tensors
    dx, dw = torch.empty_like(x), torch.empty_like(w)
    _rms_backward[(1,)](x, w, r, dy.contiguous(), dx, dw, *x.shape, B=8)
    return dx, dw


rms = pair(
    "rms",
    function(_rms, _unrms),
    lambda x, w: x * (x * x).mean(-1, keepdim=True).add(1e-6).rsqrt() * w,
    {"x": normal("T D"), "w": normal("D")},
    {"T": (1, 3), "D": (2, 7)},
)


@triton.jit
def _layer_forward(x, y, stats, N, eps, B: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * N + at, mask=at < N, other=0.0)
    mean = tl.sum(v, axis=0) / N
    apart = tl.where(at < N, v - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(apart * apart, axis=0) / N + eps)
    tl.store(stats + 2 * row, mean)
    tl.store(stats + 2 * row + 1, scale)
    tl.store(y + row * N + at, apart * scale, mask=at < N)


@triton.jit
def _layer_backward(x, stats, dy, dx, N, B: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, B)
    mean, scale = tl.load(stats + 2 * row), tl.load(stats + 2 * row + 1)
    hat = tl.where(at < N, (tl.load(x + row * N + at, mask=at < N, other=0.0) - mean) * scale, 0.0)
    g = tl.load(dy + row * N + at, mask=at < N, other=0.0)
    inner, total = tl.sum(g * hat, axis=0) / N, tl.sum(g, axis=0) / N
    tl.store(dx + row * N + at, planted(scale * (g - total - hat * inner)), mask=at < N)


def _layer(ctx, x):
    x = x.contiguous()
    y, stats = torch.empty_like(x), x.new_empty(len(x), 2)
    _layer_forward[(len(x),)](x, y, stats, x.shape[1], 1e-5, B=8)
    ctx.save_for_backward(x, stats)
    return y


def _unlayer(ctx, dy):
    x, stats = ctx.saved_tensors
    dx = torch.empty_like(x)
    _layer_backward[(len(x),)](x, stats, dy.contiguous(), dx, x.shape[1], B=8)
    return dx


layer = pair(
    "layer",
    function(_layer, _unlayer),
    lambda x: functional.layer_norm(x, x.shape[-1:]),
    {"x": normal("T D")},
    {"T": (1, 3), "D": (2, 7)},
)

# softmax and cross entropy


@triton.jit
def _softmax_forward(x, y, N, B: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * N + at, mask=at < N, other=-float("inf"))
    p = tl.exp(v - tl.max(v, axis=0))
    tl.store(y + row * N + at, p / tl.sum(p, axis=0), mask=at < N)


@triton.jit
def _softmax_backward(y, dy, dx, N, B: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, B)
    p, g = tl.load(y + row * N + at, mask=at < N, other=0.0), tl.load(dy + row * N + at, mask=at < N, other=0.0)
    tl.store(dx + row * N + at, planted(p * (g - tl.sum(p * g, axis=0))), mask=at < N)


def _softmax(ctx, x):
    y = torch.empty_like(x.contiguous())
    _softmax_forward[(len(x),)](x.contiguous(), y, x.shape[1], B=8)
    ctx.save_for_backward(y)
    return y


def _unsoftmax(ctx, dy):
    (y,) = ctx.saved_tensors
    dx = torch.empty_like(y)
    _softmax_backward[(len(y),)](y, dy.contiguous(), dx, y.shape[1], B=8)
    return dx


softmax = pair(
    "softmax", function(_softmax, _unsoftmax), lambda x: x.softmax(-1), {"x": normal("T D")}, {"T": (1, 3), "D": (2, 7)}
)


@triton.jit
def _entropy_kernel(x, labels, losses, N, B: tl.constexpr):
    row = tl.program_id(0)
    label, m, s = tl.load(labels + row), -float("inf"), 0.0
    chosen = tl.load(x + row * N + label)
    for start in range(0, N, B):
        at = start + tl.arange(0, B)
        v = tl.load(x + row * N + at, mask=at < N, other=-float("inf"))
        top = tl.maximum(m, tl.max(v))
        s = s * tl.exp(m - top) + tl.sum(tl.exp(v - top))
        m = top
    tl.debug_barrier()
    for start in range(0, N, B):
        at = start + tl.arange(0, B)
        v = tl.load(x + row * N + at, mask=at < N, other=-float("inf"))
        tl.store(x + row * N + at, planted(tl.exp(v - m) / s - tl.where(at == label, 1.0, 0.0)), mask=at < N)
    tl.store(losses + row, m + tl.log(s) - chosen)


def _entropy(ctx, x, labels):
    g, losses = x.clone(memory_format=torch.contiguous_format), x.new_empty(len(x))
    _entropy_kernel[(len(x),)](g, labels, losses, x.shape[1], B=4)
    ctx.save_for_backward(g)
    return losses


def _unentropy(ctx, dy):
    return ctx.saved_tensors[0] * dy[:, None], None


entropy = pair(
    "entropy",
    function(_entropy, _unentropy),
    lambda x, labels: functional.cross_entropy(x, labels, reduction="none"),
    {"x": normal("T V"), "labels": integers("T", below="V")},
    {"T": (1, 3), "V": (2, 7)},
)

# products and attention


@triton.jit
def _matmul_kernel(a, b, c, M, N, K, am, ak, bk, bn, B: tl.constexpr):
    i, j = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B)
    total = tl.zeros([B, B], tl.float32)
    for start in range(0, K, B):
        k = start + tl.arange(0, B)
        left = tl.load(a + i[:, None] * am + k[None, :] * ak, mask=(i[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(b + k[:, None] * bk + j[None, :] * bn, mask=(k[:, None] < K) & (j[None, :] < N), other=0.0)
        total = tl.dot(left, right, total)
    tl.store(c + i[:, None] * N + j[None, :], planted(total), mask=(i[:, None] < M) & (j[None, :] < N))


def _times(a, b):
    c = a.new_empty(a.shape[0], b.shape[1])
    grid = triton.cdiv(c.shape[0], 16), triton.cdiv(c.shape[1], 16)
    _matmul_kernel[grid](a, b, c, *c.shape, a.shape[1], *a.stride(), *b.stride(), B=16)
    return c


def _matmul(ctx, a, b):
    ctx.save_for_backward(a, b)
    return a @ b


def _unmatmul(ctx, g):
    a, b = ctx.saved_tensors
    return _times(g, b.T), _times(a.T, g)


matmul = pair(
    "matmul",
    function(_matmul, _unmatmul),
    torch.matmul,
    {"a": normal("M K"), "b": normal("K N")},
    {"M": (1, 17), "K": (1, 18), "N": (3,)},
)


@triton.jit
def _attend_forward(q, k, v, o, lse, T, D: tl.constexpr, B: tl.constexpr):
    i, d = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, D)
    rows = i[:, None] * D + d[None, :]
    query = tl.load(q + rows, mask=i[:, None] < T, other=0.0)
    m, s = tl.full([B], -float("inf"), tl.float32), tl.zeros([B], tl.float32)
    total = tl.zeros([B, D], tl.float32)
    for start in range(0, T, B):
        j = start + tl.arange(0, B)
        columns = j[:, None] * D + d[None, :]
        key = tl.load(k + columns, mask=j[:, None] < T, other=0.0)
        scores = tl.dot(query, tl.trans(key)) * 0.25
        scores = tl.where((j[None, :] < T) & (j[None, :] <= i[:, None]), scores, -1.0e30)
        top = tl.maximum(m, tl.max(scores, 1))
        p = tl.where((j[None, :] < T) & (j[None, :] <= i[:, None]), tl.exp(scores - top[:, None]), 0.0)
        old = tl.exp(m - top)
        s = s * old + tl.sum(p, 1)
        total = total * old[:, None] + tl.dot(p, tl.load(v + columns, mask=j[:, None] < T, other=0.0))
        m = top
    tl.store(o + rows, total / s[:, None], mask=i[:, None] < T)
    tl.store(lse + i, m + tl.log(s), mask=i < T)


@triton.jit
def _attend_backward(q, k, v, o, lse, do, dq, dk, dv, T, D: tl.constexpr, B: tl.constexpr):
    j, d = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, D)
    columns = j[:, None] * D + d[None, :]
    key = tl.load(k + columns, mask=j[:, None] < T, other=0.0)
    value = tl.load(v + columns, mask=j[:, None] < T, other=0.0)
    to_key, to_value = tl.zeros([B, D], tl.float32), tl.zeros([B, D], tl.float32)
    for start in range(0, T, B):
        i = start + tl.arange(0, B)
        rows = i[:, None] * D + d[None, :]
        query = tl.load(q + rows, mask=i[:, None] < T, other=0.0)
        g = tl.load(do + rows, mask=i[:, None] < T, other=0.0)
        inner = tl.sum(g * tl.load(o + rows, mask=i[:, None] < T, other=0.0), 1)
        scores = tl.dot(query, tl.trans(key)) * 0.25
        seen = (i[:, None] < T) & (j[None, :] < T) & (j[None, :] <= i[:, None])
        p = tl.where(seen, tl.exp(scores - tl.load(lse + i, mask=i < T, other=0.0)[:, None]), 0.0)
        ds = p * (tl.dot(g, tl.trans(value)) - inner[:, None]) * 0.25
        to_value += tl.dot(tl.trans(p), g)
        to_key += tl.dot(tl.trans(ds), query)
        tl.atomic_add(dq + rows, tl.dot(ds, key), mask=i[:, None] < T)
    tl.store(dk + columns, planted(to_key), mask=j[:, None] < T)
    tl.store(dv + columns, to_value, mask=j[:, None] < T)


def _attend(ctx, q, k, v):
    q, k, v = (each.contiguous() for each in (q, k, v))
    o, lse = torch.empty_like(q), q.new_empty(len(q))
    _attend_forward[(triton.cdiv(len(q), 16),)](q, k, v, o, lse, len(q), D=q.shape[1], B=16)
    ctx.save_for_backward(q, k, v, o, lse)
    return o


def _unattend(ctx, do):
    q, k, v, o, lse = ctx.saved_tensors
    dq, dk, dv = torch.zeros_like(q), torch.empty_like(k), torch.empty_like(v)
    _attend_backward[(triton.cdiv(len(q), 16),)](
        q, k, v, o, lse, do.contiguous(), dq, dk, dv, len(q), D=q.shape[1], B=16
    )
    return dq, dk, dv


def plain_attention(q, k, v):
    """Causal attention."""
    scores = (0.25 * q @ k.T).masked_fill(torch.ones(len(q), len(q), dtype=torch.bool).triu(1), -torch.inf)
    return scores.softmax(-1) @ v


attention = pair(
    "attention",
    function(_attend, _unattend),
    plain_attention,
    {"q": normal("T D"), "k": normal("T D"), "v": normal("T D")},
    {"T": (2, 18), "D": (4,)},
)

# scans


@triton.jit
def _sum_kernel(x, y, T, D, REVERSE: tl.constexpr, B: tl.constexpr):
    t, d = tl.arange(0, B), tl.program_id(0)
    row = tl.load(x + t * D + d, mask=t < T, other=0.0)
    total = tl.cumsum(row, axis=0, reverse=REVERSE)
    if REVERSE:
        total = planted(total)
    tl.store(y + t * D + d, total, mask=t < T)


def _sums(x, reverse):
    y = torch.empty_like(x.contiguous())
    _sum_kernel[(x.shape[1],)](x.contiguous(), y, *x.shape, REVERSE=reverse, B=8)
    return y


sums = pair(
    "sums",
    function(lambda ctx, x: _sums(x, False), lambda ctx, dy: _sums(dy, True)),
    lambda x: x.cumsum(0),
    {"x": normal("T D")},
    {"T": (1, 7), "D": (1, 3)},
)


@triton.jit
def _linear(a, b, c, d):
    return a * c, b * c + d


@triton.jit
def _recurrence_forward(x, a, h, T, D, B: tl.constexpr):
    d = tl.program_id(0)
    t = tl.arange(0, B)
    state = 0.0
    for start in range(0, T, B):
        at = start + t
        rate = tl.load(a + at * D + d, mask=at < T, other=1.0)
        decays, sums = tl.associative_scan((rate, tl.load(x + at * D + d, mask=at < T, other=0.0)), 0, _linear)
        row = sums + decays * state
        tl.store(h + at * D + d, row, mask=at < T)
        state = tl.sum(tl.where(t == B - 1, row, 0.0))


@triton.jit
def _recurrence_backward(a, h, dh, dx, da, T, D):
    d = tl.program_id(0)
    g = 0.0
    for back in range(T):
        t = T - 1 - back
        g += tl.load(dh + t * D + d)
        tl.store(dx + t * D + d, planted(g))
        tl.store(da + t * D + d, g * tl.load(h + (t - 1) * D + d, mask=t > 0, other=0.0))
        g *= tl.load(a + t * D + d)


def _recur(ctx, x, a):
    x, a = x.contiguous(), a.contiguous()
    h = torch.empty_like(x)
    _recurrence_forward[(x.shape[1],)](x, a, h, *x.shape, B=4)
    ctx.save_for_backward(a, h)
    return h


def _unrecur(ctx, dh):
    a, h = ctx.saved_tensors
    dx, da = torch.empty_like(h), torch.empty_like(h)
    _recurrence_backward[(h.shape[1],)](a, h, dh.contiguous(), dx, da, *h.shape)
    return dx, da


def plain_recurrence(x, a):
    """h_t = a_t · h_{t−1} + x_t."""
    rows = [x[0]]
    for t in range(1, len(x)):
        rows.append(a[t] * rows[-1] + x[t])
    return torch.stack(rows)


recurrence = pair(
    "recurrence",
    function(_recur, _unrecur),
    plain_recurrence,
    {"x": normal("T D"), "a": uniform("T D", low=0.2, high=0.9)},
    {"T": (1, 6), "D": (1, 2)},
)

# gathers and atomics


@triton.jit
def _scatter_kernel(dy, index, dw, D, B: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, B)
    place = tl.load(index + row)
    tl.atomic_add(dw + place * D + at, planted(tl.load(dy + row * D + at, mask=at < D, other=0.0)), mask=at < D)


def _embed(ctx, w, index):
    ctx.save_for_backward(index)
    ctx.shape = w.shape
    return w[index]


def _unembed(ctx, dy):
    (index,) = ctx.saved_tensors
    dw = dy.new_zeros(ctx.shape)
    _scatter_kernel[(len(index),)](dy.contiguous(), index, dw, ctx.shape[1], B=4)
    return dw, None


embed = pair(
    "embed",
    function(_embed, _unembed),
    lambda w, index: w[index],
    {"w": normal("V D"), "index": integers("T", below="V")},
    {"T": (1, 5), "V": (2, 3), "D": (1, 3)},
)


@triton.jit
def _largest_forward(x, y, places, N, B: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * N + at, mask=at < N, other=-float("inf"))
    top, place = tl.max(v, axis=0, return_indices=True)
    tl.store(y + row, top)
    tl.store(places + row, place)


@triton.jit
def _largest_backward(dy, places, dx, N, B: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, B)
    g = tl.where(at == tl.load(places + row), planted(tl.load(dy + row)), 0.0)
    tl.store(dx + row * N + at, g, mask=at < N)


def _largest(ctx, x):
    x = x.contiguous()
    y, places = x.new_empty(len(x)), torch.empty(len(x), dtype=torch.int32)
    _largest_forward[(len(x),)](x, y, places, x.shape[1], B=8)
    ctx.save_for_backward(places)
    ctx.width = x.shape[1]
    return y


def _unlargest(ctx, dy):
    (places,) = ctx.saved_tensors
    dx = dy.new_empty(len(dy), ctx.width)
    _largest_backward[(len(dy),)](dy.contiguous(), places, dx, ctx.width, B=8)
    return dx


largest = pair(
    "largest", function(_largest, _unlargest), lambda x: x.amax(-1), {"x": normal("T D")}, {"T": (1, 3), "D": (1, 7)}
)

# workspaces, windows, tuned tiles, tensor descriptors, and random numbers


@triton.jit
def _scale_backward(x, dy, parts, T, D, ROWS: tl.constexpr, B: tl.constexpr):
    part, at = tl.program_id(0), tl.arange(0, B)
    total = tl.zeros([B], tl.float32)
    for row in range(part * ROWS, tl.minimum((part + 1) * ROWS, T)):
        total += tl.load(x + row * D + at, mask=at < D, other=0.0) * tl.load(dy + row * D + at, mask=at < D, other=0.0)
    tl.store(parts + part * D + at, planted(total), mask=at < D)


def _unscale(ctx, dy):
    x, w = ctx.saved_tensors
    parts = x.new_empty(triton.cdiv(len(x), 2), x.shape[1])
    _scale_backward[(len(parts),)](x.contiguous(), dy.contiguous(), parts, *x.shape, ROWS=2, B=4)
    return dy * w, parts.sum(0)


def _scale(ctx, x, w):
    ctx.save_for_backward(x, w)
    return x * w


scale = pair(
    "scale",
    function(_scale, _unscale),
    lambda x, w: x * w,
    {"x": normal("T D"), "w": normal("D")},
    {"T": (1, 5), "D": (1, 3)},
)


@triton.jit
def _window_kernel(x, w, y, T, D, SIGN: tl.constexpr, B: tl.constexpr):
    d, t = tl.program_id(0), tl.arange(0, B)
    total = tl.zeros([B], tl.float32)
    for k in range(3):
        there = t - SIGN * k
        inside = (there >= 0) & (there < T)
        total += tl.load(w + k * D + d) * tl.load(x + there * D + d, mask=inside, other=0.0)
    if SIGN < 0:
        total = planted(total)
    tl.store(y + t * D + d, total, mask=t < T)


@triton.jit
def _window_weights(x, dy, dw, T, D, B: tl.constexpr):
    d, k, t = tl.program_id(0), tl.program_id(1), tl.arange(0, B)
    g = tl.load(dy + t * D + d, mask=t < T, other=0.0)
    total = tl.sum(g * tl.load(x + (t - k) * D + d, mask=(t >= k) & (t < T), other=0.0))
    tl.store(dw + k * D + d, total)


def _windows(ctx, x, w):
    x, w = x.contiguous(), w.contiguous()
    y = torch.empty_like(x)
    _window_kernel[(x.shape[1],)](x, w, y, *x.shape, SIGN=1, B=8)
    ctx.save_for_backward(x, w)
    return y


def _unwindows(ctx, dy):
    (x, w), dy = ctx.saved_tensors, dy.contiguous()
    dx, dw = torch.empty_like(x), torch.empty_like(w)
    _window_kernel[(x.shape[1],)](dy, w, dx, *x.shape, SIGN=-1, B=8)
    _window_weights[(x.shape[1], 3)](x, dy, dw, *x.shape, B=8)
    return dx, dw


def plain_windows(x, w):
    """y_t = Σ_k w_k · x_{t−k}, channel by channel."""
    padded = functional.pad(x, (0, 0, 2, 0))
    return sum(w[k] * padded[2 - k : 2 - k + len(x)] for k in range(3))


windows = pair(
    "windows",
    function(_windows, _unwindows),
    plain_windows,
    {"x": normal("T D"), "w": normal("3 D")},
    {"T": (1, 7), "D": (1, 2)},
)


@triton.autotune([triton.Config({"B": 4}), triton.Config({"B": 8})], key=["n"], reset_to_zero=["total"])
@triton.jit
def _tuned_kernel(x, g, dx, total, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + at, mask=at < n, other=0.0)
    c = tl.load(g + at, mask=at < n, other=0.0)
    tl.store(dx + at, planted(2 * c * v), mask=at < n)
    tl.atomic_add(total, tl.sum(c))


def _offset(ctx, x, b):
    ctx.save_for_backward(x)
    return x * x + b


def _unoffset(ctx, dy):
    (x,) = ctx.saved_tensors
    x, dx, total = x.contiguous(), torch.empty_like(x.contiguous()), x.new_zeros(())
    _tuned_kernel[lambda meta: (triton.cdiv(x.numel(), meta["B"]),)](x, dy.contiguous(), dx, total, x.numel())
    return dx, total


offset = pair(
    "offset", function(_offset, _unoffset), lambda x, b: x * x + b, {"x": normal("T"), "b": normal("")}, {"T": (1, 10)}
)


@triton.jit
def _tiles_kernel(a, b, c, M, N, K, B: tl.constexpr):
    i, j = tl.program_id(0) * B, tl.program_id(1) * B
    left = tl.make_tensor_descriptor(a, [M, K], [K, 1], [B, B])
    right = tl.make_tensor_descriptor(b, [K, N], [N, 1], [B, B])
    total = tl.zeros([B, B], tl.float32)
    for k in range(0, K, B):
        total = tl.dot(left.load([i, k]), right.load([k, j]), total, input_precision="ieee")
    tl.make_tensor_descriptor(c, [M, N], [N, 1], [B, B]).store([i, j], planted(total))


def _tiled(a, b):
    c = a.new_empty(a.shape[0], b.shape[1])
    grid = triton.cdiv(c.shape[0], 8), triton.cdiv(c.shape[1], 8)
    _tiles_kernel[grid](a.contiguous(), b.contiguous(), c, *c.shape, a.shape[1], B=8)
    return c


def _untiles(ctx, g):
    a, b = ctx.saved_tensors
    return _tiled(g, b.T), _tiled(a.T, g)


tiles = pair(
    "tiles",
    function(_matmul, _untiles),
    torch.matmul,
    {"a": normal("M K"), "b": normal("K N")},
    {"M": (4, 8), "K": (4, 12), "N": (4,)},
)


@triton.jit
def _drop_kernel(x, y, n, p, seed, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    keep = tl.rand(seed, at) > p
    v = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(y + at, planted(tl.where(keep, v / (1 - p), 0.0)), mask=at < n)


@triton.jit
def _keep_kernel(keep, n, p, seed, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(keep + at, tl.rand(seed, at) > p, mask=at < n)


def _drop(x, seed):
    x = x.contiguous()
    y = torch.empty_like(x)
    _drop_kernel[(triton.cdiv(x.numel(), 4),)](x, y, x.numel(), 0.25, seed, B=4)
    return y


def plain_drop(x):
    """Dropout with the numbers that the kernel draws."""
    keep = torch.empty(len(x), dtype=torch.int32)
    _keep_kernel[(1,)](keep, len(x), 0.25, 7, B=16)
    return x * keep / 0.75


def _plain_forward(ctx, x):
    return plain_drop(x)


drop = pair(
    "drop", function(_plain_forward, lambda ctx, dy: _drop(dy, 7)), plain_drop, {"x": normal("T")}, {"T": (5, 11)}
)
