"""Operations of Triton's language, each in a small kernel; the backward passes are those of the plain functions."""

import torch
import triton
import triton.language as tl
from torch.nn import functional
from triton.language.extra import libdevice

import gradgate
from gradgate import integers, normal, uniform


@triton.jit
def planted(y):
    return y


def operation(name, kernel, plain, inputs=None, dims=None, shape=None, grid=(1,), settings=None, before=None):
    """A pair whose function is one launch, `kernel`(inputs …, output, sizes …), and whose gradient is the plain one's.

    Args:
        shape: of the output, from the inputs; that of the first if None.
        before: makes the output before the launch; an empty one if None.
    """

    def launch(*arrays):
        arrays = [array.contiguous() for array in arrays]
        out = (before or arrays[0].new_empty)(shape(*arrays) if shape else arrays[0].shape)
        kernel[grid](*arrays, out, *arrays[0].shape, B=8, **(settings or {}))
        return out

    class Operation(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *arrays):
            ctx.save_for_backward(*arrays)
            return launch(*arrays)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, dy):
            leaves = [x.detach().requires_grad_(x.is_floating_point()) for x in ctx.saved_tensors]
            wanted = [x for x in leaves if x.requires_grad]
            with torch.enable_grad():
                found = iter(torch.autograd.grad(plain(*leaves), wanted, dy))
            return tuple(next(found) if x.requires_grad else None for x in leaves)

    return gradgate.Pair(
        Operation.apply,
        reference=plain,
        inputs=inputs or {"x": normal("T")},
        dims=dims or {"T": (7,)},
        dtypes=("float32",),
        framework="torch",
        devices=("interpreter",),
        name=name,
    )


# extremes, orders and places


