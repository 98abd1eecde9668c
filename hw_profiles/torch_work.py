"""FLOPs of PyTorch's products, convolutions and attention: PyTorch's counter with gradgate's rules of counting.

By default, ``FlopCounterMode`` counts 2 FLOPs for each term of a sum, counts padding as terms, and does not count
products with a vector and the attention on a CPU. Here a sum of n terms takes n − 1 additions, and padding is no term,
in the same way as for JAX programs.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, _FlopCounterMode

from gradgate.hw_profiles.contraction import Axis, Contraction, Convolution, axis

Formula = Callable[..., int]
"""A function of the operation's arguments, and of its result as ``out_val``."""


def flop_counter() -> FlopCounterMode:
    """A scope that counts what PyTorch runs inside it; ``get_total_flops()`` then returns the count.

    Counted: products of matrices and of vectors, convolutions, attention, and their gradients. Not counted:
    elementwise arithmetic, reductions, the addition of a bias, factorisations, and recurrent cells that are one
    operation. Complex numbers take 6 operations for a product and 2 for an addition; integers are not counted.
    ``flex_attention`` and the attention of nested tensors are counted by PyTorch's own rules.
    """
    kind = FlopCounterMode if "torch._dynamo" in sys.modules else _WithoutCompiler
    counter = kind(display=False, custom_mapping=_formulas())
    counter.mod_tracker = _NoModules()  # type: ignore[assignment]
    return counter


class _PlainMode(_FlopCounterMode):
    """PyTorch's mode without the wrapper that keeps its compiler out of it: that imports the compiler, in a second."""

    __torch_dispatch__: Any = getattr(
        _FlopCounterMode.__torch_dispatch__, "__wrapped__", _FlopCounterMode.__torch_dispatch__
    )

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class _WithoutCompiler(FlopCounterMode):
    """PyTorch's counter for a process in which nothing was compiled."""

    def __enter__(self) -> _WithoutCompiler:
        self.flop_counts.clear()
        self.mod_tracker.__enter__()
        self.mode = _PlainMode(self)
        self.mode.__enter__()
        return self


class _NoModules(contextlib.nullcontext[None]):
    """Replaces PyTorch's tracker of modules, which fails if the input of a module is a leaf of a gradient."""

    parents = frozenset({"Global"})


def _formulas() -> dict[Any, Formula]:
    aten = torch.ops.aten
    given: dict[str, tuple[Formula, str]] = {
        "two matrices or vectors": (_product(0), "mm bmm mv dot vdot _scaled_mm"),
        "the same, added to something": (_product(1), "addmm baddbmm addmv"),
        "matrices, added up over all pairs": (_sum_of_products, "addbmm"),
        "convolution": (_convolution, "convolution _convolution convolution_overrideable"),
        "its gradient": (_convolution_backward, "convolution_backward"),
        "attention": (
            _attention,
            "_scaled_dot_product_efficient_attention _scaled_dot_product_flash_attention "
            "_scaled_dot_product_cudnn_attention _scaled_dot_product_flash_attention_for_cpu",
        ),
        "gradient of attention": (
            _attention_backward,
            "_scaled_dot_product_efficient_attention_backward _scaled_dot_product_flash_attention_backward "
            "_scaled_dot_product_cudnn_attention_backward _scaled_dot_product_flash_attention_for_cpu_backward",
        ),
    }
    return {
        getattr(aten, name): formula
        for formula, names in given.values()
        for name in names.split()
        if hasattr(aten, name)
    }


def _raw(formula: Formula) -> Formula:
    """Make ``FlopCounterMode`` pass tensors instead of shapes, because integers are not counted."""
    formula._get_raw = True  # type: ignore[attr-defined]
    return formula


def _operations(contraction: Contraction, like: torch.Tensor) -> int:
    if like.is_complex():
        return contraction.operations(6, 2)
    return contraction.operations() if like.is_floating_point() else 0


