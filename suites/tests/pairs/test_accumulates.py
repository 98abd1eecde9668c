"""A second yardstick for narrow dtypes: what the reference loses in float32, rounded once, beside plain backprop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from gradgate import Pair, integers, normal
from gradgate.references.backends import namespace
from gradgate.references.contract import FRAMEWORKS, UsageError
from gradgate.suites.judging import tolerance
from gradgate.suites.judging.verdict import Verdict
from gradgate.suites.pairs.lengths import long_sums
from gradgate.suites.tests.pairs.verdicts import judged

NARROW = "gradient_bfloat16"


@dataclass(frozen=True)
class Kind:
    """A function and its gradient; what is summed goes through `total`, in float32 or in the dtype.

    Attributes:
        forward: (xp, *inputs) -> the output, which is the reference, too.
        backward: (xp, total, cotangent, *inputs) -> the gradients, None for integers.
        lengthened: name of the dim that is summed over.
    """

    forward: Callable[..., Any]
    backward: Callable[..., Any]
    inputs: dict[str, Any]
    dims: dict[str, tuple[int, ...]]
    lengthened: str


def _embedding_backward(xp: Any, total: Any, g: Any, table: Any, ids: Any) -> tuple[Any, None]:
    onto = xp.astype(ids[:, None] == xp.arange(table.shape[0]), g.dtype)
    return xp.stack([total(onto[:, v, None] * g) for v in range(table.shape[0])]), None


def _softmax_backward(xp: Any, total: Any, g: Any, x: Any) -> tuple[Any]:
    wide, g = xp.astype(x, xp.float32), xp.astype(g, xp.float32)
    y = xp.exp(wide - xp.max(wide, axis=0))
    y = y / xp.astype(total(xp.astype(y, x.dtype)), xp.float32)
    return (xp.astype(y * (g - xp.sum(y * g, axis=0)), x.dtype),)


def _norm_backward(xp: Any, total: Any, g: Any, x: Any, gain: Any) -> tuple[Any, Any]:
    wide, g = xp.astype(x, xp.float32), xp.astype(g, xp.float32)
    r = 1 / xp.sqrt(xp.mean(wide * wide, axis=1, keepdims=True) + 1e-5)
    hat, onto = wide * r, g * xp.astype(gain, xp.float32)
    dx = r * (onto - hat * xp.mean(onto * hat, axis=1, keepdims=True))
    return xp.astype(dx, x.dtype), total(xp.astype(g * hat, x.dtype))


def _softmax(xp: Any, x: Any) -> Any:
    y = xp.exp(x - xp.max(x, axis=0))
    return y / xp.sum(y, axis=0)


KINDS = {
    "embedding": Kind(
        lambda xp, table, ids: xp.take(table, ids, axis=0),
        _embedding_backward,
        {"table": normal("V H"), "ids": integers("T", below="V")},
        {"T": (6, 3), "V": (2, 3), "H": (2, 1)},
        "T",
    ),
    "softmax": Kind(
        lambda xp, x: _softmax(xp, x),
        _softmax_backward,
        {"x": normal("T H")},
        {"T": (5, 3), "H": (2, 1)},
        "T",
    ),
    "norm": Kind(
        lambda xp, x, gain: x / xp.sqrt(xp.mean(x * x, axis=1, keepdims=True) + 1e-5) * gain,
        _norm_backward,
        {"x": normal("T H"), "gain": normal("H", mean=1.0)},
        {"T": (5, 3), "H": (3, 4)},
        "T",
    ),
    "bias": Kind(
        lambda xp, x, b: x + b,
        lambda xp, total, g, x, b: (g, total(g)),
        {"x": normal("T H"), "b": normal("H")},
        {"T": (5, 3), "H": (3, 2)},
        "T",
    ),
}


def in_float32(xp: Any, terms: Any) -> Any:
    """The sum over axis 0, in float32, rounded once."""
    return xp.astype(xp.sum(xp.astype(terms, xp.float32), axis=0), terms.dtype)


def in_the_dtype(xp: Any, terms: Any) -> Any:
    """The sum over axis 0 as a scatter makes it: term by term, and every sum is rounded to the dtype."""
    start = 0 * terms[:1]
    if hasattr(start, "at"):
        return start.at[xp.zeros(terms.shape[0], dtype=xp.int32)].add(terms)[0]
    return start.index_put_((xp.zeros(terms.shape[0], dtype=xp.int64),), terms, accumulate=True)[0]


def pair(framework: str, name: str, total: Callable[[Any, Any], Any], **how: Any) -> Pair:
    kind, xp = KINDS[name], namespace(framework)

    def backward(inputs: Any, g: Any) -> Any:
        return kind.backward(xp, lambda terms: total(xp, terms), g, *inputs)

    function: Any
    if framework == "jax":
        import jax

        function = jax.custom_vjp(lambda *inputs: kind.forward(xp, *inputs))
        function.defvjp(lambda *inputs: (kind.forward(xp, *inputs), inputs), backward)
    else:
        import torch

        class Function(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *inputs: Any) -> Any:
                ctx.save_for_backward(*inputs)
                return kind.forward(xp, *inputs)

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return backward(ctx.saved_tensors, g)

        function = Function.apply
    return Pair(
        lambda *inputs: function(*inputs),
        lambda *inputs: kind.forward(xp, *inputs),
        inputs=kind.inputs,
        **{"dims": kind.dims, "framework": framework, "name": name, "valid": narrow, **how},
    )


def narrow(H: int, **sizes: int) -> bool:
    """Keeps the dim short over which these functions are not summed in another way than the reference."""
    return H <= 8


def verdict(framework: str, name: str, total: Callable[[Any, Any], Any], claim: str = NARROW, **how: Any) -> Verdict:
    pytest.importorskip(framework)
    return judged(pair(framework, name, total, **how), (claim,), 24)[claim]


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("name", KINDS)
def test_sums_in_the_dtype_are_refuted_by_the_sharper_yardstick_alone(framework: str, name: str) -> None:
    """In 65,536 terms, which the declared dims do not have. The twin that sums in float32 is upheld by both."""
    wrong = verdict(framework, name, in_the_dtype, accumulates="float32")
    assert wrong.verdict == "refuted", wrong
    assert tolerance.ADVICE in wrong.reason
    assert wrong.spec is not None
    assert wrong.spec[KINDS[name].lengthened] >= 2**11
    right = verdict(framework, name, in_float32, accumulates="float32")
    assert right.verdict == "upheld", right.reason
    assert "plain backprop in bfloat16 may lose" in right.reason
    plain = verdict(framework, name, in_the_dtype)
    assert plain.verdict == "upheld", plain.reason
    assert "and float32 inside" in plain.reason


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"accumulates": "float64"}, "accumulates is 'float32' or '', not 'float64'"),
        ({"accumulates": "float32", "dtypes": ("float64", "float32")}, "accumulates is about bfloat16 and float16"),
    ],
)
def test_a_wrong_declaration_is_refused(how: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Pair("a:f", "a:g", inputs={"x": normal("T")}, dims={"T": (3,)}, **how)


def quadratic(xp: Any, x: Any) -> Any:
    """The mean over all pairs of rows: memory grows with the square of T."""
    return xp.sum(xp.tanh(x[:, None] * x[None]), axis=1)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_dim_is_long_where_it_is_summed_over_and_memory_stays_modest(framework: str) -> None:
    pytest.importorskip(framework)
    xp = namespace(framework)
    assert long_sums(pair(framework, "norm", in_float32)) == ({"T": 2**16, "H": 3},)
    both = long_sums(pair(framework, "softmax", in_float32, valid=None))
    assert [sizes["T"] for sizes in both] == [2**16, 5]  # each gradient has both dims, so both are tried
    short = pair(framework, "norm", in_float32, valid=lambda T, H: T < 10_000)
    assert long_sums(short) == ({"T": 2**13, "H": 3},)
    rows = Pair(
        lambda x: quadratic(xp, 1 * x),
        lambda x: quadratic(xp, x),
        inputs={"x": normal("T")},
        dims={"T": (5, 3)},
        framework=framework,
        name="quadratic",
    )
    assert long_sums(rows) == ({"T": 2**11},)
