"""Mistakes of public kernels, put into the guide's example kernel: each is refuted in Triton's interpreter."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

import gradgate.suites.guide
from gradgate.suites.judging.run import Run
from gradgate.suites.workers.supervisor import Limits, Supervisor

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed: pip install 'gradgate[triton]'"
)

TEXT = (Path(gradgate.suites.guide.__file__).parent / "examples" / "triton_conv.py").read_text(encoding="utf-8")
MISTAKES = {
    "cotangent_of_ones": ("tl.load(dy + t * up_t + d * up_d, mask", "tl.load(dy + 0 * t, mask"),
    "strided_dy": ("*dy.stride(), TILE", "D, 1, TILE"),
    "dropped_upstream": (" + through_last", ""),
    "slot_clamped": ("        slot = t - j\n        there", "        slot = tl.maximum(t - j, 0)\n        there"),
    "tile_offset_without_its_stride": ("slot * step_t + d * step_d, mask=(slot", "slot + d * step_d, mask=(slot"),
    "cast_lost_in_recomputation": (
        "    z = _before_silu(x, w, t, d, T, step_t, step_d, D)\n    s =",
        "    z = _before_silu(x, w, t, d, T, step_t, step_d, D).to(tl.bfloat16).to(tl.float32)\n    s =",
    ),
}
"""Name -> the right text, and the wrong text that replaces it."""
SMALL = {'dims={"T": (1, 2, 6), "D": (1, 3)}': 'dims={"T": (1, 6), "D": (2,)}'}
"""Text -> its replacement: smaller sizes, so that a mistake is judged in seconds."""


@pytest.fixture(scope="module")
def supervisor() -> Iterator[Supervisor]:
    with Supervisor(Run(examples=3), 1, Limits(240)) as made:
        yield made


def judged(supervisor: Supervisor, path: Path, text: str, claim: str) -> str:
    """The verdict on a claim of the kernel."""
    for right, small in SMALL.items():
        assert text.count(right) == 1
        text = text.replace(right, small)
    path.write_text(text)
    [task] = [task for task in supervisor.describe(f"{path}:conv", "", None) if task.claim == claim]
    return supervisor.judge(task).verdict


@pytest.mark.parametrize("claim", ["gradient_float32", "layouts"])
def test_the_kernel_itself_is_right(claim: str, supervisor: Supervisor, tmp_path: Path) -> None:
    assert judged(supervisor, tmp_path / "right.py", TEXT, claim) == "upheld"


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_refuted(name: str, supervisor: Supervisor, tmp_path: Path) -> None:
    right, wrong = MISTAKES[name]
    assert TEXT.count(right) == 1, f"the kernel no longer has exactly one {right!r}"
    claim = "layouts" if name == "strided_dy" else "gradient_float32"
    assert judged(supervisor, tmp_path / f"{name}.py", TEXT.replace(right, wrong), claim) == "refuted"
