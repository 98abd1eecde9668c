"""Triton kernels in sixty digits: right ones upheld, planted terms and faults refuted, each with the kernel's line."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gradgate.suites.judging.run import Run
from gradgate.suites.workers.supervisor import Limits, Supervisor

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed: pip install 'gradgate[triton]'"
)

TEXT = (Path(__file__).parent / "triton_kernels.py").read_text(encoding="utf-8")
PLANTED = "def planted(g):\n    return g"
KERNELS = 12
MISTAKES = {
    "a term of 1e-30": "return g + 1e-30",
    "one unit in the last place": "return g + g * 1.1920928955078125e-07",  # a power of two is no rounded constant
}
FAULTS = {
    "store's mask off by one": (
        "softmax", "memory_safe", "(g - tl.sum(p * g, axis=0))), mask=at < N)",
        "(g - tl.sum(p * g, axis=0))), mask=at < N + 1)", "_softmax_backward, ",
    ),
    "masked lanes without other": (
        "softmax", "memory_safe", "tl.load(dy + row * N + at, mask=at < N, other=0.0)\n    tl.store(dx",
        "tl.load(dy + row * N + at, mask=at < N)\n    tl.store(dx", "_softmax_backward, ",
    ),
    "uninitialised accumulator": (
        "embed", "memory_safe", "dw = dy.new_zeros(ctx.shape)", "dw = dy.new_empty(ctx.shape)", "_scatter_kernel, ",
    ),
    "ragged tail": (
        "layer", "memory_safe", "dx = torch.empty_like(x)\n    _layer_backward[(len(x),)](x",
        "dx = torch.empty_like(x)\n    _layer_backward[(len(x) + 1,)](x", "_layer_backward, ",
    ),
    "missing atomic": (
        "embed", "memory_safe", "    tl.atomic_add(dw + place * D + at, planted(tl.load(dy",
        "    old = tl.load(dw + place * D + at, mask=at < D, other=0.0)\n"
        "    tl.store(dw + place * D + at, old + planted(tl.load(dy", "_scatter_kernel, ",
    ),
    "programs that read each other": (
        "softmax", "order_free", "    p, g = tl.load(y + row * N + at, mask=at < N, other=0.0)",
        "    tl.store(y + row * N, 1.0)\n"
        "    p, g = tl.load(y + tl.maximum(row - 1, 0) * N + at, mask=at < N, other=0.0)", "_softmax_backward, ",
    ),
}  # fmt: skip
"""What is wrong -> the pair, the claim, the right text, the wrong text, and what the reason says."""


@pytest.fixture(scope="module")
def supervisor() -> Iterator[Supervisor]:
    with Supervisor(Run(examples=4), 1, Limits(120)) as made:
        yield made


def _verdicts(supervisor: Supervisor, path: Path, text: str, claims: tuple[str, ...], name: str = "") -> dict[str, Any]:
    path.write_text(text, encoding="utf-8")
    tasks = supervisor.describe(f"{path}:{name}" if name else str(path), "", None)
    return {f"{task.method} {task.claim}": supervisor.judge(task) for task in tasks if task.claim in claims}


def test_twelve_kernels_are_upheld(supervisor: Supervisor, tmp_path: Path) -> None:
    claims = ("gradient_exact", "memory_safe", "order_free")
    found = _verdicts(supervisor, tmp_path / "right.py", TEXT, claims)
    assert {verdict.verdict for verdict in found.values()} == {"upheld"}, found
    assert len(found) == KERNELS * len(claims)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_is_planted_in_a_backward_kernel_is_refuted(mistake: str, supervisor: Supervisor, tmp_path: Path) -> None:
    assert TEXT.count(PLANTED) == 1
    text = TEXT.replace(PLANTED, PLANTED.replace("return g", MISTAKES[mistake]))
    found = _verdicts(supervisor, tmp_path / "planted.py", text, ("gradient_exact",))
    assert {verdict.verdict for verdict in found.values()} == {"refuted"}, found
    assert len(found) == KERNELS


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_memory_is_refuted_with_the_kernels_line(fault: str, supervisor: Supervisor, tmp_path: Path) -> None:
    name, claim, right, wrong, place = FAULTS[fault]
    assert TEXT.count(right) == 1
    [verdict] = _verdicts(supervisor, tmp_path / "fault.py", TEXT.replace(right, wrong), (claim,), name).values()
    assert verdict.verdict == "refuted", verdict
    assert f"{place}fault.py:" in verdict.reason
