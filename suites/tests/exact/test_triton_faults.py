"""Thirty and more faults of kernels, planted in right ones: each is refuted, and the reason names the kernel's line."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gradgate.suites.tests.exact.kernel_judge import Judge

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed: pip install 'gradgate[triton]'"
)

TEXT = (Path(__file__).parent / "triton_kernels.py").read_text(encoding="utf-8")
ROW = '        v = tl.load(x + row * N + at, mask=at < N, other=-float("inf"))\n'
EXACT, SAFE, FREE = "gradient_exact", "memory_safe", "order_free"


@dataclass(frozen=True)
class Planted:
    """A fault.

    Attributes:
        pair: the pair that has it.
        claim: the claim that refutes it.
        kernel: the kernel that the reason names.
        edits: what is right and occurs once in the file, and what takes its place; twice as many for two edits.
        words: what the reason says besides.
    """

    pair: str
    claim: str
    kernel: str
    edits: tuple[str, ...]
    words: str = ""


def planted(pair: str, claim: str, kernel: str, *edits: str, words: str = "") -> Planted:
    """A row of the table."""
    return Planted(pair, claim, kernel, edits, words)


FAULTS = {
    # masks
    "a store's mask off by one": planted(
        "softmax",
        SAFE,
        "_softmax_backward",
        "(g - tl.sum(p * g, axis=0))), mask=at < N)",
        "(g - tl.sum(p * g, axis=0))), mask=at < N + 1)",
    ),
    "a load's mask off by one": planted(
        "layer",
        SAFE,
        "_layer_forward",
        "mask=at < N, other=0.0)\n    mean",
        "mask=at <= N, other=0.0)\n    mean",
        words="reads outside of every tensor",
    ),
    "masked lanes without other": planted(
        "softmax",
        SAFE,
        "_softmax_backward",
        "tl.load(dy + row * N + at, mask=at < N, other=0.0)\n    tl.store(dx",
        "tl.load(dy + row * N + at, mask=at < N)\n    tl.store(dx",
        words="undefined",
    ),
    "masked lanes with 0 in place of minus infinity": planted(
        "softmax",
        EXACT,
        "_softmax_forward",
        '    v = tl.load(x + row * N + at, mask=at < N, other=-float("inf"))\n    p =',
        "    v = tl.load(x + row * N + at, mask=at < N, other=0.0)\n    p =",
    ),
    "a mask for the rows alone": planted(
        "matmul",
        SAFE,
        "_matmul_kernel",
        "planted(total), mask=(i[:, None] < M) & (j[None, :] < N))",
        "planted(total), mask=i[:, None] < M)",
    ),
    "lanes outside that count in a mean": planted(
        "layer",
        EXACT,
        "_layer_forward",
        "apart = tl.where(at < N, v - mean, 0.0)",
        "apart = v - mean",
    ),
    "a causal mask off by one": planted(
        "attention",
        EXACT,
        "_attend_backward",
        "(j[None, :] < T) & (j[None, :] <= i[:, None])\n        p = tl.where(seen",
        "(j[None, :] < T) & (j[None, :] < i[:, None])\n        p = tl.where(seen",
    ),
    # grids, tiles and loops
    "a grid that is rounded down": planted(
        "squash",
        SAFE,
        "_squash_backward",
        "_squash_backward[(triton.cdiv(y.numel(), 4),)]",
        "_squash_backward[(y.numel() // 4,)]",
        words="undefined",
    ),
    "a program too many": planted(
        "layer",
        SAFE,
        "_layer_backward",
        "_layer_backward[(len(x),)](x",
        "_layer_backward[(len(x) + 1,)](x",
        words="outside of every tensor",
    ),
    "the second tile at the first one's place": planted(
        "entropy",
        EXACT,
        "_entropy_kernel",
        f"        at = start + tl.arange(0, B)\n{ROW}        tl.store",
        f"        at = tl.arange(0, B)\n{ROW}        tl.store",
    ),
    "the ragged tail left out of a sum": planted(
        "entropy",
        EXACT,
        "_entropy_kernel",
        "    for start in range(0, N, B):\n        at = start + tl.arange(0, B)\n"
        '        v = tl.load(x + row * N + at, mask=at < N, other=-float("inf"))\n        top',
        "    for start in range(0, (N + 1) // B * B, B):\n        at = start + tl.arange(0, B)\n"
        '        v = tl.load(x + row * N + at, mask=at < N, other=-float("inf"))\n        top',
    ),
    "a loop that ends a row early": planted(
        "rms",
        SAFE,
        "_rms_backward",
        "for row in range(T):\n        v",
        "for row in range(T - 1):\n        v",
    ),
    "a loop that skips the first tile": planted(
        "matmul",
        EXACT,
        "_matmul_kernel",
        "    for start in range(0, K, B):\n        k = start",
        "    for start in range(B, K, B):\n        k = start",
    ),
    "a part that ends a row late": planted(
        "scale",
        EXACT,
        "_scale_backward",
        "tl.minimum((part + 1) * ROWS, T)",
        "tl.minimum((part + 1) * ROWS + 1, T)",
    ),
    "a part that goes beyond the last row": planted(
        "scale",
        SAFE,
        "_scale_backward",
        "tl.minimum((part + 1) * ROWS, T)",
        "(part + 1) * ROWS",
        words="reads outside of every tensor",
    ),
    # addresses
    "a stride forgotten": planted(
        "matmul",
        EXACT,
        "_matmul_kernel",
        "b + k[:, None] * bk + j[None, :] * bn",
        "b + k[:, None] * N + j[None, :]",
    ),
    "the width of a row forgotten": planted(
        "recurrence",
        EXACT,
        "_recurrence_backward",
        "tl.load(h + (t - 1) * D + d",
        "tl.load(h + (t - 1) + d",
    ),
    "another tensor in place of the output": planted(
        "attention",
        EXACT,
        "_attend_backward",
        "tl.sum(g * tl.load(o + rows",
        "tl.sum(g * tl.load(q + rows",
    ),
    "the statistics of the columns for those of the rows": planted(
        "attention",
        EXACT,
        "_attend_backward",
        "tl.load(lse + i, mask=i < T",
        "tl.load(lse + j, mask=j < T",
    ),
    "one place for two lanes": planted(
        "sums",
        SAFE,
        "_sum_kernel",
        "        total = planted(total)\n    tl.store(y + t * D + d, total, mask=t < T)\n\n\ndef _sums",
        "        total = planted(total)\n    tl.store(y + t // 2 * D + d, total, mask=t < T)\n\n\ndef _sums",
        words="from several lanes",
    ),
    "one place for two programs": planted(
        "scale",
        SAFE,
        "_scale_backward",
        "tl.store(parts + part * D + at, planted(total)",
        "tl.store(parts + at, planted(total)",
        words="without an atomic",
    ),
    "a window that looks ahead": planted(
        "windows",
        EXACT,
        "_window_weights",
        "tl.load(x + (t - k) * D + d, mask=(t >= k) & (t < T)",
        "tl.load(x + (t + k) * D + d, mask=t + k < T",
    ),
    "the tiles of a descriptor in the other order": planted(
        "tiles",
        EXACT,
        "_tiles_kernel",
        "right.load([k, j])",
        "right.load([j, k])",
    ),
    "an index of the row in place of the stored one": planted(
        "largest",
        EXACT,
        "_largest_backward",
        "at == tl.load(places + row)",
        "at == row",
    ),
    # accumulators, atomics and workspaces
    "an accumulator that nobody cleared": planted(
        "embed",
        SAFE,
        "_scatter_kernel",
        "dw = dy.new_zeros(ctx.shape)",
        "dw = dy.new_empty(ctx.shape)",
    ),
    "an accumulator in global memory that nobody cleared": planted(
        "attention",
        SAFE,
        "_attend_backward",
        "dq, dk, dv = torch.zeros_like(q)",
        "dq, dk, dv = torch.empty_like(q)",
    ),
    "an accumulator that is overwritten": planted(
        "attention",
        EXACT,
        "_attend_backward",
        "to_value += tl.dot",
        "to_value = tl.dot",
    ),
    "a missing atomic": planted(
        "embed",
        SAFE,
        "_scatter_kernel",
        "    tl.atomic_add(dw + place * D + at, planted(tl.load(dy",
        "    old = tl.load(dw + place * D + at, mask=at < D, other=0.0)\n"
        "    tl.store(dw + place * D + at, old + planted(tl.load(dy",
    ),
    "a store in place of an atomic": planted(
        "attention",
        SAFE,
        "_attend_backward",
        "tl.atomic_add(dq + rows, ",
        "tl.store(dq + rows, ",
    ),
    "a stale workspace": planted(
        "embed",
        EXACT,
        "_scatter_kernel",
        "dw = dy.new_zeros(ctx.shape)",
        "dw = _KEPT.setdefault(tuple(ctx.shape), dy.new_zeros(ctx.shape))",
        "def _unembed(ctx, dy):",
        "_KEPT = {}\n\n\ndef _unembed(ctx, dy):",
    ),
    "a workspace of which a part is left out": planted(
        "scale",
        SAFE,
        "_scale_backward",
        "_scale_backward[(len(parts),)]",
        "_scale_backward[(len(parts) - 1,)]",
        words="undefined",
    ),
    # orders, and what a tuner chooses
    "programs that read what others write": planted(
        "softmax",
        FREE,
        "_softmax_backward",
        "    p, g = tl.load(y + row * N + at, mask=at < N, other=0.0)",
        "    tl.store(y + row * N, 1.0)\n"
        "    p, g = tl.load(y + tl.maximum(row - 1, 0) * N + at, mask=at < N, other=0.0)",
    ),
    "a running sum from program to program": planted(
        "scale",
        FREE,
        "_scale_backward",
        "    total = tl.zeros([B], tl.float32)\n    for row in range(part",
        "    total = tl.load(parts + (part - 1) * D + at, mask=(part > 0) & (at < D), other=0.0)\n"
        "    for row in range(part",
        "parts.sum(0)",
        "parts[-1]",
    ),
    "a tuned configuration that differs": planted(
        "offset",
        FREE,
        "_tuned_kernel",
        "planted(2 * c * v)",
        "planted((2 if B == 4 else 3) * c * v)",
        words="with another configuration",
    ),
    "a tuned accumulator that no trial resets": planted(
        "offset",
        FREE,
        "_tuned_kernel",
        ', reset_to_zero=["total"]',
        "",
        words="if every configuration was tried before",
    ),
    "an accumulator that no trial resets, of configurations that differ in warps only": planted(
        "offset",
        FREE,
        "_tuned_kernel",
        'triton.Config({"B": 8})',
        'triton.Config({"B": 4}, num_warps=8)',
        ', reset_to_zero=["total"]',
        "",
        words="if every configuration was tried before",
    ),
    # formulas
    "a factor forgotten": planted(
        "attention",
        EXACT,
        "_attend_backward",
        "(tl.dot(g, tl.trans(value)) - inner[:, None]) * 0.25",
        "(tl.dot(g, tl.trans(value)) - inner[:, None])",
    ),
    "a transposition forgotten": planted(
        "attention",
        EXACT,
        "_attend_backward",
        "tl.dot(tl.trans(ds), query)",
        "tl.dot(ds, query)",
    ),
    "a power too low": planted(
        "rms",
        EXACT,
        "_rms_backward",
        "s * s * s * v * inner",
        "s * s * v * inner",
    ),
    "the tile's width for the row's": planted(
        "layer",
        EXACT,
        "_layer_backward",
        "tl.sum(g, axis=0) / N",
        "tl.sum(g, axis=0) / B",
    ),
    "a scan with its operands exchanged": planted(
        "recurrence",
        EXACT,
        "_recurrence_forward",
        "return a * c, b * c + d",
        "return a * c, a * d + b",
    ),
    "a scan that is not reversed": planted("sums", EXACT, "_sum_kernel", "_sums(dy, True)", "_sums(dy, False)"),
    "random numbers of another seed": planted("drop", EXACT, "_drop_kernel", "_drop(dy, 7)", "_drop(dy, 8)"),
}
"""What is wrong -> where, and what refutes it."""


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    made = Judge()
    yield made
    made.close()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_refuted_with_the_kernels_line(fault: str, judge: Judge, tmp_path: Path) -> None:
    row, text = FAULTS[fault], TEXT
    for right, wrong in zip(row.edits[::2], row.edits[1::2], strict=True):
        assert text.count(right) == 1, right
        text = text.replace(right, wrong)
    path = tmp_path / "faults.py"
    path.write_text(text, encoding="utf-8")
    [(verdict, reason)] = judge.judge(path, (row.claim,), (row.pair,), examples=6).values()
    assert verdict == "refuted", reason
    assert re.search(rf"{row.kernel}(,| at) faults\.py:\d+", reason), reason
    assert row.words in reason, reason


def test_the_faults_are_of_many_kinds() -> None:
    assert len(FAULTS) >= 30
    assert len({row.pair for row in FAULTS.values()}) >= 10
