"""What operators of TritonBench compute, in plain PyTorch, as tasks of a court; and how an answer's function is called.

The names are those of the benchmark's files. Sizes are what the benchmark's own tests use, or smaller.
"""

import torch

from gradgate import Pair, integers, normal, uniform

BEFORE = """
import ast, contextlib, types
import torch, triton
import triton.language as tl
import triton.runtime.interpreter as _interpreter
from triton.runtime.interpreter import ASTTransformer, GridExecutor, InterpreterBuilder

torch.cuda.device = lambda *_, **__: contextlib.nullcontext()
torch.cuda.current_device = lambda: "cpu"
torch.cuda.synchronize = lambda *_, **__: None
torch.cuda.get_device_capability = lambda *_: (9, 0)
torch.cuda.get_device_properties = lambda *_: types.SimpleNamespace(multi_processor_count=4, name="CPU")
torch.Tensor.cuda = lambda self, *_, **__: self
torch.Tensor.is_cuda = property(lambda self: True)
_tune, _init, _host = triton.autotune, GridExecutor.__init__, GridExecutor._init_args_hst
triton.autotune = lambda configs, key=(), **_: _tune(configs[:1], list(key))

def _with_grid(self, fn, names, grid, *rest):  # a list is a grid for a GPU, too
    _init(self, fn, names, (lambda meta: tuple(grid(meta))) if callable(grid) else tuple(grid), *rest)

GridExecutor.__init__ = _with_grid

def _first(found):
    return found[0] if isinstance(found, (tuple, list)) else found

# ---- memory that nobody wrote is NaN, and what lies outside of a kernel's arrays is an error

def _unwritten(make):
    def made(*of, **how):
        found = make(*of, **how)
        return found.fill_(float("nan")) if found.is_floating_point() else found
    return made

for _place, _name in ((torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty")):
    setattr(_place, _name, _unwritten(getattr(_place, _name)))
_ranges = []

def _known(self, given, named):
    found = _host(self, given, named)
    each = [one.untyped_storage() for one in (*found[0], *found[1].values()) if isinstance(one, torch.Tensor)]
    _ranges[:] = {(one.data_ptr(), one.data_ptr() + one.nbytes()) for one in each}
    return found

GridExecutor._init_args_hst = _known

def _bounded(name, what, place, lanes):
    plain = getattr(InterpreterBuilder, name)
    def bounded(self, *given):
        at, mask = given[place], given[lanes]
        first, width = at.data[mask.data], max(1, at.get_element_ty().primitive_bitwidth // 8)
        good = sum(((low <= first) & (first + width <= high) for low, high in _ranges), first < 0)
        if not good.all():
            raise IndexError(f"it {what} outside of its arrays")
        return plain(self, *given)
    setattr(InterpreterBuilder, name, bounded)

_bounded("create_masked_load", "reads", 0, 1)
_bounded("create_masked_store", "writes", 0, 2)
_bounded("create_atomic_rmw", "writes", 1, 3)

# ---- a condition has one lane, and "and" joins lanes, as for the compiler; for the interpreter, a block is true

def _many(one):
    return isinstance(one, tl.tensor) and one.handle.data.size > 1

def _both(first, rest):
    return first & rest() if _many(first) else first and rest()

def _either(first, rest):
    return first | rest() if _many(first) else first or rest()

def _one_lane(test):
    if _many(test):
        raise ValueError("a condition has many lanes")
    return test

def _called(name, *given):
    return ast.Call(ast.Name(name, ast.Load()), list(given), [])

def _joined(self, node):
    self.generic_visit(node)
    name, found = "_both" if isinstance(node.op, ast.And) else "_either", node.values[0]
    for one in node.values[1:]:
        found = _called(name, found, ast.Lambda(ast.arguments([], [], None, [], [], None, []), one))
    return found

def _tested(self, node):
    self.generic_visit(node)
    node.test = _called("_one_lane", node.test)
    return node

vars(_interpreter).update(_both=_both, _either=_either, _one_lane=_one_lane)  # every kernel sees the names there
ASTTransformer.visit_BoolOp = _joined
ASTTransformer.visit_If = ASTTransformer.visit_IfExp = ASTTransformer.visit_While = _tested

# ---- block pointers, which this Triton no longer has

class _Block:
    def __init__(self, base, shape, strides, offsets, block_shape, order=None):
        if not len(shape) == len(strides) == len(offsets) == len(block_shape):
            raise ValueError("a block of another number of dims")
        self.of, self.offsets, self.dtype = (base, shape, strides, block_shape), offsets, base.dtype

    def advance(self, offsets):
        base, shape, strides, sizes = self.of
        return _Block(base, shape, strides, [a + b for a, b in zip(self.offsets, offsets)], sizes)

    def lanes(self, checked):
        at, shape, strides, sizes = self.of
        mask = tl.full(sizes, 1, tl.int1)
        for i, size in enumerate(sizes):
            lane = self.offsets[i] + tl.arange(0, size)
            lane = lane[tuple(slice(None) if i == j else None for j in range(len(sizes)))]
            at = at + lane * strides[i]
            mask = mask & (lane < shape[i]) & (lane >= 0) if i in checked else mask
        return at, mask

def _load(at, *given, boundary_check=(), padding_option="", **named):
    if not isinstance(at, _Block):
        return tl._load(at, *given, **named)
    at, mask = at.lanes(boundary_check)
    return tl._load(at, mask=mask, other=0.0)

def _store(at, value, *given, boundary_check=(), **named):
    if not isinstance(at, _Block):
        return tl._store(at, value, *given, **named)
    at, mask = at.lanes(boundary_check)
    return tl._store(at, value.to(at.dtype.element_ty), mask=mask)

tl._load, tl._store, tl.load, tl.store = tl.load, tl.store, _load, _store
tl.make_block_ptr, tl.advance = _Block, _Block.advance
"""
"""Stands before an answer: a CPU in place of a GPU, and the first configuration in place of the fastest."""
CALLS: dict[str, str] = {}
"""Operator -> the text after an answer, which calls its function."""