@triton.jit
def _argmax(x, y, T, B: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(x + at, mask=at < T, other=-float("inf"))
    tl.store(y + at, planted(tl.where(at == tl.argmax(v, 0), v, 0.0)), mask=at < T)


argmax = operation("argmax", _argmax, lambda x: x * functional.one_hot(x.argmax(), len(x)))


@triton.jit
def _argmin(x, y, T, D, B: tl.constexpr):
    row, at = tl.arange(0, B)[:, None], tl.arange(0, B)[None, :]
    v = tl.load(x + row * D + at, mask=(row < T) & (at < D), other=float("inf"))
    place = tl.argmin(v, 1, tie_break_left=False)
    here = tl.arange(0, B)
    tl.store(y + here, planted(tl.sum(tl.where(at == place[:, None], v, 0.0), 1)), mask=here < T)


argmin = operation(
    "argmin", _argmin, lambda x: x.amin(1), {"x": normal("T D")}, {"T": (3,), "D": (5,)}, lambda x: x.shape[:1]
)


@triton.jit
def _sort(x, y, T, B: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(x + at, mask=at < T, other=float("inf"))
    tl.store(y + at, planted(tl.sort(v)), mask=at < T)


sort = operation("sort", _sort, lambda x: x.sort().values)


@triton.jit
def _descending(x, y, T, B: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(x + at, mask=at < T, other=-float("inf"))
    tl.store(y + at, planted(tl.flip(tl.flip(tl.sort(v, descending=True)))), mask=at < T)


descending = operation("descending", _descending, lambda x: x.sort(descending=True).values)


@triton.jit
def _topk(x, y, T, B: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(x + at, mask=at < T, other=-float("inf"))
    tl.store(y + tl.arange(0, 2), planted(tl.topk(v, 2)))


topk = operation("topk", _topk, lambda x: x.topk(2).values, shape=lambda x: (2,))


@triton.jit
def _gather(x, index, y, T, B: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(x + at, mask=at < T, other=0.0)
    places = tl.load(index + at, mask=at < T, other=0).to(tl.int32)
    tl.store(y + at, planted(tl.gather(v, places, 0)), mask=at < T)


INDEXED = {"x": normal("T"), "index": integers("T", below="T")}
gather = operation("gather", _gather, lambda x, index: x[index], INDEXED)


@triton.jit
def _histogram(x, index, y, T, B: tl.constexpr):
    at = tl.arange(0, B)
    places = tl.load(index + at, mask=at < T, other=0).to(tl.int32)
    counts = tl.histogram(places, B, mask=at < T)
    v = tl.load(x + at, mask=at < T, other=0.0)
    tl.store(y + at, planted(v * counts.to(tl.float32)), mask=at < T)


histogram = operation("histogram", _histogram, lambda x, index: x * torch.bincount(index, minlength=len(x)), INDEXED)


# reductions and scans


@triton.jit
def _times(a, b):
    return a * b


@triton.jit
def _largest_product(v, i, w, j):
    more = v * v > w * w
    return tl.where(more, v, w), tl.where(more, i, j)


@triton.jit
def _reduce(x, y, T, B: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(x + at, mask=at < T, other=0.0)
    top, place = tl.reduce((v, at), 0, _largest_product)
    all_of_them = tl.reduce(tl.where(at < T, v, 1.0), 0, _times)
    tl.store(y + at, planted(tl.where(at == place, top, all_of_them)), mask=at < T)


def plain_reduce(x):
    """The product of all, and at the place of the largest size, the last one of equal ones, the number itself."""
    last = len(x) - 1 - x.abs().flip(0).argmax()
    return torch.where(torch.arange(len(x)) == last, x, x.prod())


reduce = operation("reduce", _reduce, plain_reduce)


@triton.jit
def _scans(x, y, T, B: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(x + at, mask=at < T, other=0.0)
    backwards = tl.cumsum(v, 0, reverse=True)
    products = tl.cumprod(tl.where(at < T, v, 1.0), 0)
    scanned = tl.associative_scan(v, 0, _sum_of, reverse=True)
    tl.store(y + at, planted(products + backwards * scanned), mask=at < T)


@triton.jit
def _sum_of(a, b):
    return a + b


scans = operation("scans", _scans, lambda x: x.cumprod(0) + x.flip(0).cumsum(0).flip(0) ** 2)


@triton.jit
def _running_maximum(a, b):
    return tl.maximum(a, b)


@triton.jit
def _cummax(x, y, T, D, B: tl.constexpr):
    row, at = tl.arange(0, B)[:, None], tl.arange(0, B)[None, :]
    v = tl.load(x + row * D + at, mask=(row < T) & (at < D), other=0.0)
    tl.store(y + row * D + at, planted(tl.associative_scan(v, 1, _running_maximum)), mask=(row < T) & (at < D))


cummax = operation("cummax", _cummax, lambda x: x.cummax(1).values, {"x": normal("T D")}, {"T": (3,), "D": (5,)})

# shapes


@triton.jit
def _shapes(x, y, T, B: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(x + at, mask=at < T, other=0.0)
    one, other = tl.split(tl.reshape(v, [B // 2, 2]))
    both = tl.interleave(one, other)
    square = tl.permute(tl.reshape(both, [2, 2, B // 4]), (2, 0, 1))
    back = tl.ravel(tl.permute(square, (1, 2, 0)))
    more = tl.reshape(tl.join(back, back * back), [2 * B])
    halves = tl.sum(tl.reshape(more, [B, 2]), 1)
    wide = tl.broadcast_to(tl.expand_dims(halves, 0), [4, B])
    tl.store(y + at, planted(tl.sum(tl.trans(wide), 1) * 0.25), mask=at < T)


shapes = operation("shapes", _shapes, lambda x: x + x * x)

# descriptors


@triton.jit
def _described(x, y, T, D, B: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [T, D], [D, 1], [1, B])
    target = tl.make_tensor_descriptor(y, [T, D], [D, 1], [B, B])
    back = T - 1 - tl.arange(0, B)
    rows = source.gather(back, 0)
    tl.make_tensor_descriptor(y, [T, D], [D, 1], [1, B]).scatter(rows, back, 0)
    target.atomic_add([0, 0], planted(rows))


described = operation(
    "described", _described, lambda x: x.flip(0) + x, {"x": normal("T D")}, {"T": (8,), "D": (8,)}, before=torch.zeros
)


def _host(x):
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor.from_tensor(x, [8, 8])


@triton.jit
def _on_the_host(x, y):
    y.store([0, 0], planted(x.load([0, 0]) * 3))


def _launched(ctx, x):
    y = torch.empty_like(x.contiguous())
    _on_the_host[(1,)](_host(x.contiguous()), _host(y))
    return y


class OnTheHost(torch.autograd.Function):
    """A launch whose arguments are descriptors."""

    forward = staticmethod(_launched)
    backward = staticmethod(torch.autograd.function.once_differentiable(lambda ctx, dy: 3 * dy))


on_the_host = gradgate.Pair(
    OnTheHost.apply,
    reference=lambda x: 3 * x,
    inputs={"x": normal("T D")},
    dims={"T": (5,), "D": (4,)},
    dtypes=("float32",),
    framework="torch",
    devices=("interpreter",),
    name="on_the_host",
)

# functions


@triton.jit
def _functions(x, y, T, B: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(x + at, mask=at < T, other=1.0)
    found = tl.exp(v) + tl.exp2(v) * tl.log(v) - tl.log2(v) / tl.sqrt(v)
    found += tl.cos(v) * tl.sin(v) + tl.rsqrt(v) * tl.erf(v) + tl.sigmoid(v)
    found += tl.fma(v, v, 1.0) + tl.fdiv(v, 3.0) + tl.clamp(v, 0.5, 1.0) + tl.abs(-v)
    found += tl.sqrt_rn(v) + tl.div_rn(v, v + 1) + tl.maximum(v, 1.0) * tl.minimum(v, 1.0)
    found += tl.softmax(tl.where(at < T, v, -float("inf")))
    found += tl.floor(v) + tl.ceil(v) * v + (v.to(tl.int32) + 1) * v
    tl.store(y + at, planted(found), mask=at < T)


def plain_functions(v):
    """What `_functions` computes."""
    found = v.exp() + v.exp2() * v.log() - v.log2() / v.sqrt()
    found = found + v.cos() * v.sin() + v.rsqrt() * v.erf() + v.sigmoid()
    found = found + v * v + 1 + v / 3 + v.clamp(0.5, 1.0) + v
    found = found + v.sqrt() + v / (v + 1) + v.clamp(min=1.0) * v.clamp(max=1.0)
    return found + v.softmax(0) + v.floor() + v.ceil() * v + (v.trunc() + 1) * v


POSITIVE = {"x": uniform("T", low=0.1, high=2.9)}
functions = operation("functions", _functions, plain_functions, POSITIVE)


@triton.jit
def _library(x, y, T, B: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(x + at, mask=at < T, other=0.5)
    found = libdevice.tanh(v) + libdevice.expm1(v) * libdevice.log1p(v) + libdevice.atan(v) + libdevice.asin(v)
    found += libdevice.acos(v) + libdevice.sinh(v) * libdevice.cosh(v) + libdevice.tan(v) + libdevice.atanh(v)
    found += libdevice.asinh(v) + libdevice.acosh(v + 1) + libdevice.erfc(v) + libdevice.lgamma(v) + libdevice.cbrt(v)
    found += libdevice.pow(v, 1.5) + libdevice.hypot(v, 2.0 * v) + libdevice.atan2(v, 1.0 + v) + libdevice.rsqrt(v)
    found += libdevice.log10(v) + libdevice.fast_expf(v) + libdevice.fast_dividef(v, 3.0) + libdevice.exp10(v)
    found += libdevice.fma(v, v, v) + libdevice.copysign(v, -1.0) + libdevice.fmod(5.0 * v, 1.0)
    found += libdevice.rint(v) * v + libdevice.trunc(3 * v) * v + libdevice.erfinv(v) + libdevice.normcdf(v)
    found += libdevice.add_rz(v, v) + libdevice.rcp_rn(v) + libdevice.sqrt_rd(v) + libdevice.norm3d(v, v, v)
    found += libdevice.saturatef(2 * v) + libdevice.fdim(v, 0.5) + libdevice.tgamma(v) + libdevice.erfcx(v)
    found += libdevice.remainder(v, 1.0) + libdevice.normcdfinv(v)
    found += tl.where(libdevice.isnan(v) + libdevice.isinf(v) + libdevice.signbit(v) == 0, v, 0.0)
    tl.store(y + at, planted(found), mask=at < T)


def plain_library(v):
    """What `_library` computes."""
    found = v.tanh() + v.expm1() * v.log1p() + v.atan() + v.asin()
    found = found + v.acos() + v.sinh() * v.cosh() + v.tan() + v.atanh()
    found = found + v.asinh() + (v + 1).acosh() + v.erfc() + v.lgamma() + v.pow(1 / torch.full_like(v, 3.0))
    found = found + v * v.sqrt() + v * torch.full_like(v, 5.0).sqrt() + (v / (1 + v)).atan() + v.rsqrt()
    found = found + v.log10() + v.exp() + v / 3 + torch.full_like(v, 10.0) ** v
    found = found + v * v + v - v + 5 * v - (5 * v).floor()
    normal = (-v / torch.full_like(v, 2.0).sqrt()).erfc() / 2
    found = found + 2 * v + 1 / v + v.sqrt() + v * torch.full_like(v, 3.0).sqrt()
    found = found + (2 * v).clamp(0, 1) + (v - 0.5).clamp(min=0) + v.lgamma().exp() + (v * v).exp() * v.erfc()
    found = found + v - v.round() + torch.full_like(v, 2.0).sqrt() * (2 * v - 1).erfinv() + v
    return found + v.round() * v + (3 * v).floor() * v + v.erfinv() + normal


library = operation("library", _library, plain_library, {"x": uniform("T", low=0.05, high=0.95)})

# atomics and locks


@triton.jit
def _atomics(x, y, T, B: tl.constexpr):
    at = tl.program_id(0)
    v = tl.load(x + at)
    tl.atomic_max(y, v)
    tl.atomic_min(y + 1, planted(v))
    tl.atomic_add(y + 2, v)


def plain_atomics(x):
    """Maximum, minimum and sum, from 0."""
    return torch.stack([x.amax().clamp(min=0), x.amin().clamp(max=0), x.sum()])


atomics = operation("atomics", _atomics, plain_atomics, shape=lambda x: (3,), grid=(7,), before=torch.zeros)


@triton.jit
def _locked(x, lock, y, T, B: tl.constexpr):
    at = tl.program_id(0)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(y, tl.load(y) + planted(tl.load(x + at)))
    tl.atomic_xchg(lock, 0)


def plain_locked(x, lock):
    """The sum."""
    return x.sum()[None]


locked = operation(
    "locked",
    _locked,
    plain_locked,
    {"x": normal("T"), "lock": integers("1", below="1")},
    shape=lambda x, lock: (1,),
    grid=(7,),
    before=torch.zeros,
)

# random numbers, assertions, and what a kernel does besides


@triton.jit
def _drawn(x, y, T, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.device_assert(at < B, "a lane beyond the tile")
    tl.static_assert(B == 8)
    v = tl.load(x + at, mask=at < T, other=0.0)
    noise = tl.randn(3, at) + tl.rand(5, at) + tl.randint(7, at).to(tl.float32) * 0.0
    tl.debug_barrier()
    tl.assume(T > 0)
    tl.store(y + at, planted(v * noise), mask=at < T)


def plain_drawn(x):
    """With the numbers that the kernel draws."""
    ones, noise = torch.ones_like(x), torch.empty_like(x)
    _drawn[(1,)](ones, noise, len(x), B=8)
    return x * noise


drawn = operation("drawn", _drawn, plain_drawn)


@triton.jit
def _cast(x, y, T, B: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(x + at, mask=at < T, other=0.0)
    tl.store(y + at, planted(v.to(tl.bfloat16).to(tl.float32) * 3), mask=at < T)


cast = operation("cast", _cast, lambda x: 3 * x)


@triton.jit
def _asserted(x, y, T, B: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(x + at, mask=at < T, other=0.0)
    tl.device_assert(v < 0.5, "numbers below one half", mask=at < T)
    tl.store(y + at, v, mask=at < T)


asserted = operation("asserted", _asserted, lambda x: 1 * x, {"x": uniform("T", low=0.6, high=1.0)})

# what has no rule


@triton.jit
def _assembly(x, y, T, B: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(x + at, mask=at < T, other=0.0)
    found = tl.inline_asm_elementwise("mul.f32 $0, $1, $1;", "=f,f", [v], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(y + at, found, mask=at < T)


assembly = operation("assembly", _assembly, lambda x: x * x)


@triton.jit
def _bits(x, y, T, B: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(x + at, mask=at < T, other=0.0)
    bits = v.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    tl.store(y + at, bits.to(tl.float32, bitcast=True), mask=at < T)


bits = operation("bits", _bits, lambda x: x.abs())


@triton.jit
def _unknown(x, y, T, B: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(x + at, mask=at < T, other=0.0)
    tl.store(y + at, libdevice.nextafter(v, v), mask=at < T)


unknown = operation("unknown", _unknown, lambda x: 1 * x)
