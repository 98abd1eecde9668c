"""Triton kernels in sixty digits: right ones are upheld, and a term planted in each backward pass is refuted."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gradgate.suites.tests.exact.kernel_judge import Judge

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed: pip install 'gradgate[triton]'"
)

FILE = Path(__file__).parent / "triton_kernels.py"
PLANTED = "def planted(g):\n    return g"
KERNELS = (
    "squash",
    "swiglu",
    "rms",
    "layer",
    "softmax",
    "entropy",
    "matmul",
    "attention",
    "sums",
    "recurrence",
    "embed",
    "largest",
    "scale",
    "windows",
    "offset",
    "tiles",
    "drop",
)
MISTAKES = {
    "a term of 1e-30": "return g + 1e-30",
    "one unit in the last place": "return g + g * 1.1920928955078125e-07",  # a power of two is no rounded constant
}


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    made = Judge()
    yield made
    made.close()


@pytest.mark.parametrize("name", KERNELS)
def test_a_right_kernel_is_upheld(name: str, judge: Judge) -> None:
    found = judge.judge(FILE, ("gradient_exact", "memory_safe", "order_free"), (name,))
    assert {verdict for verdict, _ in found.values()} == {"upheld"}, found
    assert len(found) == 3


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_is_planted_in_a_backward_kernel_is_refuted_at_the_first_problem(
    mistake: str, judge: Judge, tmp_path: Path
) -> None:
    text = FILE.read_text(encoding="utf-8")
    assert text.count(PLANTED) == 1
    path = tmp_path / "planted.py"
    path.write_text(text.replace(PLANTED, PLANTED.replace("return g", MISTAKES[mistake])), encoding="utf-8")
    found = judge.judge(path, ("gradient_exact",), examples=1)
    assert {verdict for verdict, _ in found.values()} == {"refuted"}, found
    assert len(found) == len(KERNELS)


def test_of_the_configurations_of_a_tuner_one_of_each_kind_runs() -> None:
    triton = pytest.importorskip("triton")
    from gradgate.suites.exact.on_triton import launch

    def plain(x: Any, B: Any) -> None: ...
    def asking(x: Any, B: Any, num_warps: Any) -> None: ...

    def reset(given: Any) -> None: ...

    many = [triton.Config({"B": b}, num_warps=w, num_stages=s) for b in (4, 8) for w in (1, 2) for s in (1, 2)]
    hooked = [*many, triton.Config({"B": 4}, pre_hook=reset)]

    def kinds(tuner: Any) -> list[tuple[int, int]]:
        return [(one.kwargs["B"], one.num_warps) for one in launch.unlike(tuner, tuner.configs)]

    tuned = triton.autotune(many, key=[])
    assert kinds(tuned(triton.jit(plain))) == [(4, 1), (8, 1)]
    # the twins: whatever a kernel, a hook or a heuristic may read is kept apart
    assert kinds(tuned(triton.jit(asking))) == [(4, 1), (4, 2), (8, 1), (8, 2)]
    assert len(kinds(triton.autotune(hooked, key=[])(triton.jit(plain)))) == 3
    assert len(kinds(tuned(triton.heuristics({"B": lambda given: given["num_warps"]})(triton.jit(plain))))) == 8