def _product(first: int) -> Formula:
    """The formula for two operands, at position `first` and the next: (…, m, k) or (k,), and (…, k, n) or (k,)."""

    @_raw
    def flops(*operands: Any, **_: Any) -> int:
        a, b = operands[first : first + 2]
        rows = a.shape.numel() // max(1, a.shape[-1])
        results = rows * (b.shape[-1] if b.dim() > 1 else 1)
        return _operations(Contraction.of_matrices(results, a.shape[-1]), a)

    return flops


@_raw
def _sum_of_products(_: Any, a: Any, b: Any, **__: Any) -> int:
    """One sum over pairs (count, m, k) and (count, k, n) for each of m·n results."""
    return _operations(Contraction.of_matrices(a.shape[1] * b.shape[2], a.shape[0] * a.shape[2]), a)


@_raw
def _convolution(
    x: Any, w: Any, _: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, *more: Any, **named: Any
) -> int:
    groups = int(more[1])  # after the padding of the output
    if transposed:
        made = _made(named["out_val"].shape, w.shape, x.shape, stride, padding, dilation, groups)
        return _operations(made.input_gradient, x)
    return _operations(_made(x.shape, w.shape, named["out_val"].shape, stride, padding, dilation, groups).result, x)


@_raw
def _convolution_backward(
    g: Any,
    x: Any,
    w: Any,
    _: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    __: Any,
    groups: int,
    wanted: Sequence[bool],
    **___: Any,
) -> int:
    # A transposed convolution is the input gradient of another convolution, so g has the place of that one's input.
    below, above = (g, x) if transposed else (x, g)
    made = _made(below.shape, w.shape, above.shape, stride, padding, dilation, groups)
    by_input = made.result if transposed else made.input_gradient
    return wanted[0] * _operations(by_input, x) + wanted[1] * _operations(made.kernel_gradient, x)


def _made(
    x: Sequence[int], w: Sequence[int], y: Sequence[int], stride: Any, padding: Any, dilation: Any, groups: int
) -> Convolution:
    """The convolution from shape x to shape y; for a transposed convolution, the one whose gradient it is."""
    axes: list[Axis] = []
    for place in range(len(x) - 2):
        low, step, spread = (each[place % len(each)] for each in (padding, stride, dilation))
        axes.append(axis(x[2 + place], w[2 + place], y[2 + place], step, low, 1, spread))
    return Convolution(axes, x[0], x[1], y[1], groups)


@_raw
def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """QKᵀ, and its softmax times V; a mask does not change the count."""
    pairs, d, d_v = _scores(query, key, value)
    scores = Contraction.of_matrices(pairs, d)
    mixed = Contraction.of_matrices(pairs // max(1, key.shape[-2]) * d_v, key.shape[-2])
    return _operations(scores + mixed, query)


@_raw
def _attention_backward(_: Any, query: Any, key: Any, value: Any, *__: Any, **___: Any) -> int:
    """QKᵀ once more, then the gradients of the scores, of V, Q and K."""
    pairs, d, d_v = _scores(query, key, value)
    queries, keys = query.shape[-2], key.shape[-2]
    rows, columns = pairs // max(1, keys), pairs // max(1, queries)
    once_more, by_scores = Contraction.of_matrices(pairs, d), Contraction.of_matrices(pairs, d_v)
    by_value = Contraction.of_matrices(columns * d_v, queries)
    by_query, by_key = Contraction.of_matrices(rows * d, keys), Contraction.of_matrices(columns * d, queries)
    return _operations(once_more + by_scores + by_value + by_query + by_key, query)


def _scores(query: Any, key: Any, value: Any) -> tuple[int, int, int]:
    """The number of pairs of a query and a key, over all samples and heads; the sizes of a key and of a value."""
    return query.shape[:-1].numel() * key.shape[-2], query.shape[-1], value.shape[-1]