def _task(name, reference, call, *, dims, valid=None, **inputs):
    names = ", ".join(inputs)
    whole = "".join(f"    {one} = {one}.contiguous()\n" for one in inputs)
    CALLS[name] = f"\ndef judged_candidate({names}):\n{whole}    return {call}\n"
    return Pair(None, reference=reference, inputs=inputs, dims=dims, dtypes=("float32",), valid=valid, name=name)


ROWS = {"B": (2, 1, 5), "N": (8, 1, 33)}


def _softmax(x):
    return torch.softmax(x, -1)


def _log_softmax(x):
    return torch.log_softmax(x, -1)


softmax_flaggems = _task("softmax_flaggems", _softmax, "softmax(x, dim=-1)", dims=ROWS, x=normal("B N"))
log_softmax = _task("log_softmax", _log_softmax, "log_softmax(x, dim=-1)", dims=ROWS, x=normal("B N"))


def _losses(logits, labels):
    return torch.logsumexp(logits, -1) - logits.gather(-1, labels[..., None])[..., 0]


def _mean_loss(logits, labels):
    return _losses(logits, labels).mean()


LOGITS = {"logits": normal("B V"), "labels": integers("B", below="V")}
cross_entropy1, cross_entropy_ops = (
    _task(name, _losses, "_first(cross_entropy_loss(logits, labels))", dims={"B": (4, 1), "V": (10, 1, 33)}, **LOGITS)
    for name in ("cross_entropy1", "cross_entropy_ops")
)
fast_ce_loss = _task(
    "fast_ce_loss",
    _mean_loss,
    "fast_cross_entropy_loss(logits, labels)",
    dims={"B": (2, 1), "T": (3, 1), "V": (5, 1, 33)},
    logits=normal("B T V"),
    labels=integers("B T", below="V"),
)


