"""Bytes that torch.compile keeps between the passes: known without a device, and equal to what a run's hooks count."""

from __future__ import annotations

import datetime
import warnings
from typing import Any

import pytest

import gradgate
from gradgate import normal
from gradgate.hw_profiles.sweep import Cell, measure_cell
from gradgate.hw_profiles.torch_memory import Refusal
from gradgate.references import registry
from gradgate.suites.measuring import cells
from gradgate.suites.tests.pairs.verdicts import judged

torch = pytest.importorskip("torch")
compiled = pytest.importorskip("gradgate.suites.measuring.compiled")

SIZES = {"T": tuple(2**n for n in range(20, 31, 2))}
WEIGHTS = {
    "gain": normal("H"),
    "qkv": normal("H 3*H", scale="H**-0.5"),
    "out": normal("H H", scale="H**-0.5"),
    "up": normal("H 4*H", scale="H**-0.5"),
    "down": normal("4*H H", scale="H**-0.5"),
}


def block(x: Any, gain: Any, qkv: Any, out: Any, up: Any, down: Any) -> Any:
    """A transformer block with 4 heads. x: (T, H)."""
    functional = torch.nn.functional
    rows, width = x.shape
    normed = functional.rms_norm(x, (width,), gain)
    q, k, v = (normed @ qkv).view(rows, 3, 4, width // 4).permute(1, 2, 0, 3)
    x = x + functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(0, 1).reshape(rows, width) @ out
    return x + functional.gelu(functional.rms_norm(x, (width,), gain) @ up) @ down


def waves(x: Any) -> Any:
    """A chain of elementwise operations, which eager PyTorch keeps one by one."""
    return x.sin().exp().cos().tanh()


def kept_waves(x: Any) -> Any:
    """As `waves`, with an operation in between that the compiler never recomputes."""
    return x.sin().exp().sort(-1).values.cos().tanh()


def _pair(function: Any, inputs: dict[str, Any], dims: dict[str, Any], **how: Any) -> Any:
    return gradgate.Pair(
        function,
        reference=lambda *given: function(*given),
        inputs=inputs,
        dims=dims,
        framework="torch",
        dtypes=("float32",),
        **{"name": function.__name__, **how},
    )


def test_a_transformer_block_keeps_what_hooks_count_in_the_compiled_run() -> None:
    pair = _pair(block, {"x": normal("T H"), **WEIGHTS}, {"T": (24,), "H": (32,)})
    spec = pair.spec(**pair.family.measured)
    problem = spec.build("torch")
    leaves = [leaf.detach().requires_grad_() for leaf in problem.params.values()]
    torch._dynamo.reset()
    warnings.simplefilter("ignore")  # warnings of PyTorch itself; pytest restores the filters
    run = torch.compile(block, backend="aot_eager_decomp_partition")
    run(*leaves)
    counted = compiled.saved_bytes(lambda: run(*leaves), leaves)
    assert compiled.residual_bytes(pair, spec, {}) == counted > 24 * 32 * 4


def test_what_is_cheap_is_recomputed_and_what_is_not_is_kept() -> None:
    found = {}
    for function in (waves, kept_waves):
        pair = _pair(function, {"x": normal("T")}, {"T": (64,)})
        spec = pair.spec(**pair.family.measured)
        found[function.__name__] = pair.residual_bytes(spec, {}), compiled.residual_bytes(pair, spec, {})
    eager, fused = found["waves"]
    assert (eager, fused) == (64 * 4, 0)  # the result of exp; the output, which tanh keeps, does not count
    assert found["kept_waves"][1] >= 64 * 8  # indices of the sorted numbers


def test_it_is_known_at_a_size_that_no_machine_has() -> None:
    pair = _pair(kept_waves, {"x": normal("T")}, {"T": (64, 2**40)})
    small, large = (compiled.residual_bytes(pair, pair.spec(T=size, dtype="float32"), {}) for size in (64, 2**40))
    assert large == small * 2**34


def test_laws_are_about_it() -> None:
    claims = [
        gradgate.grows("compiled_residual_bytes", T=1, sizes=SIZES),
        gradgate.at_most("compiled_residual_bytes", of_reference=1),
    ]
    told = judged(
        _pair(kept_waves, {"x": normal("T")}, {"T": (64,)}, claims=claims),
        ("compiled_residual_bytes_T", "compiled_residual_bytes_of_reference"),
    )
    assert {verdict.verdict for verdict in told.values()} == {"upheld"}, told
    wrong = _pair(
        kept_waves,
        {"x": normal("T")},
        {"T": (64,)},
        claims=[gradgate.grows("compiled_residual_bytes", T=0, sizes=SIZES)],
    )
    verdict = judged(wrong, ("compiled_residual_bytes_T",))["compiled_residual_bytes_T"]
    assert verdict.verdict == "refuted", verdict


def test_the_peak_is_inductors_estimate_of_the_larger_pass() -> None:
    pair = _pair(kept_waves, {"x": normal("T")}, {"T": (64, 2**40)}, composes=("compile",))
    peaks = [compiled.peak_bytes(pair, pair.spec(T=size, dtype="float32"), {}) for size in (64, 2**40)]
    assert peaks[0] >= 64 * 8 + 2 * 64 * 4  # indices, sorted numbers and the output
    assert abs(peaks[1] / (peaks[0] * 2**34) - 1) < 0.5  # at 64 numbers, Inductor counts alignment


def test_a_law_about_the_peak_fails_where_it_grows_faster() -> None:
    def scores(x: Any) -> Any:
        return (x[:, None] * x).softmax(-1).sort(-1).values.sum(-1)

    sizes = {"T": tuple(2**n for n in range(10, 21, 2))}
    for power, expected in ((2, "upheld"), (1, "refuted")):
        claims = [gradgate.grows("compiled_peak_bytes", T=power, sizes=sizes)]
        told = judged(
            _pair(scores, {"x": normal("T")}, {"T": (64,)}, claims=claims, name="scores"), ("compiled_peak_bytes_T",)
        )
        assert told["compiled_peak_bytes_T"].verdict == expected, told


def choosy(x: Any) -> Any:
    """A function that branches on a computed number."""
    return x * 2 if x.sum() > 0 else x * 3


def test_what_cannot_be_traced_is_refused_in_words() -> None:
    pair = _pair(choosy, {"x": normal("T")}, {"T": (4,)}, claims=[gradgate.grows("compiled_residual_bytes", T=1)])
    for count in (compiled.residual_bytes, compiled.peak_bytes):
        with pytest.raises(Refusal, match="reads a number out of a tensor"):
            count(pair, pair.spec(), {})
    verdict = judged(pair, ("compiled_residual_bytes_T",))["compiled_residual_bytes_T"]
    assert (verdict.verdict, "cannot be told" in verdict.reason) == ("inapplicable", True)


def test_cells_carry_what_is_kept_and_the_gate_shows_a_change() -> None:
    from gradgate.suites.gate.compare import Half, compare

    rows = {}
    for function in (waves, kept_waves):
        pair = _pair(function, {"x": normal("T")}, {"T": (64,)}, composes=("compile",), name="waves")
        method, spec = pair.lowered, pair.spec(**pair.family.measured)
        cell = cells.MethodCell(method, "cpu", spec)
        made = cells.of_method(method, pair, spec, {})
        measured = measure_cell(Cell(lambda: made, "cpu", None, framework="torch"))  # noqa: B023 - called at once
        rows[function.__name__] = cells.row(cell, measured)
        registry.forget(method.family)
    assert rows["waves"]["compiled_residual_bytes"] == 0 < rows["kept_waves"]["compiled_residual_bytes"]

    def half(row: dict[str, Any]) -> Any:
        from gradgate.suites.gate.manifest import identity

        asked = {name: row[name] for name in ("family", "method", "framework", "profile", "options", "spec")}
        asked["target"] = ""
        described = {"cells": [asked], "tasks": [], "methods": ["waves:waves:torch"]}
        return Half(described, {identity(asked): row})

    found = compare(half(rows["waves"]), half(rows["kept_waves"]), [], datetime.date(2026, 1, 1))
    assert {"compiled_residual_bytes", "compiled_peak_bytes"} <= {finding.quantity for finding in found}, found
    assert not compare(half(rows["waves"]), half(rows["waves"]), [], datetime.date(2026, 1, 1))
