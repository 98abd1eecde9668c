"""float16, bfloat16 and float8: as dtypes of pairs, of arguments of `gradgate.check`, and in Triton's interpreter."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradgate
from gradgate import normal, uniform
from gradgate.references.backends import namespace
from gradgate.suites.pairs.draws import FLOAT8
from gradgate.suites.tests.pairs.test_without_reference import RULES, ruled
from gradgate.suites.tests.pairs.verdicts import judged


@pytest.fixture(params=["jax", "torch"])
def framework(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(request.param)
    return str(request.param)


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize(("wrong", "verdict"), [(0.0, "upheld"), (0.01, "refuted")])
def test_float16_is_judged_and_an_error_of_a_hundredth_is_refuted(
    framework: str, wrong: float, verdict: str, alone: bool
) -> None:
    rule, xp = RULES["softmax"], namespace(framework)

    def half(_: int, grad: Any) -> Any:
        return grad * (1 + wrong) if str(grad.dtype).removeprefix("torch.") == "float16" else grad

    pair = gradgate.Pair(
        ruled(framework, rule, half),
        reference=None if alone else lambda x: rule.forward(xp, x)[0],
        inputs=rule.inputs,
        dims={"T": (4,), "H": (5, 33)},
        dtypes=("float32", "float16"),
        framework=framework,
        name="softmax",
    )
    found = judged(pair, ("gradient_float32", "gradient_float16"), 20)
    assert [verdict.verdict for verdict in found.values()] == ["upheld", verdict], found


def test_arguments_in_float16_are_checked_in_float16(framework: str) -> None:
    xp = namespace(framework)
    x = xp.astype(xp.reshape(xp.linspace(-1.0, 2.0, 12), (3, 4)), xp.float16)
    rule = RULES["norm"]
    gradgate.check(ruled(framework, rule), lambda x, w: rule.forward(xp, x, w)[0], (x, x[1]))
    wrong = ruled(framework, rule, lambda _, grad: grad * 1.05 if "float16" in str(grad.dtype) else grad)
    with pytest.raises(AssertionError, match="in float16"):
        gradgate.check(wrong, lambda x, w: rule.forward(xp, x, w)[0], (x, x[1]))


@pytest.mark.parametrize("dtype", FLOAT8)
def test_numbers_of_float8_are_drawn_as_pytorch_rounds_them(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    numbers = normal("T", scale=60, gradient=False).drawn({"T": 4000}, np.random.default_rng(0))
    found = normal("T", scale=60, gradient=False, dtype=dtype).drawn({"T": 4000}, np.random.default_rng(0))
    wanted = torch.from_numpy(numbers).to(getattr(torch, dtype)).double().numpy()
    assert (found == wanted).all()
    small = normal("T", scale=0.002, gradient=False, dtype=dtype).drawn({"T": 4000}, np.random.default_rng(0))
    assert (torch.from_numpy(small).to(getattr(torch, dtype)).double().numpy() == small).all()
    assert 0 in small  # below the least number there is only zero


def _dequantized(xp: Any, x: Any, w: Any, scale: Any) -> Any:
    return x @ (xp.astype(w, x.dtype) * scale)


def _product(framework: str, wrong: float) -> Any:
    xp = namespace(framework)

    def back(saved: Any, dy: Any) -> Any:
        x, w, scale = saved
        w = xp.astype(w, x.dtype)
        return dy @ (w * scale).T, None, xp.sum((x.T @ dy) * w, axis=0) + wrong

    if framework == "jax":
        import jax

        product = jax.custom_vjp(lambda *given: _dequantized(xp, *given))
        product.defvjp(lambda *given: (_dequantized(xp, *given), given), back)
        return lambda *given: product(*given)
    import torch

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *given: Any) -> Any:
            ctx.save_for_backward(*given)
            return _dequantized(xp, *given)

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            return back(ctx.saved_tensors, dy)

    return Product.apply


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize(("wrong", "verdict"), [(0.0, "upheld"), (1e-30, "refuted")])
def test_weights_in_float8_are_data_and_their_scale_has_a_gradient(
    framework: str, wrong: float, verdict: str, alone: bool
) -> None:
    xp = namespace(framework)
    seen = set()

    def plain(x: Any, w: Any, scale: Any) -> Any:
        seen.add(str(w.dtype).removeprefix("torch."))
        return _dequantized(xp, x, w, scale)

    pair = gradgate.Pair(
        _product(framework, wrong),
        reference=None if alone else plain,
        inputs={
            "x": normal("T K"),
            "w": normal("K N", gradient=False, dtype="float8_e4m3fn"),
            "scale": uniform("N", 0.5),
        },
        dims={"T": (3,), "K": (1, 4), "N": (2,)},
        dtypes=("float64", "float32"),
        framework=framework,
        name="product",
    )
    found = judged(pair, ("gradient_exact",) if wrong else ("gradient_exact", "gradient_float32"), 3)
    assert {each.verdict for each in found.values()} == {verdict}, found
    assert alone or seen == {"float8_e4m3fn"}


def test_an_argument_of_float8_is_data(framework: str) -> None:
    xp = namespace(framework)
    x = xp.reshape(xp.linspace(-1.0, 1.0, 6), (2, 3))
    given = (x, xp.astype(x.T, xp.float8_e5m2), xp.ones(2))
    gradgate.check(_product(framework, 0.0), lambda *given: _dequantized(xp, *given), given)
    with pytest.raises(AssertionError, match=r"wrong gradient of args\[2\]"):
        gradgate.check(_product(framework, 1e-30), None, given)


def test_casts_to_float8_count_as_exact_in_sixty_digits(framework: str) -> None:
    xp = namespace(framework)

    def quantized(x: Any) -> Any:
        return xp.astype(xp.astype(x * x, xp.float8_e4m3fn), x.dtype)

    pair = gradgate.Pair(
        lambda x: quantized(x),
        reference=quantized,
        inputs={"x": normal("T")},
        dims={"T": (3,)},
        framework=framework,
        dtypes=("float64",),
        name="quantized",
    )
    found = judged(pair, ("gradient_exact",), 1)["gradient_exact"]
    assert (found.verdict, "casts to float8_e4m3fn count as exact" in found.reason) == ("upheld", True), found


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"])
def test_bits_of_the_interpreter_are_decoded_and_rounded(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    from gradgate.suites.pairs.triton_interpreter import _decoded, _encoded

    kind = getattr(torch, dtype)
    bits = np.arange(2 ** (8 * kind.itemsize)).astype(f"u{kind.itemsize}")
    numbers = _decoded(bits, dtype)
    finite = np.isfinite(numbers)
    assert (_encoded(numbers[finite], dtype) == bits[finite]).all()
    largest = float(torch.finfo(kind).max)
    assert _decoded(_encoded(np.float32([0.999 * largest, -largest]), dtype), dtype).tolist() == [largest, -largest]
    if kind.itemsize == 1:
        assert _decoded(_encoded(np.float32([8 * largest]), dtype), dtype).tolist() == [largest]


KERNELS = """
import torch
import triton
import triton.language as tl