def _rms_norm(x, weight):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weight


def _layer_norm(x, weight, bias):
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt((centred * centred).mean(-1, keepdim=True) + 1e-5) * weight + bias


NORM = {"B": (4, 1), "N": (8, 31)}
fast_rms_layernorm = _task(  # the operator is for frozen weights
    "fast_rms_layernorm",
    _rms_norm,
    "fast_rms_layernorm(types.SimpleNamespace(weight=weight, eps=1e-5, variance_epsilon=1e-5), x)",
    dims=NORM,
    x=normal("B N"),
    weight=normal("N", mean=1.0, gradient=False),
)
fast_layernorm = _task(
    "fast_layernorm",
    _layer_norm,
    "fast_layernorm(types.SimpleNamespace(weight=weight, bias=bias, eps=1e-5, variance_epsilon=1e-5, "
    "elementwise_affine=True, normalized_shape=weight.shape), x)",
    dims=NORM,
    x=normal("B N"),
    weight=normal("N", mean=1.0, gradient=False),
    bias=normal("N", gradient=False),
)
AFFINE = {"x": normal("B N"), "weight": normal("N", mean=1.0), "bias": normal("N")}
layer_norm_liger = _task(
    "layer_norm_liger", _layer_norm, "LigerLayerNormFunction.apply(x, weight, bias, 1e-5)", dims=NORM, **AFFINE
)
layer_norm_triton = _task(
    "layer_norm_triton", _layer_norm, "layer_norm(x, (x.shape[-1],), weight, bias, 1e-5)", dims=NORM, **AFFINE
)


def _rotated(x, cos, sin):
    left, right = x.chunk(2, -1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)


def _rope(q, k, cos, sin):
    return _rotated(q, cos, sin), _rotated(k, cos, sin)


fast_rope_embedding = _task(
    "fast_rope_embedding",
    _rope,
    "fast_rope_embedding(q.clone(), k.clone(), cos, sin)",
    dims={"B": (2,), "H": (4, 3), "T": (4, 2), "D": (16, 8)},
    valid=lambda **of: of["T"] > 1 and of["D"] % 8 == 0,
    q=normal("B H T D"),
    k=normal("B H T D"),
    cos=normal("T D//2", gradient=False),
    sin=normal("T D//2", gradient=False),
)


def _linear(q, k, v):
    return (q @ k.mT).tril() @ v


def _scaled_linear(q, k, v):
    return _linear(q, k, v) * q.shape[-1] ** -0.5


def _retention(q, k, v):
    heads, length = q.shape[1:3]
    base = torch.log1p(-(2.0 ** (-5.0 - torch.arange(heads, dtype=q.dtype))))
    place = torch.arange(length, dtype=q.dtype)
    decay = torch.exp((place[:, None] - place) * base[:, None, None]).tril()
    return (q @ k.mT * decay) @ v * q.shape[-1] ** -0.5


def _rebased(q, k, v):
    squares = (q @ k.mT * q.shape[-1] ** -0.5).square().tril()
    return squares @ v / (squares.sum(-1, keepdim=True) + 1e-5)