import gradgate
from gradgate import normal, uniform

DTYPES = ("float32", "bfloat16", "float16")


def pair(name, forward, backward, plain, inputs, dims, reference=True):
    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    kernel = type("Kernel", (torch.autograd.Function,), members)
    return gradgate.Pair(
        kernel.apply, reference=plain if reference else None, inputs=inputs, dims=dims, dtypes=DTYPES,
        framework="torch", devices=("interpreter",), name=name,
    )


@triton.jit
def _cube_forward(x, y, top, n, B: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(y + at, tl.where(v > 0, v * v * v, -v), mask=at < n)
    tl.store(top, tl.sum(v * v, axis=0))


@triton.jit
def _cube_backward(x, dy, dtop, dx, n, B: tl.constexpr):
    at = tl.arange(0, B)
    v, g = tl.load(x + at, mask=at < n, other=0.0), tl.load(dy + at, mask=at < n, other=0.0)
    tl.store(dx + at, (tl.where(v > 0, v * v * 3, -1.0) * g + v * 2 * tl.load(dtop)) * FACTOR, mask=at < n)


def _cube(ctx, x):
    x = x.contiguous()
    y, top = torch.empty_like(x), x.new_empty(())
    _cube_forward[(1,)](x, y, top, x.numel(), B=16)
    ctx.save_for_backward(x)
    return y, top


def _uncube(ctx, dy, dtop):
    (x,) = ctx.saved_tensors
    dx = torch.empty_like(x)
    _cube_backward[(1,)](x, dy.contiguous(), dtop.contiguous(), dx, x.numel(), B=16)
    return dx


def plain_cube(x):
    return torch.where(x > 0, x * x * x, -x), (x * x).sum()


cube = pair("cube", _cube, _uncube, plain_cube, {"x": normal("T")}, {"T": (3, 11)})


@triton.jit
def _weighted(x, w, scale, y, K, N, B: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, B)
    total = tl.zeros((B,), tl.float32)
    for k in range(K):
        total += tl.load(x + row * K + k) * tl.load(w + k * N + at, mask=at < N, other=0.0).to(tl.float32)
    tl.store(y + row * N + at, total * tl.load(scale + at, mask=at < N, other=0.0), mask=at < N)


def _weigh(ctx, x, w, scale):
    x, w, scale = x.contiguous(), w.contiguous(), scale.contiguous()
    y = x.new_empty(len(x), w.shape[1])
    _weighted[(len(x),)](x, w, scale, y, x.shape[1], w.shape[1], B=4)
    ctx.save_for_backward(x, w, scale)
    return y


def _unweigh(ctx, dy):
    x, w, scale = ctx.saved_tensors
    w = w.to(x.dtype)
    return dy @ (w * scale).T, None, ((x.T @ dy) * w).sum(0) * FACTOR


def plain(x, w, scale):
    return x @ (w.to(x.dtype) * scale)


inputs = {"x": normal("T K"), "w": normal("K N", gradient=False, dtype="float8_e4m3fn"), "scale": uniform("N", 0.5)}
dims = {"T": (1, 3), "K": (1, 4), "N": (2, 3)}
weighted = pair("weighted", _weigh, _unweigh, plain, inputs, dims)
itself = pair("itself", _weigh, _unweigh, plain, inputs, dims, False)
"""
JUDGING = """
import importlib.util, json, sys
import gradgate
from gradgate.suites.tests.pairs.verdicts import judged

spec = importlib.util.spec_from_file_location("kernels", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
claims = ("gradient_exact", "gradient_float32", "gradient_bfloat16", "gradient_float16")
pairs = [value for value in vars(module).values() if isinstance(value, gradgate.Pair)]
print(json.dumps({p.name: {c: (v.verdict, v.reason) for c, v in judged(p, claims, 12).items()} for p in pairs}))
"""


@pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed: pip install 'gradgate[triton]'"
)
@pytest.mark.parametrize(("factor", "verdict"), [("1.0", "upheld"), ("1.25", "refuted")])
def test_kernels_in_narrow_dtypes_are_judged_in_the_interpreter(factor: str, verdict: str, tmp_path: Path) -> None:
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS.replace("FACTOR", factor), encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-c", JUDGING, str(path)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        check=False,
    )
    assert not ran.returncode, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found.keys() == {"cube", "weighted", "itself"}
    assert {said[0] for claims in found.values() for said in claims.values()} == {verdict}, found