BLOCKS = {
    "dims": {"B": (1, 2), "H": (2, 1), "T": (128, 64), "D": (64, 32)},
    "valid": lambda **of: of["T"] % 64 == 0 and of["D"] in (32, 64),
}
QKV = {"q": normal("B H T D"), "k": normal("B H T D"), "v": normal("B H T D")}
chunk_linear_attn = _task("chunk_linear_attn", _scaled_linear, "_first(chunk_linear_attn(q, k, v))", **BLOCKS, **QKV)
WIDE = {**BLOCKS, "dims": {"B": (1, 2), "H": (2, 1), "T": (128, 64), "D": (64,)}}
"""For operators whose kernels take no other width."""
chunk_retention, chunk_retention_ops = (
    _task(name, _retention, "_first(chunk_retention(q, k, v))", **WIDE, **QKV)
    for name in ("chunk_retention", "chunk_retention_ops")
)
lightning_attention = _task(
    "lightning_attention", _linear, "_first(lightning_attn2_no_decay(q, k, v))", **BLOCKS, **QKV
)
parallel_attention = _task("parallel_attention", _rebased, "_first(parallel_rebased(q, k, v))", **BLOCKS, **QKV)
parallel_retention_attention = _task(
    "parallel_retention_attention", _retention, "_first(parallel_retention(q, k, v))", **BLOCKS, **QKV
)
fused_recurrent_retention = _task(
    "fused_recurrent_retention",
    _retention,
    "_first(fused_recurrent_retention(q, k, v))",
    dims={"B": (2, 1), "H": (2, 1), "T": (4, 1), "D": (16, 32)},
    valid=lambda **of: of["D"] in (16, 32),
    **QKV,
)


def _delta(q, k, v, beta):
    state, rows = torch.zeros_like(k[:, :, 0, :, None] * v[:, :, 0, None]), []
    for t in range(q.shape[2]):
        old = (k[:, :, t, None] @ state)[:, :, 0]
        state = state + k[:, :, t, :, None] * (beta[:, :, t, None] * (v[:, :, t] - old))[:, :, None]
        rows.append((q[:, :, t, None] @ state)[:, :, 0])
    return torch.stack(rows, 2) * q.shape[-1] ** -0.5


fused_recurrent_delta = _task(
    "fused_recurrent_delta",
    _delta,
    "_first(fused_recurrent_delta_rule(q, k, v, beta))",
    dims={"B": (2, 1), "H": (2, 1), "T": (3, 1), "D": (16, 8)},
    valid=lambda **of: of["D"] in (8, 16),
    q=normal("B H T D"),
    k=normal("B H T D", scale="D**-0.5"),
    v=normal("B H T D"),
    beta=uniform("B H T"),
)


def _gated_sum(x, gate):
    state, rows = torch.zeros_like(x[:, :, 0]), []
    for t in range(x.shape[2]):
        state = gate[:, :, t] * state + x[:, :, t]
        rows.append(state)
    return torch.stack(rows, 2)


fused_recurrent_hgrn = _task(
    "fused_recurrent_hgrn",
    _gated_sum,
    "_first(fused_recurrent_hgrn(x, gate))",
    dims={"B": (1, 2), "H": (2, 1), "T": (5, 1), "D": (2, 33)},
    x=normal("B H T D"),
    gate=uniform("B H T D"),
)


def _diagonal(state, x, decay):
    rows = []
    for row in x:
        state = state * decay + row
        rows.append(state)
    return torch.stack(rows)


diag_ssm_triton = _task(
    "diag_ssm_triton",
    _diagonal,
    "diag_ssm_forward_triton(state, x, decay)",
    dims={"T": (5, 1), "B": (2, 1), "D": (3, 65)},
    state=normal("B D"),
    x=normal("T B D"),
    decay=uniform("D"),
)


def _chunk_gate(kv, decay):
    state, rows = torch.zeros_like(kv[:, :, 0]), []
    for n in range(kv.shape[2]):
        rows.append(state)
        state = state * decay[:, :, n, None, None] + kv[:, :, n]
    return torch.stack(rows, 2)


chunk_gate_recurrence = _task(
    "chunk_gate_recurrence",
    _chunk_gate,
    "chunk_gate_recurrent(kv, decay, None)",
    dims={"B": (1, 2), "H": (2, 1), "T": (4, 2), "K": (64,), "V": (16, 32)},
    valid=lambda **of: of["K"] == 64 and of["V"] % 16 == 0,
    kv=normal("B H T K V"),
    decay=uniform("B H T"),
)
